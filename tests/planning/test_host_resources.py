"""Cores and free memory of machines that do not exist: containers, Macs, Windows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from specchat.planning import host_resources
from specchat.planning.host_resources import (
    SMALL_MODEL_BYTES,
    available_bytes,
    num_cores,
    num_processors,
    num_threads,
    repacks_weights,
    seconds_of_others,
)
from specchat.system import control_groups

MIB = 2**20


class FakeHost:
    """A host of `cores` cores with two processors each, whose files lie in a folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Start with 4 cores, 8000 MiB free, and no control groups."""
        self.folder, self._patch = folder, monkeypatch
        self._patch.setattr(control_groups, "CGROUPS", folder / "cgroup")
        self._patch.setattr(control_groups, "MEMBERSHIP", folder / "membership")
        self._patch.setattr(host_resources, "PROCESSORS", folder / "cpu")
        self._patch.setattr(host_resources, "FAST_PROCESSORS", folder / "cpu_core/cpus")
        memory = SimpleNamespace(available=8000 * MIB)
        self._patch.setattr(psutil, "virtual_memory", lambda: memory)
        self.system("linux")
        self.cores(4)

    def system(self, name: str) -> None:
        """Pretend to be another system."""
        self._patch.setattr(sys, "platform", name)

    def cores(self, count: int, affinity: list[int] | None = None) -> None:
        """Simulate `count` cores; `affinity` is the processors that the process may use."""
        for each in range(2 * count):
            self.put(f"cpu/cpu{each}/topology/thread_siblings_list", f"{each % count}")
        allowed = list(range(2 * count)) if affinity is None else affinity
        self._patch.setattr(psutil.Process, "cpu_affinity", lambda _: allowed, raising=False)
        self._patch.setattr(psutil, "cpu_count", lambda logical=True: count * (1 + logical))

    def put(self, name: str, text: str) -> None:
        """Write one of its files."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    """Return a host to change."""
    return FakeHost(tmp_path, monkeypatch)


def test_each_core_counts_once(host: FakeHost) -> None:
    """Hyperthreads are processors, but decoding with them is slower."""
    assert (num_cores(), num_processors()) == (4, 8)
    host.cores(4, affinity=[0, 4])
    assert (num_cores(), num_processors()) == (1, 2)
    host.cores(4, affinity=[0, 1, 2])
    assert (num_cores(), num_processors()) == (3, 3)


def test_a_small_model_leaves_a_processor_to_other_programs(host: FakeHost, tmp_path: Path) -> None:
    """Unless one is idle anyway, or it would have a single thread left."""
    model = tmp_path / "model.gguf"
    assert num_threads(model) == num_cores()  # a missing file is reported elsewhere
    for size, affinity, expected in (
        (SMALL_MODEL_BYTES - 1, [0, 1, 2, 3], 3),
        (SMALL_MODEL_BYTES - 1, [0, 1, 2, 3, 4, 5, 6, 7], 4),
        (SMALL_MODEL_BYTES - 1, [0, 1], 2),
        (SMALL_MODEL_BYTES, [0, 1, 2, 3], 4),
    ):
        with model.open("wb") as file:
            file.truncate(size)
        host.cores(4, affinity=affinity)
        assert num_threads(model) == expected


@pytest.mark.parametrize(
    ("fast", "affinity", "cores"), [("0-1,4-5", None, 2), ("0-1", [0, 2, 3], 1), ("0", [2, 3], 2)]
)
def test_of_two_kinds_of_cores_the_faster_ones_decode(
    host: FakeHost, fast: str, affinity: list[int] | None, cores: int
) -> None:
    """All wait for the slowest at every step; without a faster one, the slower ones do."""
    host.cores(4, affinity)
    host.put("cpu_core/cpus", fast)
    assert num_cores() == cores


def test_linux_without_a_topology_counts_processors(host: FakeHost) -> None:
    """Some virtual machines have none."""
    host.put("cpu/none", "")
    host.cores(4, affinity=[70, 71])
    assert (num_cores(), num_processors()) == (2, 2)


@pytest.mark.parametrize(
    ("quota", "cores", "processors"),
    [("200000", 2, 2), ("150000", 1, 2), ("50000", 1, 1), ("900000", 9, 9), ("-1", 64, 128)],
)
@pytest.mark.parametrize("version", [1, 2])
def test_the_cpu_quota_of_a_container_counts(
    host: FakeHost, version: int, quota: str, cores: int, processors: int
) -> None:
    """`docker run --cpus=2` on 64 cores decodes with 2 threads."""
    host.cores(64)
    if version == 1:
        host.put("membership", "3:cpuacct:/docker/x\n2:cpu,cpuset:/docker/x")
        host.put("cgroup/cpu/cpu.cfs_quota_us", quota)
        host.put("cgroup/cpu/cpu.cfs_period_us", "100000")
    else:
        host.put("membership", "0::/")
        host.put("cgroup/cpu.max", f"{quota if quota != '-1' else 'max'} 100000")
    assert (num_cores(), num_processors()) == (cores, processors)


def test_the_quota_of_a_group_above_counts_too(host: FakeHost) -> None:
    """As systemd sets it for a slice of services; the lowest one holds."""
    host.put("membership", "0::/user.slice/mine.service")
    host.put("cgroup/user.slice/mine.service/cpu.max", "max 100000")
    host.put("cgroup/user.slice/cpu.max", "300000 100000")
    assert num_cores() == 3
    host.put("cgroup/user.slice/mine.service/cpu.max", "100000 100000")
    assert num_cores() == 1


@pytest.mark.parametrize(("answer", "cores"), [("6", 6), ("", 8), ("unknown oid", 8)])
def test_a_mac_decodes_on_its_performance_cores(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, answer: str, cores: int
) -> None:
    """All of its cores where they are of one kind."""
    host.cores(8)
    monkeypatch.delattr(psutil.Process, "cpu_affinity")
    host.system("darwin")
    commands = []

    def answered(command: list[str], **_: object) -> SimpleNamespace:
        commands.append(command)
        return SimpleNamespace(stdout=answer)

    monkeypatch.setattr(subprocess, "run", answered)
    assert num_cores() == cores
    assert commands == [["sysctl", "-n", "hw.perflevel0.physicalcpu"]]


def test_windows_counts_physical_cores(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors are not halved: many have a single thread for each core."""
    host.system("win32")
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 6)
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda _: list(range(6)))
    assert (num_cores(), num_processors()) == (6, 6)
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda _: [0, 1])
    assert (num_cores(), num_processors()) == (2, 2)


def test_the_memory_limit_of_a_container_counts_where_it_is_lower(host: FakeHost) -> None:
    """What the group still may take; files in the cache can be dropped."""
    host.put("membership", "0::/docker/x")
    assert available_bytes() == 8000 * MIB
    host.put("cgroup/memory.current", f"{3 * MIB}")
    host.put("cgroup/memory.max", "max")
    assert available_bytes() == 8000 * MIB
    host.put("cgroup/memory.max", f"{4 * MIB}")
    assert available_bytes() == MIB
    host.put("cgroup/memory.stat", f"anon 1\ninactive_file {MIB // 2}")
    assert available_bytes() == MIB + MIB // 2
    files = f"inactive_file {MIB // 2}\nactive_file {MIB // 4}\nworkingset_restore_file 9"
    host.put("cgroup/memory.stat", files)  # a model that was loaded twice is among the active ones
    assert available_bytes() == MIB + MIB // 2 + MIB // 4
    host.put("cgroup/memory.current", f"{9 * MIB}")
    assert available_bytes() == 0


def test_version_1_of_control_groups_has_other_names(host: FakeHost) -> None:
    """A number near 2**63 stands for no limit."""
    host.put("membership", "4:memory:/docker/x")
    host.put("cgroup/memory/docker/x/memory.usage_in_bytes", f"{3 * MIB}")
    host.put("cgroup/memory/docker/x/memory.limit_in_bytes", f"{2**63 - 4096}")
    assert available_bytes() == 8000 * MIB
    host.put("cgroup/memory/docker/x/memory.limit_in_bytes", f"{5 * MIB}")
    host.put("cgroup/memory/docker/x/memory.stat", f"active_file 9\ntotal_inactive_file {MIB}")
    assert available_bytes() == 3 * MIB


def test_a_system_that_does_not_report_its_memory_is_unknown(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None, as for a machine without /proc."""

    def fail() -> None:
        raise FileNotFoundError("/proc/meminfo")

    monkeypatch.setattr(psutil, "virtual_memory", fail)
    assert available_bytes() is None


def test_what_others_used_is_what_this_process_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the processors given, which need not be all; of all, the numbers may have gaps."""
    seconds = (1.0, 20.0, 300.0)
    times = [SimpleNamespace(user=each, nice=0.5, system=0.5, idle=99.0) for each in seconds]
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: times if percpu else None)
    monkeypatch.setattr("time.process_time", lambda: 2.0)

    assert seconds_of_others([0, 2]) == 301.0
    assert seconds_of_others([1, 70]) == 19.0
    assert seconds_of_others([0, 2, 4]) == 322.0


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ("flags\t\t: fpu sse4_2 avx avx2 avx512f", True),
        ("flags\t\t: fpu sse4_2 avx", False),
        ("Features\t: fp asimd asimddp", True),
        ("Features\t: fp asimd", False),
        ("", True),  # as on a Mac
    ],
)
def test_kernels_for_repacked_weights_need_some_features(
    facts: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of x86 and of ARM; a system that lists none is taken to have them."""
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{facts}\n")
    monkeypatch.setattr(host_resources, "CPU_FACTS", tmp_path / "cpuinfo")
    assert repacks_weights() == expected
