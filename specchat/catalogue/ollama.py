"""Ollama's models: names in a tree of manifests, bytes in blobs named by their checksum.

Manifests are untrusted: of what they say only checksums are used, as names of blobs in the same
folder. The layout is that of manifests/<host>/<namespace>/<model>/<tag>, and since Ollama 0.40 of
manifests-v2, where a manifest may list others, one for each program that can run the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from specchat.catalogue.model_folders import read_small

__all__ = ["find_ollama_models"]

TREES = ("manifests-v2", "manifests")
HOSTS = ("registry.ollama.ai", "ollama.com")
"""Whose models are named without their host, and those of `library` without their namespace."""
LIST = "application/vnd.ollama.manifest.list.v2+json"
MODEL = "application/vnd.ollama.image.model"
RUNNERS = ("ollama", "llamacpp", "ggml", "")
DIGEST = re.compile(r"sha256[:-][0-9a-f]{64}", re.IGNORECASE)
NAME = re.compile(r"[\w.-]{1,128}", re.ASCII)
LARGEST_MANIFEST = 1 << 18
MOST_MANIFESTS = 2000


def find_ollama_models(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the models of a folder of Ollama's, by the names Ollama gives them, and their files.

    What is damaged or no GGUF file is left out.
    """
    seen: set[str] = set()
    manifests = (path for tree in TREES for path in sorted((folder / tree).glob("*/*/*/*")))
    for path in islice(manifests, MOST_MANIFESTS):
        name = _name(path)
        if name is None or name in seen:
            continue
        blob = _model_blob(folder, _read(path))
        if blob:
            seen.add(name)
            yield name, blob


def _name(manifest: Path) -> str | None:
    """Return what Ollama calls the model of a manifest; None where it could be no name."""
    host, namespace, model, tag = manifest.parts[-4:]
    if not all(NAME.fullmatch(part) and part[0] != "." for part in (namespace, model, tag)):
        return None
    if host not in HOSTS:
        return f"{host}/{namespace}/{model}:{tag}" if NAME.fullmatch(host) else None
    return f"{model}:{tag}" if namespace == "library" else f"{namespace}/{model}:{tag}"


def _read(path: Path) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        told = json.loads(read_small(path, LARGEST_MANIFEST) or "{}")
        return told if isinstance(told, dict) else {}
    return {}


def _model_blob(folder: Path, manifest: dict[str, Any]) -> Path | None:
    """Return the GGUF file that a manifest names as the model."""
    if manifest.get("mediaType") == LIST:
        manifest = _for_llama_cpp(folder, manifest)
    layers = manifest.get("layers")
    for layer in layers if isinstance(layers, list) else []:
        if isinstance(layer, dict) and layer.get("mediaType") == MODEL:
            blob = _blob(folder, layer.get("digest"))
            return blob if blob and _is_gguf(blob) else None
    return None


def _for_llama_cpp(folder: Path, manifests: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest of a list that llama.cpp can run, itself or the blob it points to."""
    listed = manifests.get("manifests")
    for each in listed if isinstance(listed, list) else []:
        if isinstance(each, dict) and str(each.get("runner") or "").lower() in RUNNERS:
            blob = None if each.get("layers") else _blob(folder, each.get("digest"))
            return _read(blob) if blob else each
    return {}


def _blob(folder: Path, digest: object) -> Path | None:
    """Return the file of a checksum, if it is one and the file is here."""
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        return None
    path = folder / "blobs" / digest.replace(":", "-", 1)
    return path if path.is_file() else None


def _is_gguf(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return file.read(4) == b"GGUF"
    return False
