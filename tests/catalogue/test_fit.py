"""Which pairs fit a machine, and which one it is offered: machines that nobody has here."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from specchat.catalogue.catalogue_file import load_entries
from specchat.catalogue.fit import Fit, judge, need_of, need_of_size, recommend
from specchat.planning import machine as machines
from specchat.planning.machine import (
    Gpu,
    Machine,
    find_machine,
    gpus_among,
    gpus_path,
    keep_gpus,
)
from specchat.planning.windows import available_on_windows

GB, GIB = 10**9, 2**30


def gpu(gibibytes: float, *, is_shared: bool = False) -> Gpu:
    """Return a GPU with so much memory."""
    return Gpu("GPU", int(gibibytes * GIB), is_shared)


def machine(gigabytes: float, *gpus: Gpu) -> Machine:
    """Return a machine with so much memory free."""
    return Machine(int(gigabytes * GB), gpus)


@pytest.mark.parametrize(
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
        (machine(4), "gemma3-4b-qat"),
        (machine(3.3), "gemma3-4b-qat"),
        (machine(3), None),
        (machine(1), None),
        (Machine(None), "qwen3-1.7b"),
        (Machine(None, (gpu(8),)), "qwen3-4b"),
        (Machine(None, (gpu(64, is_shared=True),)), "qwen3-1.7b"),
        (Machine(16 * GB), "qwen3-8b"),
    ],
    ids=str,
)
def test_each_machine_is_offered_the_largest_pair_that_runs_well(
    invented: Machine, name: str | None
) -> None:
    """Whole on the GPU if that can be, else of a size that a CPU reads quickly.

    One that is not recommended is better than none, and a small one where nobody knows.
    """
    found = recommend(load_entries().values(), invented)

    assert (found and found.name) == name


@pytest.mark.parametrize(
    ("invented", "fit"),
    [
        (machine(16), "fits in memory"),
        (machine(6), "too large"),
        (machine(16, gpu(12)), "fits the GPU"),
        (machine(16, gpu(4)), "part of it on the GPU"),
        (machine(2, gpu(4)), "too large"),
        (machine(16, gpu(16, is_shared=True)), "fits the GPU"),
        (machine(6, gpu(16, is_shared=True)), "too large"),
        (Machine(16 * GB, None), "fits in memory"),
        (Machine(None, None), "not known"),
        (Machine(None, (gpu(12),)), "fits the GPU"),
    ],
    ids=str,
)
def test_how_well_a_pair_fits_is_told_in_words(invented: Machine, fit: Fit) -> None:
    """A pair of 5.7 GB needs about 8 GB with its context."""
    assert judge(need_of(load_entries()["qwen3-8b"]), invented) == fit


def test_what_nobody_knows_the_size_of_is_not_judged() -> None:
    """And what the catalogue says of the memory a pair takes goes before a guess."""
    entry = load_entries()["demo"]

    assert judge(None, machine(16)) == "not known"
    assert need_of(entry) == max(entry.memory_gb.values()) * GB
    assert need_of_size(10 * GB) == pytest.approx(12.7 * GB)


def test_gpus_are_kept_for_the_user_alone_and_nonsense_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is known before anybody asked llama.cpp; no GPU is something else."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert find_machine().gpus is None
    keep_gpus([gpu(8), gpu(4, is_shared=True)])
    assert find_machine().gpus == (gpu(8), gpu(4, is_shared=True))
    assert gpus_path().stat().st_mode & 0o077 == 0
    keep_gpus([])
    assert find_machine().gpus == ()
    for nonsense in ("{", "[7]", '[{"name": "x"}]', "[" * 99_999, '{"a": 1}', "7"):
        gpus_path().write_text(nonsense, "utf-8")
        assert find_machine().gpus is None
    gpus_path().unlink()


def test_gpus_without_memory_of_their_own_are_used_where_there_are_no_others() -> None:
    """As llama.cpp uses them; what models may take is less than all."""
    device = {"name": "CUDA0", "description": "RTX", "kind": "gpu", "memory_total": 8 * GIB}
    own = {**device, "is_shared": False}
    shared = {**device, "description": "", "kind": "integrated gpu", "is_shared": True}
    host = {**device, "kind": "cpu", "is_shared": True}

    assert gpus_among([host, shared, own]) == [Gpu("RTX", 8 * GIB)]
    assert gpus_among([host, shared]) == [Gpu("CUDA0", 8 * GIB, is_shared=True)]
    assert gpus_among([host]) == []
    assert Gpu("RTX", 8 * GIB).room == 7.5 * GIB


@pytest.mark.parametrize(("answer", "free"), [(1, 7 * GB), (0, None)])
def test_windows_says_what_is_free_in_a_structure(answer: int, free: int | None) -> None:
    """Whose own size must be in it; the function's answer is 0 where it fails."""

    def ask(status: Any) -> int:
        numbers = ctypes.cast(status, ctypes.POINTER(ctypes.c_uint64))
        assert numbers[0] & 0xFFFFFFFF == 64
        numbers[2] = 7 * GB
        return answer

    assert available_on_windows(ask) == free


def test_a_containers_limit_counts_where_it_is_lower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the group's files say is less than the machine has."""
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(machines, "MEMORY_FILE", tmp_path / "meminfo")
    monkeypatch.setattr(machines, "GROUP_FOLDER", tmp_path)
    assert find_machine().free == 8000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    assert find_machine().free == 8000 * 1024
    (tmp_path / "memory.max").write_text("5000000\n")
    (tmp_path / "memory.current").write_text("2000000\n")
    assert find_machine().free == 3_000_000
    (tmp_path / "memory.stat").write_text("anon 7\ninactive_file 1000000\n")
    assert find_machine().free == 4_000_000
    monkeypatch.setattr(machines, "MEMORY_FILE", tmp_path / "none")
    assert find_machine().free is None


def test_a_mac_says_what_is_free_in_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the program that its system brings."""
    told = "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"
    told += (
        "Pages free:    100.\nPages active:  999.\nPages inactive:  50.\nPages speculative: 5.\n"
    )
    program = tmp_path / "vm_stat"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{told}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert find_machine().free == 155 * 16384
    monkeypatch.setenv("PATH", json.dumps("nowhere"))
    assert find_machine().free is None
