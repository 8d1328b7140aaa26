"""Pins: which bytes a name stood for when it was first pulled, kept in the user's data folder.

What a catalogue does not pin is pinned at its first download, so that an interrupted one goes on
with the same file whatever its repository does meanwhile, and a later one brings the same again.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import platformdirs

from specchat.folders import make_private
from specchat.hub.references import Reference, is_commit

__all__ = ["drop_pin", "keep_pin", "kept_references", "pinned", "pins_path"]

LARGEST_FILE = 1 << 22


def pins_path() -> Path:
    """Return the file that keeps them."""
    return Path(platformdirs.user_data_path("specchat", appauthor=False)) / "pins.json"


def pinned(reference: Reference) -> Reference:
    """Return a reference with the commit, size and sha256 that were kept for it, if any were.

    Its file's name may have other small and large letters then, as its repository writes it.
    """
    kept: Any = _read().get(_key(reference))
    try:
        file = kept.get("file", reference.file)
        return replace(
            reference,
            file=file if file.lower() == reference.file.lower() else reference.file,
            revision=kept["revision"],
            size=reference.size or kept["bytes"],
            sha256=reference.sha256 or kept["sha256"],
        )
    except (TypeError, KeyError, ValueError, AttributeError):
        return reference


def keep_pin(asked: Reference, found: Reference) -> None:
    """Keep what a reference without a pin, or under another name, was found to be."""
    if is_commit(asked.revision) and asked.sha256 and asked.file == found.file:
        return
    kept = {"revision": found.revision, "bytes": found.size, "sha256": found.sha256}
    if asked.file != found.file:
        kept["file"] = found.file
    with _changing() as pins:
        pins[_key(asked)] = kept


def drop_pin(reference: Reference) -> None:
    """Forget what was kept for a reference."""
    with _changing() as pins:
        pins.pop(_key(reference), None)


def kept_references() -> list[Reference]:
    """Return every reference that something is kept for."""
    found = []
    for key in _read():
        name, _, revision = key.rpartition("@")
        organisation, repository, file = [*name.split("/", 2), "", ""][:3]
        with suppress(ValueError):
            found.append(Reference(f"{organisation}/{repository}", file, revision))
    return found


def _key(reference: Reference) -> str:
    return f"{reference}@{reference.revision}"


def _read() -> dict[str, Any]:
    with suppress(OSError, ValueError):
        if pins_path().stat().st_size <= LARGEST_FILE:
            record = json.loads(pins_path().read_text("utf-8"))
            return record if isinstance(record, dict) else {}
    return {}


@contextmanager
def _changing() -> Iterator[dict[str, Any]]:
    """Change what is kept, one at a time: threads and other processes pull too."""
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

    path = pins_path()
    make_private(path.parent)
    with WeakFileLock(path.with_suffix(".lock")):
        pins = _read()
        before = dict(pins)
        yield pins
        if pins == before:
            return
        descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".new")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(pins, file, indent=1)
        Path(name).replace(path)
