"""Loading pairs where memory is short: as planned, as the next smaller plan, or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from specchat import Engine
from specchat.engine import loader as loading
from specchat.errors import InvalidOption, ModelWontLoad
from specchat.gguf.reader import read_header
from specchat.llama.device_list import list_devices
from specchat.planning.context_shape import ContextShape
from specchat.planning.device import Device
from specchat.planning.machine import find_machine
from specchat.planning.memory import Sizes, place
from tiny_gguf import Shape, write_hollow

MIB = 2**20
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
    """A machine without a GPU that has so many bytes free, and no more in all."""
    return [Device("CPU", "a processor", "cpu", free, 0)]


def test_what_is_planned_is_told(tiny: WriteModel) -> None:
    """Where everything fits, the facts say what is where, and nobody is bothered."""
    with Engine.load(tiny("llama"), tiny("llama"), threads=1) as engine:
        assert engine.facts.plan.startswith("all on the CPU, context 2048, ")
        assert engine.facts.notices == ()
        assert engine.facts.context == 2048


@pytest.mark.parametrize("num_processors", [1, 2, 8])
def test_processors_that_decoding_leaves_are_told(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch, num_processors: int
) -> None:
    """The screen is drawn with what the engine's threads do not hold."""
    monkeypatch.setattr("specchat.engine.loader.num_processors", lambda: num_processors)
    with Engine.load(tiny("llama"), None, threads=2) as engine:
        assert engine.facts.idle_processors == max(0, num_processors - 2)


def test_a_machine_with_little_memory_gets_a_shorter_context(
    hungry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is the engine's own; it says what was given up."""
    sizes = Sizes(read_header(hungry))
    (need,) = sizes.needs(ContextShape(4096), place(sizes.num_layers, 0, ()))
    monkeypatch.setattr(loading, "_devices", lambda: machine(need.total + 100 * MIB))

    with Engine.load(hungry, threads=1) as engine:
        assert engine.facts.context == 4096
        assert engine.facts.notices == (
            "memory is short: the context holds 4096 tokens instead of 8192",
        )
        assert engine.facts.cache_bytes == need.cache


def test_a_draft_there_is_no_memory_for_is_left_out(
    hungry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target answers alone, and the facts say why."""
    sizes = Sizes(read_header(hungry))
    (need,) = sizes.needs(ContextShape(2048), place(sizes.num_layers, 0, ()))
    monkeypatch.setattr(loading, "_devices", lambda: machine(need.total + 90 * MIB))

    with Engine.load(hungry, hungry, threads=1) as engine:
        assert engine.facts.draft is None
        assert engine.facts.draft_off_reason == "there is no memory for the draft model"
        assert "the draft model is left out" in engine.facts.notices[0]
        assert list(engine.generate([5, 6, 7], max_tokens=3, ignore_end=True))


def test_a_context_beyond_memory_is_refused_with_what_would_do(hungry: Path) -> None:
    """Linux would grant the memory and kill the process later."""
    with pytest.raises(ModelWontLoad, match=r"hungry[.]gguf does not fit: .*GiB.*--ctx"):
        Engine.load(hungry, ctx=2**26)


SHORT_OF_MEMORY = """
import resource, sys
from specchat import Engine
from specchat.planning.machine import find_machine
from specchat.errors import SpecchatError
from specchat.llama.device_list import list_devices

list_devices()
Engine.load(sys.argv[1], threads=1, ctx=256).close()  # what is loaded once is there
size = next(line for line in open("/proc/self/status") if line.startswith("VmSize"))
limit = int(size.split()[1]) * 1024 + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    with Engine.load(sys.argv[1], threads=1, **eval(sys.argv[3])) as engine:
        print(engine.facts.context)
        print(*engine.facts.notices)
        print(sum(len(chunk.tokens) for chunk in engine.generate([5], max_tokens=4)))
except SpecchatError as error:
    print(type(error).__name__, error)
"""


def run_short_of_memory(model: Path, more: int, options: str = "{}") -> list[str]:
    """Load a model in a process that is given only so many bytes more; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", SHORT_OF_MEMORY, str(model), str(more), options],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are told otherwise there")
class TestLessMemoryThanTold:
    """llama.cpp asks the system for memory, and gets none, though there seemed to be enough."""

    def test_the_next_smaller_plan_is_taken_and_told(self, hungry: Path) -> None:
        """The whole context is refused; half of it is there and decodes."""
        context, told, num_tokens = run_short_of_memory(hungry, ENOUGH_FOR_HALF)

        assert context == "4096"
        assert told.startswith(
            f"there was less memory than expected, so: all on the CPU, context {context}"
        )
        assert int(num_tokens) == 4

    def test_when_nothing_smaller_is_left_it_is_an_error_in_one_line(self, hungry: Path) -> None:
        """It names the file and what to do."""
        lines = run_short_of_memory(hungry, 16 * MIB)

        assert len(lines) == 1
        assert lines[0].startswith("OutOfMemory")
        assert "hungry.gguf" in lines[0]

    def test_a_context_the_user_named_is_not_made_shorter(self, hungry: Path) -> None:
        """It is what they asked for: the error says how to ask for less."""
        (line,) = run_short_of_memory(hungry, ENOUGH_FOR_HALF, "{'ctx': 8192}")

        assert line.startswith("OutOfMemory no context of 8192 tokens for hungry.gguf")
        assert "--ctx" in line


WRONG = [
    {"cache_type_k": "q3"}, {"split_mode": "diagonal"}, {"main_gpu": -1}, {"main_gpu": 16},
    {"tensor_split": (-1.0,)}, {"tensor_split": (0.0,)}, {"tensor_split": (1.0,) * 17},
    {"tensor_split": (float("nan"),)}, {"draft_gpu_layers": -1}, {"gpu_layers": -1},
]  # fmt: skip


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_values_out_of_range_are_refused(tiny: WriteModel, options: dict[str, Any]) -> None:
    """Before anything is loaded."""
    with pytest.raises(InvalidOption, match="must be"):
        Engine.load(tiny("llama"), **options)


def test_options_for_several_gpus_are_taken_where_there_is_none(tiny: WriteModel) -> None:
    """They reach llama.cpp, and change nothing on a CPU."""
    with Engine.load(
        tiny("llama"), threads=1, tensor_split=(3.0, 1.0), split_mode="row", main_gpu=0
    ) as engine:
        assert "CPU" in engine.facts.plan


def test_the_machines_own_memory_is_among_its_devices() -> None:
    """With what is free of it, which is less than all."""
    (cpu,) = (device for device in list_devices() if device.kind == "cpu")

    assert 0 < cpu.free <= cpu.total
    assert cpu.budget < cpu.free


def test_the_gpus_that_were_found_are_kept_for_lists(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those that are used: an integrated one only where there is no other."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    gpu = Device("CUDA0", "a graphics card", "gpu", 7 * MIB, 8 * MIB)
    integrated = Device("Vulkan0", "a part of the processor", "integrated", MIB, MIB)
    for devices, kept in (
        ([integrated, gpu], (gpu,)),
        ([integrated], (integrated,)),
        ([], ()),
    ):
        monkeypatch.setattr(loading, "_devices", lambda found=devices: [*machine(2**40), *found])
        with Engine.load(tiny("llama"), threads=1, gpu_layers=0):
            assert find_machine().gpus == kept
