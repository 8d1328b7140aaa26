"""How well pairs fit invented machines, and which one is recommended."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.catalogue.catalogue_file import load_entries
from specchat.catalogue.fit import (
    CORE_BANDWIDTH,
    LEAST_RATE,
    Fit,
    judge,
    need_of,
    need_of_size,
    predicted_rate,
    recommend,
)
from specchat.planning import forecast
from specchat.planning.device import Device, Machine, find_machine, gpus_of, gpus_path, keep_gpus
from specchat.planning.measured_times import note_pass
from specchat.planning.token_time import Reads
from tables import table

GB, GIB = 10**9, 2**30


@pytest.fixture(autouse=True)
def _any_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left to other programs is a share of what is free, not of this machine's memory.

    And nothing is known of how fast this machine reads.
    """
    monkeypatch.setattr(forecast, "total_bytes", lambda: 0)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def gpu(gibibytes: float, *, is_shared: bool = False) -> Device:
    """Return a GPU with so much memory."""
    size = int(gibibytes * GIB)
    return Device("GPU0", "GPU", "integrated" if is_shared else "gpu", size, size)


def machine(gigabytes: float, *gpus: Device) -> Machine:
    """Return a machine with so much memory free."""
    return Machine(int(gigabytes * GB), gpus)


@table(
    ("invented", "name"),
    [
        (machine(5), "qwen3-1.7b"),
        (machine(6), "qwen3-4b"),
        (machine(16), "qwen3-8b"),
        (machine(128), "qwen3-8b"),
        (machine(128, gpu(8)), "qwen3-4b"),
        (machine(16, gpu(12)), "qwen3-8b"),
        (machine(64, gpu(16)), "qwen3-14b"),
        (machine(64, gpu(24)), "qwen3-32b"),
        (machine(64, gpu(12), gpu(12)), "qwen3-32b"),
        (machine(13, gpu(16, is_shared=True)), "qwen3-14b"),
        (machine(24, gpu(2)), "qwen3-8b"),
        (machine(4), "gemma4-e2b-mtp"),
        (machine(3.5), "gemma3-4b-qat"),
        (machine(3), "smollm2-135m"),
        (machine(1), "smollm2-135m"),
        (machine(0.3), None),
        (Machine(None), "qwen3-1.7b"),
        (Machine(None, (gpu(8),)), "qwen3-4b"),
        (Machine(None, (gpu(64, is_shared=True),)), "qwen3-1.7b"),
        (Machine(16 * GB), "qwen3-8b"),
        (Machine(16 * GB, num_cores=8), "qwen3-8b"),
        (Machine(16 * GB, num_cores=2), "qwen3-4b"),
        (Machine(16 * GB, num_cores=1), "smollm2-1.7b"),
        (Machine(16 * GB, (gpu(12),), num_cores=2), "qwen3-8b"),
        (Machine(28 * GB, (gpu(30, is_shared=True),), num_cores=8), "qwen3-14b"),
    ],
    ids=str,
)
def test_each_machine_is_offered_the_largest_pair_that_runs_well(
    invented: Machine, name: str | None
) -> None:
    """The largest that fits the GPU, else one that is faster on the CPU than people read.

    A pair that is not recommended beats none; an unknown machine is offered a small one.
    """
    found = recommend(load_entries().values(), invented)

    assert (found and found.name) == name


def test_the_speed_of_a_download_follows_from_its_size() -> None:
    """And from what reads it; that of tiny and of split pairs is not known."""
    entries = load_entries()
    dense, size = entries["qwen3-8b"], 5_027_783_488
    assert predicted_rate(dense, machine(16)) == pytest.approx(50e9 / size)
    two = Machine(16 * GB, num_cores=2)
    assert predicted_rate(dense, two) == pytest.approx(2 * CORE_BANDWIDTH / size)
    assert predicted_rate(dense, two) < LEAST_RATE
    assert predicted_rate(dense, machine(16, gpu(12))) == pytest.approx(400e9 / size)
    assert predicted_rate(dense, machine(16, gpu(4))) == 0.0
    assert predicted_rate(dense, machine(4)) == 0.0
    assert predicted_rate(entries["smollm2-135m"], machine(16)) == 0.0
    sparse = entries["gpt-oss-20b"]
    assert predicted_rate(sparse, machine(64)) > 20 > 50e9 / (sparse.num_bytes or 0)


def test_a_measured_bandwidth_replaces_the_assumed_one() -> None:
    """Of the processors, however many they are."""
    two, entry = Machine(16 * GB, num_cores=2), load_entries()["qwen3-8b"]
    note_pass(Reads((GB,)), [Device("CPU", "", "cpu")], 1 / 40)
    assert predicted_rate(entry, two) == pytest.approx(40 * GB / 5_027_783_488)
    found = recommend(load_entries().values(), two)
    assert found == entry


@table(
    ("invented", "fit"),
    [
        (machine(16), "fits in memory"),
        (machine(6), "too large"),
        (machine(16, gpu(12)), "fits the GPU"),
        (machine(16, gpu(4)), "partly on the GPU"),
        (machine(2, gpu(4)), "too large"),
        (machine(16, gpu(16, is_shared=True)), "fits the GPU"),
        (machine(6, gpu(16, is_shared=True)), "too large"),
        (Machine(16 * GB, None), "fits in memory"),
        (Machine(None, None), "unknown"),
        (Machine(None, (gpu(12),)), "fits the GPU"),
    ],
    ids=str,
)
def test_how_well_a_pair_fits_a_machine(invented: Machine, fit: Fit) -> None:
    """A pair of 5.7 GB needs about 8 GB with its context."""
    assert judge(need_of(load_entries()["qwen3-8b"]), invented) == fit


def test_a_pair_of_unknown_size_is_not_judged() -> None:
    """And what the catalogue says of the memory a pair takes goes before a guess."""
    entry = load_entries()["demo"]

    assert judge(None, machine(16)) == "unknown"
    assert need_of(entry) == max(entry.memory_gb.values()) * GB
    assert need_of_size(10 * GB) == pytest.approx(12.7 * GB)


def test_gpus_are_kept_for_the_user_alone_and_nonsense_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None before llama.cpp was first asked, which differs from no GPU."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert find_machine().gpus is None
    gpus = (gpu(8), gpu(4, is_shared=True))
    keep_gpus(gpus)
    assert find_machine().gpus == tuple(replace(each, free=0) for each in gpus)
    assert gpus_path().stat().st_mode & 0o077 == 0
    keep_gpus([])
    assert find_machine().gpus == ()
    for nonsense in ("{", "[7]", '[{"name": "x"}]', "[" * 99_999, '{"a": 1}', "7"):
        gpus_path().write_text(nonsense, "utf-8")
        assert find_machine().gpus is None
    gpus_path().unlink()


def test_gpus_already_known_are_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every load reports them, and only what is free on them has changed: nothing is written."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    keep_gpus([gpu(8)])
    written = gpus_path().stat().st_mtime_ns, gpus_path().stat().st_ino
    keep_gpus([replace(gpu(8), free=1)])
    assert (gpus_path().stat().st_mtime_ns, gpus_path().stat().st_ino) == written
    keep_gpus([gpu(8), gpu(8)])
    assert len(find_machine().gpus or ()) == 2


def test_gpus_of_another_build_are_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rebuilt for another backend, llama.cpp may find other GPUs: unknown until it is asked."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    keep_gpus([])
    assert find_machine().gpus == ()
    library = tmp_path / "llama_cpp" / "lib"
    library.mkdir(parents=True)
    (library.parent / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "llama_cpp", raising=False)
    assert find_machine().gpus is None
    keep_gpus([gpu(8)])
    assert find_machine().gpus == (replace(gpu(8), free=0),)
    library.rmdir()
    library.mkdir()
    assert find_machine().gpus is None


def test_gpus_without_memory_of_their_own_are_used_where_there_are_no_others() -> None:
    """As llama.cpp uses them; what models may take is less than all."""
    own = Device("CUDA0", "RTX", "gpu", 8 * GIB, 8 * GIB)
    shared = Device("Vulkan0", "", "integrated", 8 * GIB, 8 * GIB)
    host = Device("CPU", "", "cpu", 8 * GIB, 8 * GIB)

    assert gpus_of([host, shared, own]) == [own]
    assert gpus_of([host, shared]) == [shared]
    assert gpus_of([host]) == []
    assert own.budget == 7.5 * GIB
    assert (own.label, shared.label) == ("RTX", "Vulkan0")
