"""Local models: GGUF files by name, no matter which program downloaded them.

They are files derived on this machine, and models in the folders of other programs, which specchat
only reads: the hub's cache, which llama.cpp shares, llama.cpp's older cache, and the folders of LM
Studio and Ollama.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from specchat.catalogue.header_cache import HeaderCache
from specchat.gguf.draft_kinds import is_name_of_head
from specchat.gguf.split_files import split_names
from specchat.hub.cache import cache_root
from specchat.system.private_files import FOLDERS, read_json, read_text

Tool: TypeAlias = Literal["hub", "llama.cpp", "LM Studio", "Ollama", "derived"]

OLLAMA_SERVICE = Path("/usr/share/ollama/.ollama/models")
"""The folder of Ollama's service on Linux, which runs as its own user."""
DEEPEST = 5
"""The deepest nesting that is searched: LM Studio has publisher/model/file, hub repositories a few
more levels."""
MOST_FILES = 20_000
NO_MODEL = re.compile(r"mmproj|imatrix", re.IGNORECASE)
"""Names of files that are neither models nor heads, by llama.cpp's conventions."""
MANIFEST_TREES = ("manifests-v2", "manifests")
OLLAMA_HOSTS = ("registry.ollama.ai", "ollama.com")
"""Models from these hosts are named without the host, those in `library` without the namespace."""
MANIFEST_LIST = "application/vnd.ollama.manifest.list.v2+json"
MODEL_LAYER = "application/vnd.ollama.image.model"
PROJECTOR_LAYER = "application/vnd.ollama.image.projector"
RUNNERS = ("ollama", "llamacpp", "ggml", "")
DIGEST = re.compile(r"sha256[:-][0-9a-f]{64}", re.IGNORECASE)
OLLAMA_NAME = re.compile(r"[\w.-]{1,128}", re.ASCII)
MAX_MANIFESTS = 2000


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder of models, and the program it belongs to."""

    tool: Tool
    folder: Path


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A local model: its first file, the program whose folder holds it, and its total size.

    `tool` is None for a model found by its path.
    """

    name: str
    path: Path
    tool: Tool | None
    num_bytes: int


class _Manifest(msgspec.Struct, rename={"media_type": "mediaType"}):
    """A manifest, an entry of a manifest list (digest or layers), or a layer (digest)."""

    media_type: str | None = None
    digest: str | None = None
    runner: str | None = None
    layers: "list[_Manifest] | None" = None
    manifests: "list[_Manifest] | None" = None


def find_local_models(
    folders: Iterable[ModelFolder] | None = None, *, with_heads: bool = False
) -> tuple[LocalModel, ...]:
    """Return the models in all programs' folders, without duplicate files or names.

    With `with_heads`, files of prediction heads are among them.
    """
    named: dict[str, LocalModel] = {}
    seen: set[Path] = set()
    for model_folder in find_model_folders() if folders is None else folders:
        for name, path in _FINDERS[model_folder.tool](model_folder.folder):
            model = model_at(path, name, model_folder.tool, with_heads=with_heads)
            if model and (real := path.resolve()) not in seen:
                seen.add(real)
                named.setdefault(model.name, model)
    return tuple(named.values())


def models_in(folder: Path, *, with_heads: bool = False) -> tuple[LocalModel, ...]:
    """Return the models directly in a folder, among them heads if wanted."""
    found = (model_at(path, with_heads=with_heads) for path in sorted(folder.glob("*.gguf")))
    return tuple(filter(None, found))


def model_at(
    path: Path, name: str = "", tool: Tool | None = None, *, with_heads: bool = False
) -> LocalModel | None:
    """Return the model that starts with a file, None unless it is complete and readable.

    Nor is a file a model that is named as a head and holds one, unless `with_heads` is set.
    """
    names = split_names(path.name)
    name = name or path.name
    file = name.rpartition("/")[2]
    if names[0] != path.name or not may_be_model(file) or not os.path.isfile(path):
        return None
    if not with_heads and is_name_of_head(file) and not _holds_model(path):
        return None
    with suppress(OSError):
        sizes = [path.with_name(file_name).stat().st_size for file_name in names]
        return LocalModel(name, path, tool, sum(sizes)) if all(sizes) else None
    return None


def may_be_model(file: str) -> bool:
    """Return True unless a file's name shows that it is neither a model nor a head."""
    return not NO_MODEL.search(file)


def _holds_model(path: Path) -> bool:
    """Return True if a file that is named as a head holds more than that, by its header."""
    with HeaderCache() as cache:
        facts = cache.of(path)
    return facts.kind != "damaged" and not facts.is_head


def find_derived(name: str) -> LocalModel | None:
    """Return the derived file of that name, None if there is none.

    Case matters only if two names differ by nothing else.
    """
    names = {name, f"{name}.gguf"}
    alike = {file_name.lower() for file_name in names}
    models = [model for model in models_in(derived_folder()) if model.name.lower() in alike]
    return max(models, key=lambda model: model.name in names, default=None)


def find_model_folders(
    environ: Mapping[str, str] = os.environ, home: Path | None = None, system: str = sys.platform
) -> tuple[ModelFolder, ...]:
    """Return the existing folders without duplicates, the hub's cache first."""
    folders: dict[Path, ModelFolder] = {}
    for model_folder in _possible_folders(environ, home or Path.home(), system):
        with suppress(OSError, ValueError):
            if model_folder.folder.is_absolute() and model_folder.folder.is_dir():
                folders.setdefault(model_folder.folder.resolve(), model_folder)
    return tuple(folders.values())


def derived_folder() -> Path:
    """Return the folder of derived files, which may not exist."""
    return FOLDERS.user_data_path / "derived"


def _possible_folders(environ: Mapping[str, str], home: Path, system: str) -> Iterator[ModelFolder]:
    """Yield the folders that programs use on a system, the configured ones first."""
    yield ModelFolder("hub", cache_root())
    yield ModelFolder("derived", derived_folder())
    caches = {
        "win32": Path(environ.get("LOCALAPPDATA") or home / "AppData/Local"),
        "darwin": home / "Library/Caches",
    }
    usual = caches.get(system, Path(environ.get("XDG_CACHE_HOME") or home / ".cache"))
    yield ModelFolder(
        "llama.cpp", Path(environ.get("LLAMA_CACHE") or usual / "llama.cpp").absolute()
    )
    moved = Path(read_text(home / ".lmstudio-home-pointer"))
    for folder in (moved, home / ".lmstudio", home / ".cache/lm-studio"):
        settings = read_json(folder / "settings.json", dict[str, Any], {})
        yield ModelFolder("LM Studio", Path(str(settings.get("downloadsFolder", ""))))
        yield ModelFolder("LM Studio", folder / "models")
    if named := environ.get("OLLAMA_MODELS", "").strip("\"' "):
        yield ModelFolder("Ollama", Path(named).absolute())
    yield ModelFolder("Ollama", home / ".ollama/models")
    yield ModelFolder("Ollama", OLLAMA_SERVICE)


def _in_hub(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of a cache in the hub's layout, each from the newest commit that has it.

    Older versions of llama.cpp kept files in the folder itself, under their own names.
    """
    yield from ((path.name, path) for path in sorted(folder.glob("*.gguf")))
    for repository in sorted(folder.glob("models--*")):
        name = "/".join(repository.name.split("--")[1:])
        files: dict[str, Path] = {}
        for commit in _newest_first(repository):
            for file, path in files_below(commit):
                files.setdefault(file, path)
        yield from ((f"{name}/{file}", path) for file, path in sorted(files.items()))


def _newest_first(repository: Path) -> Sequence[Path]:
    """Return the downloaded commits of a repository: main first, then the newest."""
    main = read_text(repository / "refs/main")
    with suppress(OSError):
        commits = [path for path in (repository / "snapshots").iterdir() if path.is_dir()]
        return sorted(commits, key=lambda path: (path.name != main, -path.stat().st_mtime))
    return ()


def files_below(top: Path) -> list[tuple[str, Path]]:
    """Return the GGUF files of a tree as pairs of relative path and path, sorted.

    Depth and count are limited; each folder is visited once, by its shortest path.
    """
    paths: list[Path] = []
    level, seen = [str(top)], {os.path.realpath(top)}
    for _ in range(DEEPEST + 1):
        below: list[os.DirEntry[str]] = []
        for folder in level:
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    with suppress(OSError):  # a circular link
                        if entry.name.lower().endswith(".gguf") and entry.is_file():
                            paths.append(Path(entry.path))
                        elif not entry.name.startswith(".") and entry.is_dir():
                            below.append(entry)
        below.sort(key=lambda entry: (entry.is_symlink(), entry.path), reverse=True)
        real = {
            os.path.realpath(entry.path): entry.path for entry in below
        }  # prefer folders to links
        level = [path for real_path, path in real.items() if real_path not in seen]
        seen |= real.keys()
    return [(path.relative_to(top).as_posix(), path) for path in sorted(paths[:MOST_FILES])]


def _in_ollama(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield Ollama's models that are intact: manifests name them, blobs hold them by checksum.

    Manifests are untrusted: only checksums are used, as names of blobs in the same folder. The tree
    is manifests/<host>/<namespace>/<model>/<tag>, and since Ollama 0.40 manifests-v2, where a
    manifest may list others, one for each program that can run the model.
    """
    seen: set[str] = set()
    for path in _manifests(folder):
        name = _ollama_name(path)
        if name and name not in seen and os.path.isfile(path) and (blob := _layer(folder, path)):
            seen.add(name)
            yield name, blob


def projectors_of_blob(blob: Path) -> Iterator[Path]:
    """Yield the projectors that Ollama's manifests name beside a model, given by its blob."""
    folder = blob.parent.parent
    for path in _manifests(folder):
        if os.path.isfile(path) and _layer(folder, path) == blob:
            projector = _layer(folder, path, PROJECTOR_LAYER)
            yield from [projector] if projector else []


def _manifests(folder: Path) -> Iterator[Path]:
    trees = (sorted((folder / tree).glob("*/*/*/*")) for tree in MANIFEST_TREES)
    return islice(chain.from_iterable(trees), MAX_MANIFESTS)


def _ollama_name(manifest: Path) -> str | None:
    """Return Ollama's name for the model of a manifest, None if the path is not a manifest's."""
    host, namespace, model, tag = manifest.parts[-4:]
    if not all(OLLAMA_NAME.fullmatch(part) and part[0] != "." for part in (namespace, model, tag)):
        return None
    if host not in OLLAMA_HOSTS:
        return f"{host}/{namespace}/{model}:{tag}" if OLLAMA_NAME.fullmatch(host) else None
    return f"{model}:{tag}" if namespace == "library" else f"{namespace}/{model}:{tag}"


def _layer(folder: Path, path: Path, media_type: str = MODEL_LAYER) -> Path | None:
    """Return the GGUF file that a manifest names as the model, or as a layer of another type."""
    manifest = read_json(path, _Manifest, _Manifest())
    if manifest.media_type == MANIFEST_LIST:
        manifest = _for_llama_cpp(folder, manifest)
    layers = (layer for layer in manifest.layers or () if layer.media_type == media_type)
    blob = _blob(folder, next(layers, _Manifest()).digest)
    return blob if blob and _is_gguf(blob) else None


def _for_llama_cpp(folder: Path, manifest: _Manifest) -> _Manifest:
    """Return a list's manifest that llama.cpp can run, following its digest to a blob."""
    for listed in manifest.manifests or ():
        if (listed.runner or "").lower() in RUNNERS:
            blob = None if listed.layers else _blob(folder, listed.digest)
            return read_json(blob, _Manifest, listed) if blob else listed
    return _Manifest()


def _blob(folder: Path, digest: str | None) -> Path | None:
    """Return the file with a checksum, None if it does not exist."""
    if digest is None or not DIGEST.fullmatch(digest):
        return None
    path = folder / "blobs" / digest.replace(":", "-", 1)
    return path if os.path.isfile(path) else None


def _is_gguf(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return file.read(4) == b"GGUF"
    return False


_FINDERS = {
    "hub": _in_hub,
    "llama.cpp": _in_hub,
    "LM Studio": files_below,
    "Ollama": _in_ollama,
    "derived": files_below,
}
