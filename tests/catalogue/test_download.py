"""Downloads against a hub on this machine: right in the end or honestly failed."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from hub_server import Fault, HubServer
from specchat.catalogue.cache import cache_root, find_present
from specchat.catalogue.download import download
from specchat.catalogue.references import Reference
from specchat.errors import DownloadFailed

CONTENT = random.Random(3).randbytes(200_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FILE = Reference("org/model", "model-Q4.gguf")
AT_ONCE = (0.0,) * 5


def get(*references: Reference, waits: tuple[float, ...] = AT_ONCE) -> list[Path]:
    """Download without waiting between tries."""
    return download(references or (FILE,), waits=waits)


@pytest.fixture
def commit(hub: HubServer) -> str:
    """The commit of a hub that has the one file."""
    return hub.put(FILE.repository, FILE.file, CONTENT)


def test_a_file_lies_in_the_shared_cache_in_its_layout(hub: HubServer, commit: str) -> None:
    """Blob, snapshot and ref are where huggingface_hub and other programs look for them."""
    from huggingface_hub import scan_cache_dir, try_to_load_from_cache

    (path,) = get()
    repository = cache_root() / "models--org--model"

    assert path == repository / "snapshots" / commit / FILE.file
    assert path.read_bytes() == CONTENT
    assert path.resolve() == (repository / "blobs" / SHA256).resolve()
    assert (repository / "refs" / "main").read_text() == commit
    assert [entry.name for entry in (repository / "blobs").iterdir()] == [SHA256]
    assert try_to_load_from_cache(FILE.repository, FILE.file, cache_root()) == str(path)
    info = scan_cache_dir(cache_root())
    assert (info.warnings, len(info.repos)) == ([], 1)


@pytest.mark.parametrize("cut", range(0, len(CONTENT), len(CONTENT) // 100))
def test_a_cut_connection_costs_no_byte_twice(hub: HubServer, commit: str, cut: int) -> None:
    """Within a run and from run to run: it goes on where it stopped."""
    hub.faults = [
        Fault("storage", cut_body_at=cut),
        Fault("storage", cut_body_at=(len(CONTENT) - cut) // 2),
    ]
    with pytest.raises(DownloadFailed, match="goes on where this one stopped"):
        get(waits=())
    assert find_present(FILE) is None
    (path,) = get()

    assert path.read_bytes() == CONTENT
    assert hub.num_sent == len(CONTENT)
