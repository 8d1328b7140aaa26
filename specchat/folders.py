"""Folders that are the user's alone."""

from __future__ import annotations

from pathlib import Path

__all__ = ["make_private"]


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for nobody else to read.

    `Path.mkdir` would give its mode to the last one only. Raises OSError.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
