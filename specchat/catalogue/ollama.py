"""Ollama's models: names in a tree of manifests, bytes in blobs named by their checksum.

Manifests are untrusted: only checksums are used, as names of blobs in the same folder. The tree is
manifests/<host>/<namespace>/<model>/<tag>, and since Ollama 0.40 manifests-v2, where a manifest may
list others, one for each program that can run the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec

from specchat.private_files import read_json

TREES = ("manifests-v2", "manifests")
HOSTS = ("registry.ollama.ai", "ollama.com")
"""Models of these hosts are named without the host, those of `library` without the namespace."""
LIST = "application/vnd.ollama.manifest.list.v2+json"
MODEL = "application/vnd.ollama.image.model"
RUNNERS = ("ollama", "llamacpp", "ggml", "")
DIGEST = re.compile(r"sha256[:-][0-9a-f]{64}", re.IGNORECASE)
NAME = re.compile(r"[\w.-]{1,128}", re.ASCII)
MAX_MANIFESTS = 2000


class _Manifest(msgspec.Struct, rename={"media_type": "mediaType"}):
    """A manifest; one of a list has a digest or layers, a layer is one with a digest."""

    media_type: str | None = None
    digest: str | None = None
    runner: str | None = None
    layers: list[_Manifest] | None = None
    manifests: list[_Manifest] | None = None


def find_ollama_models(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the names and files of the models in Ollama's folder, without damaged ones."""
    seen: set[str] = set()
    paths = (path for tree in TREES for path in sorted((folder / tree).glob("*/*/*/*")))
    for path in islice(paths, MAX_MANIFESTS):
        name = _name(path)
        if name and name not in seen and path.is_file() and (blob := _model_blob(folder, path)):
            seen.add(name)
            yield name, blob


def _name(manifest: Path) -> str | None:
    """Return Ollama's name of the model of a manifest, None if the path is not one."""
    host, namespace, model, tag = manifest.parts[-4:]
    if not all(NAME.fullmatch(part) and part[0] != "." for part in (namespace, model, tag)):
        return None
    if host not in HOSTS:
        return f"{host}/{namespace}/{model}:{tag}" if NAME.fullmatch(host) else None
    return f"{model}:{tag}" if namespace == "library" else f"{namespace}/{model}:{tag}"


def _model_blob(folder: Path, path: Path) -> Path | None:
    """Return the GGUF file that a manifest names as the model."""
    manifest = read_json(path, _Manifest, _Manifest())
    if manifest.media_type == LIST:
        manifest = _for_llama_cpp(folder, manifest)
    models = (each for each in manifest.layers or () if each.media_type == MODEL)
    blob = _blob(folder, next(models, _Manifest()).digest)
    return blob if blob and _is_gguf(blob) else None


def _for_llama_cpp(folder: Path, manifest: _Manifest) -> _Manifest:
    """Return the manifest of a list that llama.cpp can run: itself, or the blob it points to."""
    for each in manifest.manifests or ():
        if (each.runner or "").lower() in RUNNERS:
            blob = None if each.layers else _blob(folder, each.digest)
            return read_json(blob, _Manifest, each) if blob else each
    return _Manifest()


def _blob(folder: Path, digest: str | None) -> Path | None:
    """Return the file of a checksum, None if there is none."""
    if digest is None or not DIGEST.fullmatch(digest):
        return None
    path = folder / "blobs" / digest.replace(":", "-", 1)
    return path if path.is_file() else None


def _is_gguf(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return file.read(4) == b"GGUF"
    return False
