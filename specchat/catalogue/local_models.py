"""Local models: GGUF files by name, whichever program downloaded them."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from specchat.catalogue.model_folders import Place, Tool, find_places, read_small
from specchat.catalogue.ollama import find_ollama_models
from specchat.errors import ModelNotFound
from specchat.hub.references import split_names

DEEPEST = 5
"""Nested folders: LM Studio has publisher/model/file, repositories of the hub a few more."""
MOST_FILES = 20_000
NO_MODEL = re.compile(r"mmproj|imatrix|^(mtp|eagle3?|dspark)-|dflash|eagle3", re.IGNORECASE)
"""Names of files that belong to a model and cannot be used alone, by llama.cpp's conventions."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A local model: its first file, the program whose folder has it, and the size of all files.

    `tool` is None for a model found by its path.
    """

    name: str
    path: Path
    tool: Tool | None
    num_bytes: int


def find_local_models(places: Iterable[Place] | None = None) -> tuple[LocalModel, ...]:
    """Return the models in the folders of all programs, each file and name once."""
    named: dict[str, LocalModel] = {}
    seen: set[Path] = set()
    for place in find_places() if places is None else places:
        for name, path in _FINDERS[place.tool](place.folder):
            model = _model(name, path, place.tool)
            if model and (real := path.resolve()) not in seen:
                seen.add(real)
                named.setdefault(model.name, model)
    return tuple(named.values())


def models_in(folder: Path) -> tuple[LocalModel, ...]:
    """Return the models directly in a folder."""
    with suppress(OSError):
        paths = sorted(folder.glob("*.gguf"))
        found = [_model(path.name, path) for path in paths]
        return tuple(each for each in found if each)
    return ()


def model_at(path: Path) -> LocalModel | None:
    """Return the model of its first file, None unless it is complete and readable."""
    return _model(path.name, path)


def find_model(name: str) -> LocalModel | None:
    """Return the model of that name, or the only one with a file of that name, None for none.

    Case does not matter, and `.gguf` and Ollama's `:latest` may be omitted. Raises ModelNotFound,
    which lists the candidates, for an ambiguous name.
    """
    wanted = name.lower()
    models = find_local_models()
    for is_it in (_has_name, _has_name_of_file):
        found = [model for model in models if is_it(model, wanted)]
        if len(found) > 1:
            names = ", ".join(model.name for model in found)
            raise ModelNotFound(f"{name} is ambiguous: choose one of {names}")
        if found:
            return found[0]
    return None


def _has_name(model: LocalModel, wanted: str) -> bool:
    return model.name.lower() in {wanted, f"{wanted}.gguf", f"{wanted}:latest"}


def _has_name_of_file(model: LocalModel, wanted: str) -> bool:
    return model.name.lower().rpartition("/")[2] in {wanted, f"{wanted}.gguf"}


def _model(name: str, path: Path, tool: Tool | None = None) -> LocalModel | None:
    """Return the model of a file, None for a later part, an incomplete one or another kind."""
    names = split_names(path.name)
    is_other = names[0] != path.name or NO_MODEL.search(name.rpartition("/")[2])
    if is_other or not path.is_file():
        return None
    with suppress(OSError):
        sizes = [path.with_name(each).stat().st_size for each in names]
        return LocalModel(name, path, tool, sum(sizes)) if all(sizes) else None
    return None


def _in_hub(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of a cache in the hub's layout, each from its newest commit."""
    for repository in sorted(folder.glob("models--*")):
        name = "/".join(repository.name.split("--")[1:])
        files: dict[str, Path] = {}
        for commit in _newest_first(repository):
            for path in _files_below(commit):
                files.setdefault(path.relative_to(commit).as_posix(), path)
        yield from ((f"{name}/{file}", path) for file, path in sorted(files.items()))


def _newest_first(repository: Path) -> Sequence[Path]:
    """Return the downloaded commits of a repository: main first, then the newest."""
    main = (read_small(repository / "refs" / "main") or "").strip()
    with suppress(OSError):
        commits = [path for path in (repository / "snapshots").iterdir() if path.is_dir()]
        return sorted(commits, key=lambda path: (path.name != main, -path.stat().st_mtime))
    return ()


def _in_folder(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the GGUF files of a tree by their paths in it."""
    for path in sorted(_files_below(folder)):
        yield path.relative_to(folder).as_posix(), path


def _in_llama_cpp(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files in the folder itself, and those in the hub's layout."""
    yield from ((path.name, path) for path in sorted(folder.glob("*.gguf")))
    yield from _in_hub(folder)


def _files_below(folder: Path) -> list[Path]:
    """Return the GGUF files of a tree, links followed, within limits."""
    return list(islice(_walk(folder), MOST_FILES))


def _walk(top: Path) -> Iterator[Path]:
    """Yield the files of each folder once, by its shortest path, links last."""
    level, seen = [top], {os.path.realpath(top)}
    for _ in range(DEEPEST + 1):
        below = []
        for folder in level:
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.lower().endswith(".gguf") and entry.is_file():
                        yield Path(entry.path)
                    elif not entry.name.startswith(".") and entry.is_dir():
                        below.append(entry)
        below.sort(key=lambda entry: (entry.is_symlink(), entry.path))
        level = []
        for entry in below:
            if (real := os.path.realpath(entry.path)) not in seen:
                seen.add(real)
                level.append(Path(entry.path))


_FINDERS = {
    "hub": _in_hub,
    "llama.cpp": _in_llama_cpp,
    "LM Studio": _in_folder,
    "Ollama": find_ollama_models,
}
