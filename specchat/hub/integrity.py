"""A check of the files in the cache against their checksums."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from specchat.errors import SpecchatError
from specchat.hub.cache import find_present, pointer_path
from specchat.hub.pins import pinned
from specchat.hub.references import Reference, is_commit, is_sha256
from specchat.hub.transfer import DownloadCallback, DownloadProgress

PIECE_BYTES = 1 << 20


def check(reference: Reference, on_progress: DownloadCallback) -> Iterator[tuple[Path, bool]]:
    """Hash each part of an installed file; yield its path, links followed, and whether it is right.

    Its sha256 is the pin's, or else the one the cache files it under. Raises SpecchatError without
    any.
    """
    first = find_present(reference)
    for part in reference.parts if first else ():
        known = pinned(part)
        path = pointer_path(known) if is_commit(known.revision) else find_present(part)
        assert path is not None  # noqa: S101  # find_present(reference) found all parts
        real = path.resolve()
        expected = known.sha256 or (real.name if is_sha256(real.name) else None)
        if expected is None:
            raise SpecchatError(f"{reference} cannot be checked: its sha256 is not known")
        yield real, _sha256(real, known, on_progress) == expected


def _sha256(path: Path, reference: Reference, on_progress: DownloadCallback) -> str:
    digest, num_read, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
            num_read += len(piece)
            on_progress(DownloadProgress(reference, num_read, total, num_read))
    return digest.hexdigest()
