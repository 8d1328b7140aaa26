"""Loading pairs when memory is short: as planned, by the next smaller plan, or not at all."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import Shape, write_hollow, write_with_head
from specchat import Engine
from specchat.engine import loader as loading
from specchat.errors import InvalidOption, ModelWontLoad
from specchat.gguf.reader import read_header
from specchat.llama.device_list import list_devices
from specchat.planning.context_shape import ContextShape
from specchat.planning.device import Device, find_machine
from specchat.planning.memory import Sizes, devices_of_layers
from specchat.planning.planner import Planner
from tables import table

MIB = 2**20
QUICK: dict[str, Any] = {"threads": 1, "exact": "off"}
"""Comparing passes takes as long as loading."""
LONG = Shape(2048, num_layers=32, width=1024, feed_forward=256, head_width=32)
"""A text's memory of 64 KiB per token: 512 MiB for 8192 of them, over weights of 260 MB."""
ENOUGH_FOR_HALF = 740 * MIB
"""A context of 8192 tokens takes about 900 MiB with the weights, one of 4096 about 580."""


@pytest.fixture(scope="module")
def hungry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model that wants much memory for its context."""
    path = tmp_path_factory.mktemp("fit") / "hungry.gguf"
    return write_hollow(path, "llama", LONG)


def machine(free: int) -> list[Device]:
    """Return a machine without a GPU that has this many bytes, all free."""
    return [Device("CPU", "a processor", "cpu", free, 0)]


def test_the_facts_describe_the_plan(tiny: WriteModel) -> None:
    """If everything fits there are no notices."""
    with Engine.load(tiny("llama"), tiny("llama"), threads=1) as engine:
        assert engine.facts.plan.startswith("all on the CPU, context 2048, ")
        assert engine.facts.draft_file_bytes == tiny("llama").stat().st_size
        assert engine.facts.target_file_bytes == tiny("llama").stat().st_size
        assert engine.facts.notices == ()
        assert engine.facts.context == 2048


@pytest.mark.parametrize("num_processors", [1, 2, 8])
def test_the_facts_count_idle_processors(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch, num_processors: int
) -> None:
    """The screen is drawn with the processors that decoding leaves idle."""
    monkeypatch.setattr("specchat.engine.loaded_pair.num_processors", lambda: num_processors)
    with Engine.load(tiny("llama"), None, threads=2) as engine:
        assert engine.facts.idle_processors == max(0, num_processors - 2)


def test_a_machine_with_little_memory_gets_a_shorter_context(
    hungry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notice says what was given up."""
    sizes = Sizes(read_header(hungry))
    (need,) = sizes.needs(ContextShape(4096), devices_of_layers(sizes.num_layers, 0, ()))
    monkeypatch.setattr(loading, "list_devices", lambda: machine(need.total + 100 * MIB))

    with Engine.load(hungry, **QUICK) as engine:
        assert engine.facts.context == 4096
        assert engine.facts.notices == (
            "memory is short: the context holds 4096 tokens instead of 8192",
        )
        assert engine.facts.cache_bytes == need.cache


def test_a_draft_model_that_does_not_fit_is_left_out(
    hungry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target answers alone, and the facts say why."""
    sizes = Sizes(read_header(hungry))
    (need,) = sizes.needs(ContextShape(2048), devices_of_layers(sizes.num_layers, 0, ()))
    monkeypatch.setattr(loading, "list_devices", lambda: machine(need.total + 90 * MIB))

    with Engine.load(hungry, hungry, **QUICK) as engine:
        assert engine.facts.draft is None
        assert engine.facts.draft_off_reason == "not enough memory for the draft model"
        assert "the draft model is not used" in engine.facts.notices[0]
        assert list(engine.generate([5, 6, 7], max_tokens=3, ignore_end=True))


def test_a_head_without_memory_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names the head, though the user named no file of one."""
    first = Planner.first
    monkeypatch.setattr(Planner, "first", lambda self: replace(first(self), draft_gpu_layers=None))
    with Engine.load(write_with_head(tmp_path / "qwen35.gguf"), **QUICK) as engine:
        assert engine.facts.draft_off_reason == "not enough memory for the prediction head"
        assert engine.facts.draft_kind == "head"


def test_a_plan_with_fewer_states_has_shorter_drafts(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejected ones are rolled back, and the text is the same."""
    path = tiny("qwen35")
    asked: dict[str, Any] = {"draft_length": 8, "ignore_end": True, "max_tokens": 12}
    texts, caches = list[list[int]](), list[int]()
    first = Planner.first
    for length in (64, 3):
        shorter = partial(replace, rollback_length=length)
        monkeypatch.setattr(Planner, "first", lambda self, shorter=shorter: shorter(first(self)))
        with Engine.load(path, tiny("qwen35", "wrong"), **QUICK) as engine:
            assert engine.facts.longest_draft == min(8, length)
            chunks = engine.generate([5, 6, 7], temperature=0, **asked)
            texts.append([token for chunk in chunks for token in chunk.tokens])
            caches.append(engine.facts.cache_bytes)

    assert texts[0] == texts[1]
    assert caches[1] < caches[0]


def test_a_context_beyond_memory_is_refused_with_advice(hungry: Path) -> None:
    """Linux would grant the memory and kill the process later."""
    with pytest.raises(ModelWontLoad, match=r"hungry[.]gguf does not fit: .*GiB.*--ctx"):
        Engine.load(hungry, ctx=2**26)


SHORT_OF_MEMORY = """
import resource, sys
from specchat import Engine
from specchat.planning.device import find_machine
from specchat.errors import SpecchatError
from specchat.llama.device_list import list_devices

list_devices()
Engine.load(sys.argv[1], threads=1, ctx=256, exact="off").close()  # what is loaded once is there
size = next(line for line in open("/proc/self/status") if line.startswith("VmSize"))
limit = int(size.split()[1]) * 1024 + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    with Engine.load(sys.argv[1], threads=1, exact="off", **eval(sys.argv[3])) as engine:
        print(engine.facts.context)
        print(*engine.facts.notices)
        print(sum(len(chunk.tokens) for chunk in engine.generate([5], max_tokens=4)))
except SpecchatError as error:
    print(type(error).__name__, error)
"""


def run_short_of_memory(model: Path, more: int, options: str = "{}") -> list[str]:
    """Load a model in a process with this many more bytes of memory; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", SHORT_OF_MEMORY, str(model), str(more), options],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and RLIMIT_AS")
class TestLessMemoryThanReported:
    """llama.cpp gets no memory from the system although there seemed to be enough."""

    def test_the_next_smaller_plan_is_used_with_a_notice(self, hungry: Path) -> None:
        """The whole context is refused; half of it is allocated and decodes."""
        context, notice, num_tokens = run_short_of_memory(hungry, ENOUGH_FOR_HALF)

        assert context == "4096"
        assert notice.startswith(
            f"less memory was free than reported, so the plan is: all on the CPU, context {context}"
        )
        assert int(num_tokens) == 4

    def test_without_a_smaller_plan_loading_fails_with_one_line(self, hungry: Path) -> None:
        """The line names the file and what to do."""
        lines = run_short_of_memory(hungry, 16 * MIB)

        assert len(lines) == 1
        assert lines[0].startswith("OutOfMemory")
        assert "hungry.gguf" in lines[0]

    def test_a_context_size_the_user_chose_is_kept(self, hungry: Path) -> None:
        """The error says how to choose a smaller one."""
        (line,) = run_short_of_memory(hungry, ENOUGH_FOR_HALF, "{'ctx': 8192}")

        assert line.startswith("OutOfMemory no context of 8192 tokens for hungry.gguf")
        assert "--ctx" in line


WRONG = [
    {"cache_type": "q3"},
    {"tensor_split": (-1.0,)}, {"tensor_split": (0.0,)}, {"tensor_split": (1.0,) * 17},
    {"tensor_split": (float("nan"),)}, {"draft_gpu_layers": -1}, {"gpu_layers": -1},
]  # fmt: skip


@table("options", WRONG, ids=str)
def test_values_out_of_range_are_refused(tiny: WriteModel, options: dict[str, Any]) -> None:
    """Before anything is loaded."""
    with pytest.raises(InvalidOption, match="must be"):
        Engine.load(tiny("llama"), **options)


def test_options_for_several_gpus_are_accepted_without_a_gpu(tiny: WriteModel) -> None:
    """The options reach llama.cpp, and change nothing on a CPU."""
    with Engine.load(tiny("llama"), threads=1, tensor_split=(3.0, 1.0)) as engine:
        assert "CPU" in engine.facts.plan


def test_the_machines_own_memory_is_among_its_devices() -> None:
    """The host is listed with its free memory, which is less than its total."""
    (cpu,) = (device for device in list_devices() if device.kind == "cpu")

    assert 0 < cpu.free <= cpu.total
    assert cpu.budget < cpu.free


def test_the_gpus_that_were_found_are_kept_for_lists(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only those that are used: an integrated one only if there is no other."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    gpu = Device("CUDA0", "a graphics card", "gpu", 7 * MIB, 8 * MIB)
    integrated = Device("Vulkan0", "a part of the processor", "integrated", MIB, MIB)
    for devices, kept in (
        ([integrated, gpu], (gpu,)),
        ([integrated], (integrated,)),
        ([], ()),
    ):
        monkeypatch.setattr(
            loading, "list_devices", lambda found=devices: [*machine(2**40), *found]
        )
        with Engine.load(tiny("llama"), threads=1, gpu_layers=0):
            assert find_machine().gpus == tuple(replace(each, free=0) for each in kept)
