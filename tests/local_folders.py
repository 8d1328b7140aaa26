"""Folders of other programs, laid out as those lay them out."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


GGUF = (
    struct.pack("<4sIQQ", b"GGUF", 3, 1, 1)
    + (_text(b"general.architecture") + struct.pack("<I", 8) + _text(b"llama"))
    + (_text(b"a") + struct.pack("<IQIQ", 1, 8, 0, 0))
).ljust(160, b"\0")
"""A GGUF file that names its architecture and has one tensor: enough to be listed."""


def put(path: Path, content: bytes = GGUF) -> Path:
    """Write a file, with the folders it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def put_in_hub(
    root: Path, repository: str, file: str, content: bytes = GGUF, commit: str = "a" * 40
) -> Path:
    """Put a file into a cache in the hub's layout, as huggingface_hub and llama.cpp do."""
    folder = root / f"models--{repository.replace('/', '--')}"
    blob = put(folder / "blobs" / hashlib.sha256(content).hexdigest(), content)
    pointer = folder / "snapshots" / commit / file
    pointer.parent.mkdir(parents=True, exist_ok=True)
    pointer.symlink_to(os.path.relpath(blob, pointer.parent))
    put(folder / "refs" / "main", commit.encode())
    return pointer


def put_blob(folder: Path, content: bytes) -> str:
    """Put bytes among Ollama's blobs, and return their digest."""
    digest = hashlib.sha256(content).hexdigest()
    put(folder / "blobs" / f"sha256-{digest}", content)
    return f"sha256:{digest}"


def manifest(**layers: str) -> dict[str, Any]:
    """Return a manifest of Ollama's with such layers: model="sha256:...", say."""
    return {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {"mediaType": "application/vnd.docker.container.image.v1+json"},
        "layers": [
            {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": digest, "size": 8}
            for kind, digest in layers.items()
        ],
    }


def put_in_ollama(
    folder: Path,
    content: bytes = GGUF,
    name: str = "registry.ollama.ai/library/tiny/latest",
) -> Path:
    """Put a model into a folder of Ollama's, and return its blob."""
    digest = put_blob(folder, content)
    record = manifest(model=digest)
    put(folder / "manifests" / name, json.dumps(record).encode())
    return folder / "blobs" / digest.replace(":", "-")
