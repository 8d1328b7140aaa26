"""What the tests of downloads fetch, and how."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

from hub_server import HubServer
from specchat.hub.cache import PART, cache_root
from specchat.hub.download import download
from specchat.hub.references import Reference

CONTENT = random.Random(3).randbytes(200_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FILE = Reference("org/model", "model-Q4.gguf")
DRAFT_CONTENT = random.Random(4).randbytes(50_000)
DRAFT = Reference("org/small", "quantised/small-Q8.gguf")
AT_ONCE = (0.0,) * 5


def get(*references: Reference, waits: tuple[float, ...] = AT_ONCE) -> list[Path]:
    """Download without waiting between tries."""
    return download(references or (FILE,), waits=waits)


def gets(hub: HubServer) -> int:
    """Return how often bytes of a file were asked for."""
    return sum(seen.method == "GET" for seen in hub.seen)


def blobs() -> list[str]:
    """Return the names of all bytes in the cache that pass for whole files."""
    return [path.name for path in cache_root().glob("*/blobs/*") if not path.name.endswith(PART)]


def parts() -> list[Path]:
    """Return the beginnings of files in the cache."""
    return list(cache_root().glob(f"*/blobs/*{PART}"))
