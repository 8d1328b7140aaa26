"""Checking again that the files of the cache are, bit by bit, what they were pulled as."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from specchat.errors import SpecchatError
from specchat.hub.cache import find_present, pointer_path
from specchat.hub.pins import pinned
from specchat.hub.references import Reference, is_commit, is_sha256
from specchat.hub.transfer import Progress, Tell

__all__ = ["Checked", "check"]

PIECE = 1 << 20
"""Bytes read at a time."""

Checked = tuple[Path, bool]
"""A file, all links followed, and whether it is right."""


def check(reference: Reference, tell: Tell) -> Iterator[Checked]:
    """Hash each part of a file that is here, whole, and compare it with its sha256.

    The pin's counts, else the one that the cache keeps the bytes under. SpecchatError where neither
    is known.
    """
    first = find_present(reference)
    for part in reference.parts if first else ():
        known = pinned(part)
        path = pointer_path(known) if is_commit(known.revision) else find_present(part)
        assert path is not None  # noqa: S101  # all parts are here, as the first one is
        real = path.resolve()
        expected = known.sha256 or (real.name if is_sha256(real.name) else None)
        if expected is None:
            raise SpecchatError(
                f"{reference}: no sha256 of it is known, so nobody can say whether it is right"
            )
        yield real, _sha256(real, known, tell) == expected


def _sha256(path: Path, reference: Reference, tell: Tell) -> str:
    """Return the sha256 of a file, telling how far it is."""
    digest, num_read, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
            num_read += len(piece)
            tell(Progress(reference, num_read, total, num_read))
    return digest.hexdigest()
