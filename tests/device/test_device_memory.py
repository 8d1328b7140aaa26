"""A device's memory: rolled back, planned, and running out."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import WriteModel
from llama_log import listening
from memory_bench import bench
from specchat import Engine
from specchat.engine import Loading, loader
from specchat.llama.device_list import list_devices
from specchat.llama.library import AbortFlag
from specchat.planning.device import Device
from tiny_gguf import Shape, write_hollow

TEXT = [3 + 7 * place % 240 for place in range(80)]
DRAFT = [50, 60, 70, 80, 90]
LONG = Shape(2048, num_layers=32, width=1024, feed_forward=256, head_width=32)
"""A text's memory of 64 KiB per token."""
ARCHITECTURES = ["llama", "gemma3", "lfm2", "qwen35", "mamba", "granitehybrid"]
ALL = 99


@pytest.fixture(scope="module")
def hungry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model that wants much memory for its context."""
    return write_hollow(tmp_path_factory.mktemp("fit") / "hungry.gguf", "llama", LONG)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rolled_back_tokens_leave_no_trace_on_the_device(
    tiny: WriteModel, architecture: str
) -> None:
    """Attention, sliding window, hybrids and recurrent: as if the tokens had never been there."""
    with bench(tiny, architecture, gpu_layers=ALL) as it:
        it.memory.prefill(TEXT[:60])
        for num_kept in (5, 3, 0, 1):
            length = it.memory.length
            it.memory.mark()
            it.memory.evaluate(DRAFT, len(DRAFT))
            it.memory.rollback(length + num_kept)
            it.memory.mark()
            it.require_right()


def test_a_context_beyond_the_device_gets_a_plan_that_fits(hungry: Path, device: Device) -> None:
    """Layers stay on the CPU, and the facts say how many."""
    ctx = int(1.5 * device.free / (64 * 1024))
    with Engine.load(hungry, ctx=ctx, learn=False) as engine:
        assert engine.facts.context == ctx
        assert f"on {device.name}" in engine.facts.plan
        (notice,) = engine.facts.notices
        assert notice.startswith("memory is short: ")
        assert "of 33 layers of the target run on the CPU" in notice
        assert sum(len(chunk.tokens) for chunk in engine.generate([5, 6, 7], max_tokens=3))


def test_a_device_with_less_memory_than_it_reports_gets_the_next_plan(
    hungry: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver refuses what was planned; what is loaded instead is reported, and answers."""

    def boasting() -> list[Device]:
        return [
            replace(each, free=4 * each.total, total=4 * each.total) if each == device else each
            for each in list_devices()
        ]

    monkeypatch.setattr(loader, "list_devices", boasting)
    ctx = int(1.5 * device.total / (64 * 1024))
    with Engine.load(hungry, ctx=ctx, learn=False) as engine:
        (notice,) = engine.facts.notices
        assert notice.startswith("there was less memory than expected, so: ")
        assert sum(len(chunk.tokens) for chunk in engine.generate([5, 6, 7], max_tokens=3))


def test_a_plan_is_what_llama_cpp_allocates(hungry: Path, device: Device) -> None:
    """Weights, KV cache and work space on the device, within 10 %."""
    loading = Loading(hungry, None, ctx=4096)
    with ExitStack() as stack, listening() as log:
        pair = loader.load_pair(loading, AbortFlag(), stack, lambda *_: None)
        needs = pair.plan.needs
    buffers = re.findall(rf"{device.name} +\w+ buffer size = +([\d.]+) MiB", "".join(log))

    assert len(buffers) == 3
    assert needs[1].total == pytest.approx(2**20 * sum(map(float, buffers)), rel=0.1)
