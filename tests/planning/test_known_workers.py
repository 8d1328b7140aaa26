"""The devices of workers as they were last seen, for lists that ask no network."""

from __future__ import annotations

from pathlib import Path

import pytest

from specchat.planning.device import (
    MOST_KEPT,
    Device,
    find_machine,
    keep_gpus,
    keep_workers,
    known_workers,
    workers_path,
)
from specchat.planning.forecast import free_rooms

CARD = Device("CUDA0", "a far card", "gpu", 5, 24 * 2**30, worker="10.0.0.2:50052")


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_devices_of_workers_are_kept_beside_this_machines() -> None:
    """Only workers that are named count, and none of them becomes a GPU of this machine."""
    keep_gpus([])
    keep_workers([CARD])
    (found,) = known_workers([CARD.worker])
    assert (found.label, found.free) == ("a far card on 10.0.0.2", CARD.total)
    assert known_workers(["10.0.0.3:50052"]) == ()
    assert find_machine().gpus == ()
    assert find_machine([CARD.worker]).gpus == (found,)
    assert free_rooms(find_machine([CARD.worker]))[0] == CARD.total - 2**30
    assert workers_path().stat().st_mode & 0o777 == 0o600


def test_few_workers_are_kept_and_a_damaged_file_is_none() -> None:
    """The ones used last stay."""
    for number in range(MOST_KEPT + 3):
        keep_workers([Device("CPU", "", "gpu", 1, 1, worker=f"10.0.1.{number}:50052")])
    assert known_workers(["10.0.1.2:50052"]) == ()
    assert len(known_workers(["10.0.1.3:50052"])) == 1
    workers_path().write_text("{")
    assert known_workers(["10.0.1.3:50052"]) == ()
    keep_workers([CARD])
    assert len(known_workers([CARD.worker])) == 1


def test_a_port_of_its_own_is_part_of_the_name() -> None:
    """Two workers may run on one machine."""
    other = Device("CPU", "", "gpu", 1, 1, worker="[fd00::2]:50060")
    assert other.label == "CPU on [fd00::2]:50060"
