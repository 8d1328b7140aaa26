"""What a pair takes on a machine, read from its files before it is loaded."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.support.tiny_gguf import Shape, write_hollow
from specchat.catalogue.catalogue_file import DEMO
from specchat.catalogue.pairs import find_pair
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.options.declarations import LoadOptions
from specchat.planning import forecast
from specchat.planning.device import Device, Machine
from specchat.planning.forecast import UNKNOWN, Forecast, foresee, free_rooms

MB = 10**6
GPU = Device("CUDA0", "A GPU", "gpu", 0, 400 * MB)


@pytest.fixture(autouse=True)
def _total(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of a known size, of which little is left to other programs."""
    monkeypatch.setattr(forecast, "total_bytes", lambda: 100 * MB)


def demo() -> tuple[Path, Path]:
    """Return the files of the demo pair."""
    pair = find_pair(DEMO)
    assert pair.draft is not None
    return pair.target, pair.draft


def found(files: tuple[Path, Path], machine: Machine, held: int = 0) -> Forecast:
    """Return the forecast for a pair with a context of 256 tokens."""
    return foresee(*files, LoadOptions(ctx=256, gpu_layers=None), machine, held)


def test_the_forecast_is_what_loading_takes() -> None:
    """The same plan is made as for loading: its context, and bytes of weights and caches."""
    expected = found(demo(), Machine(50 * MB))
    assert expected.fits
    assert expected.gpus is None
    assert expected.notice is None
    assert expected.draft is not None
    with LocalEngine(Loading(*demo(), ctx=256)) as engine:
        facts = engine.facts
    assert expected.ctx == facts.context
    known = facts.target_bytes + facts.draft_bytes + facts.cache_bytes
    assert known <= expected.host.needed < known + 20 * MB


def test_what_does_not_fit_says_what_it_would_take() -> None:
    """Of the memory that is free: also what the loaded pair holds, once that has ended."""
    needed = found(demo(), Machine(None)).host.needed
    short = found(demo(), Machine(needed // 3))
    assert not short.fits
    assert short.host.needed >= needed
    assert short.host.free < needed
    assert found(demo(), Machine(needed // 3), held=2 * needed).fits


def test_memory_of_unknown_size_is_enough() -> None:
    """No limit is made up."""
    unknown = found(demo(), Machine(None))
    assert unknown.fits
    assert unknown.host.free >= UNKNOWN


def test_layers_on_a_gpu_need_its_memory() -> None:
    """Of all that it has but for other programs' share, as the loaded pair's will be free."""
    on_gpu = found(demo(), Machine(50 * MB, (GPU,)))
    assert on_gpu.gpus is not None
    assert 0 < on_gpu.gpus.needed < on_gpu.gpus.free < GPU.total
    assert free_rooms(Machine(50 * MB, (GPU,))) == (
        on_gpu.gpus.free,
        on_gpu.gpus.free + free_rooms(Machine(50 * MB))[1],
    )


def test_memory_too_small_for_the_hosts_part_is_said_before_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, where experts beside a GPU exceed it too; nothing where it fits."""
    shape = Shape(
        32_000, num_layers=24, width=1024, feed_forward=1024, head_width=128, num_experts=64
    )
    path = write_hollow(tmp_path / "mixture.gguf", "qwen3moe", shape, quantisation="q4_0")
    gib = 2**30
    card = Device("CUDA0", "a card", "gpu", gib, gib)
    said = []
    options = LoadOptions(ctx=512, on_cpu="experts")
    for free in (16 * gib, gib // 2):
        machine = Machine(free, (card,))
        monkeypatch.setattr(forecast, "find_machine", lambda _, found=machine: found)
        said.append(forecast.warning_of_disk(path, None, options))
    ample = foresee(path, None, options, Machine(16 * gib, (card,)))
    assert ample.placement.startswith("target on the GPU but for the experts of ")
    assert said[0] is None
    assert str(said[1]).startswith("mixture.gguf needs ")
    assert str(said[1]).endswith("read from the disk for each token, which is slow")


def test_what_a_head_costs_is_said_before_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory, its device, and the context that it takes away; of a draft model, nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # nothing is known of this machine's speed
    shape = Shape(
        64_000, num_layers=24, width=1024, feed_forward=4096, head_width=128, has_head=False,
        is_head_only=False,
    )  # fmt: skip
    target = write_hollow(tmp_path / "target.gguf", "qwen35", shape, quantisation="q4_0")
    alone = replace(shape, is_head_only=True)
    head = write_hollow(tmp_path / "mtp.gguf", "qwen35", alone, quantisation="q4_0")
    options, gib = LoadOptions(), 2**30

    def cost(gib_on_gpu: float) -> str:
        size = int(gib_on_gpu * gib)
        card = Device("CUDA0", "a card", "gpu", size, size)
        machine = Machine(16 * gib, (card,) if size else ())
        return str(foresee(target, head, options, machine).head)

    assert re.fullmatch(r"takes \d+ MB of memory", cost(0))
    assert re.fullmatch(r"takes \d+ MB of memory on the GPU", cost(8))
    said = list(dict.fromkeys(cost(tenths / 20) for tenths in range(160, 0, -1)))
    assert any("the context 4096 tokens instead of 8192" in each for each in said)
    assert "is left out here: there is no memory for it beside the target" in said
    assert foresee(*demo(), options, Machine(16 * gib)).head is None
