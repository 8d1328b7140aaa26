"""Parts of blocks on the CPU beside a device, which a worker is here: the same text, less memory.

Plans of the memory are compared with what llama.cpp's log says that it allocates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from llama_log import listening
from scripts.support.tiny_gguf import Shape, write_hollow, write_with_head
from scripts.support.tiny_gguf.shapes import WITH_EXPERTS
from specchat import Engine
from specchat.engine.api import Loading
from specchat.engine.loader import load_pair
from specchat.engine.local_engine import LocalEngine
from specchat.gguf.reader import read_header
from specchat.llama.library import AbortFlag
from specchat.llama.rpc_library import find_rpc
from specchat.options.declarations import LoadOptions
from specchat.pacing.knowledge import SplitTarget
from specchat.passes.learned_cache import LearnedCache
from specchat.planning import device, token_time
from specchat.planning.device import Device, find_machine
from specchat.planning.forecast import devices_of
from specchat.planning.measured_times import planner_here, times_path
from specchat.planning.memory import Sizes
from worker_process import WorkerProcess

pytestmark = pytest.mark.skipif(
    find_rpc() is None, reason="this llama.cpp was built without its RPC backend"
)

MIB = 2**20
PROMPT = [40, 75, 111, 260, 90, 33, 201, 150]
EXACT: dict[str, Any] = {
    "ctx": 512,
    "threads": 1,
    "flash_attention": "on",
    "cache_type": "f32",
    "learn": False,
}
DENSE = ["llama", "qwen3", "gemma3", "lfm2", "qwen35", "granitehybrid", "gpt2", "starcoder"]
MIXTURES = ["qwen3moe", *sorted(WITH_EXPERTS - {"qwen3moe"})]
BUFFERS = re.compile(r"(CPU|RPC)\S* +(?:model|KV|RS|compute) buffer size = +([\d.]+) MiB")


@pytest.fixture(scope="module")
def worker() -> Iterator[str]:
    """The address of a worker, which serves one test after the other."""
    with WorkerProcess() as process:
        yield str(process.address)


def answer(engine: Engine, **options: Any) -> list[int]:
    """Decode a greedy answer and return its tokens."""
    options = {"temperature": 0.0, "max_tokens": 24, "ignore_end": True} | options
    return [token for chunk in engine.generate(PROMPT, **options) for token in chunk.tokens]


def write(architecture: str, folder: Path, tiny: WriteModel) -> Path:
    """Write a tiny model of any architecture that there is one of."""
    if architecture in WITH_EXPERTS - {"qwen3moe"}:
        path = folder / f"{architecture}.gguf"
        draft = "EAGLE-3" if architecture == "gpt-oss" else ""
        return write_with_head(path, architecture, part="trunk", draft=draft)
    return tiny(architecture)


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("architecture", [*MIXTURES, *DENSE])
def test_the_text_is_the_same_with_parts_on_the_cpu(
    architecture: str, worker: str, tiny: WriteModel, tmp_path: Path
) -> None:
    """Experts of a mixture and feed-forward weights of other models, of some blocks and of all.

    Of one block only some, too.
    """
    target = write(architecture, tmp_path, tiny)
    part = "experts" if architecture in WITH_EXPERTS else "ffn"
    with LocalEngine(Loading(target, **EXACT)) as local:
        expected = answer(local, drafter="none")
    for placement in ("none", f"{part}:0.3", f"{part}:1", f"{part}:1.7", part):
        options = EXACT | {"workers": (worker,), "on_cpu": placement}
        with LocalEngine(Loading(target, **options)) as engine:
            assert ("but for the" in engine.facts.plan) == (placement != "none")
            assert answer(engine, drafter="none") == expected


def test_a_draft_model_and_its_target_are_placed_apart(worker: str, tiny: WriteModel) -> None:
    """The target's experts and the draft are here, the rest is on the device."""
    target, draft = tiny("qwen3moe"), tiny("qwen3moe", "half right")
    with LocalEngine(Loading(target, draft, **EXACT)) as local:
        expected = answer(local, drafter="model", draft_length=3)
        accepted = local.stats.accepted
    options = EXACT | {"workers": (worker,), "on_cpu": "experts:3"}
    with LocalEngine(Loading(target, draft, **options)) as engine:
        assert engine.facts.plan.startswith(
            "target on the worker but for the experts of 3 of 4 blocks, draft on the CPU, "
        )
        assert answer(engine, drafter="model", draft_length=3) == expected
        assert engine.stats.accepted == accepted > 0


@pytest.mark.parametrize("architecture", ["qwen35moe", "glm4moe"])
def test_a_heads_experts_stay_on_the_device(architecture: str, worker: str, tmp_path: Path) -> None:
    """The target's leave it to the byte, and drafts are accepted as often as before."""
    target = write_with_head(tmp_path / "whole.gguf", architecture)
    with LocalEngine(Loading(target, **EXACT)) as local:
        expected = answer(local, drafter="head", draft_length=3)
        accepted = local.stats.accepted
    weights = []
    for placement in ("none", "experts"):
        options = EXACT | {"workers": (worker,), "on_cpu": placement}
        with listening() as log, LocalEngine(Loading(target, **options)) as engine:
            assert ", head on the worker, " in engine.facts.plan
            assert answer(engine, drafter="head", draft_length=3) == expected
            assert engine.stats.accepted == accepted > 0
            lines = "".join(log)
        weights.append(sum(map(float, re.findall(r"RPC\S* model buffer size = +([\d.]+)", lines))))
    num_layers = 4 - (architecture == "glm4moe")  # its first has none
    experts = num_layers * 3 * 4 * 64 * 64 * 4 / MIB
    assert weights[0] - weights[1] == pytest.approx(experts, abs=0.02)


def test_costs_and_exactness_are_learned_anew_for_another_placement(
    worker: str, tiny: WriteModel
) -> None:
    """What was measured with the experts on the device does not hold with them here."""
    target = tiny("qwen3moe", seed=7)

    def is_known(placement: str) -> tuple[bool, bool]:
        options = EXACT | {"workers": (worker,), "learn": True, "on_cpu": placement}
        with LocalEngine(Loading(target, **options)) as engine:
            known = engine.pacing.is_settled, engine.facts.repeatable_draft is not None
            engine.prepare()
            return known

    placements = ("none", "none", "experts:1", "experts")
    assert [is_known(placement)[1] for placement in placements] == [False, True, False, False]
    assert not is_known("experts:2")[0]


def test_short_drafts_are_explained_by_what_is_on_the_cpu(worker: str, tiny: WriteModel) -> None:
    """A pass over more tokens reads more experts there, and all else only once, as on a device."""
    target = tiny("qwen3moe")

    def split(**placement: Any) -> SplitTarget | None:
        with LocalEngine(Loading(target, **EXACT | {"workers": (worker,)} | placement)) as engine:
            return engine.pacing.knowledge.split

    assert split(on_cpu="none") is None
    assert split(workers=()) is None
    others = "and each token reads other experts"
    found = split(on_cpu="experts:3")
    assert found
    assert found.cause == f"because the experts of 3 blocks are on the CPU, {others}"
    costs, share = found.on_gpus.row(0), read_header(target).active_share
    assert 1 < costs[4] < (1 - (1 - share) ** 4) / share
    found = split(gpu_layers=3, on_cpu="experts:1")
    assert found
    parts = "2 of 5 layers of the target and the experts of 1 block"
    assert found.cause == f"because {parts} are on the CPU, {others}"


def test_a_measured_pass_shows_how_fast_the_slowest_device_is(
    worker: str, tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next plan is made with it; a pass that reads as little as here says nothing otherwise."""
    target = tiny("qwen3moe", seed=8)
    options = EXACT | {"workers": (worker,), "learn": True, "on_cpu": "experts", "threads": None}

    def measured() -> list[float]:
        with LocalEngine(Loading(target, **options)) as engine:
            assert engine.prepare()
        return [each.measured_bandwidth for each in planned(target, worker)]

    times_path().unlink(missing_ok=True)
    assert measured() == [0.0, 0.0]
    monkeypatch.setattr(token_time, "LEAST_BYTES", 1)
    monkeypatch.setattr(device, "REMOTE_HAND_OVER", 0.0)
    LearnedCache(target).path.unlink()
    of_host, of_worker = measured()
    assert 0 < of_host < 10**10
    assert of_worker == 0


def planned(target: Path, worker: str) -> tuple[Device, ...]:
    """Return the devices of the next plan."""
    options = LoadOptions(workers=(worker,))
    devices = devices_of(find_machine(options.workers))
    return planner_here(Sizes(read_header(target)), None, devices, options).devices


SHAPE = Shape(
    vocabulary=32_000,
    num_layers=6,
    width=1024,
    feed_forward=1536,
    head_width=128,
    sliding_window=512,
    num_experts=12,
    num_experts_used=6,
    state=64,
)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("architecture", ["qwen3moe", "gpt-oss", "qwen35moe", "llama"])
def test_memory_is_planned_to_two_percent(architecture: str, worker: str, tmp_path: Path) -> None:
    """On the device and here, with all weights there, and with parts of some blocks or all.

    Real models have ten times these weights; passes of 128 tokens give buffers the same share.
    """
    path = write_hollow(tmp_path / "hollow.gguf", architecture, SHAPE)
    part = "experts" if architecture in WITH_EXPERTS else "ffn"
    for placement in ("none", f"{part}:2", f"{part}:2.7", f"{part}:3.3", part):
        options = EXACT | {"ctx": 8192, "cache_type": "f16", "mmap": False, "batch": 128}
        loading = Loading(path, **options, workers=(worker,), on_cpu=placement)
        with listening() as log, ExitStack() as stack:
            pair = load_pair(loading, AbortFlag(), stack, lambda *_: None)
        rows = 4 * pair.context.shape.num_rows * SHAPE.vocabulary
        used = {"CPU": float(rows), "RPC": 0.0}
        for place, size in BUFFERS.findall("".join(log)):
            used[place] += float(size) * MIB
        host, device = pair.plan.needs
        assert host.total == pytest.approx(used["CPU"], rel=0.02), placement
        assert device.total == pytest.approx(used["RPC"], rel=0.02), placement
