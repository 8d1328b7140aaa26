"""How long passes are predicted to take by what they read where, and what is learned from them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.support.model_headers import MODELS, Model, write_header
from specchat.gguf.reader import read_header
from specchat.options.declarations import LoadOptions
from specchat.planning import measured_times
from specchat.planning.context_shape import ContextShape
from specchat.planning.device import Device
from specchat.planning.measured_times import keep_steps, note_pass, planner_here, times_path
from specchat.planning.memory import HOST, Sizes
from specchat.planning.placement import PARTS, BlocksOnHost, part_of
from specchat.planning.plan import Plan
from specchat.planning.plan_ranking import MeasuredStep
from specchat.planning.planner import Planner
from specchat.planning.token_time import LEAST_BYTES, Reads

GIB = 2**30
SHAPE = ContextShape(8192)
GPU = Device("CUDA0", "a card", "gpu", 8 * GIB, 8 * GIB)
RAM = Device("CPU", "a processor", "cpu", 64 * GIB, 64 * GIB)


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Sizes]:
    """Return what gives the sizes of a model that people run."""
    folder = tmp_path_factory.mktemp("headers")
    known = {model.name: model for model in MODELS}
    return lambda name: Sizes(read_header(write_header(folder, known[name])))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model.name))
def test_headers_without_weights_have_the_sizes_of_published_files(
    model: Model, tmp_path: Path
) -> None:
    """To two percent, by the rules that choose a type for each tensor; the disk is not filled."""
    path = write_header(tmp_path, model)
    assert path.stat().st_blocks * 512 < 10**6
    if model.published:
        assert path.stat().st_size / 1e9 == pytest.approx(model.published, rel=0.02)


def test_a_pass_reads_at_the_speed_of_each_device_and_hands_over() -> None:
    """10 GB at 100 GB/s, 2 GB at 50 GB/s, and 20 hand-overs of 50 us."""
    reads = Reads((2 * 10**9, 10 * 10**9), hand_overs=20)
    assert reads.seconds((50e9, 100e9), 50e-6) == pytest.approx(0.04 + 0.1 + 0.001)


def test_a_pass_shows_the_bandwidth_of_the_device_it_waits_for() -> None:
    """What is left after the other's time; nothing if that is long, or if little is read."""
    reads = Reads((10**10, 10**9), hand_overs=2)
    true = reads.seconds((80e9, 400e9), 1e-4)
    shown = reads.shown_bandwidth((50e9, 400e9), 1e-4, true)
    assert shown == (HOST, pytest.approx(80e9))  # type: ignore[comparison-overlap]
    assert reads.shown_bandwidth((50e9, 400e9), 1e-4, 0.004) is None
    assert Reads((LEAST_BYTES - 1, 0)).shown_bandwidth((50e9, 400e9), 0.0, 1.0) is None
    assert Reads().shown_bandwidth((), 0.0, 1.0) is None


def test_a_token_reads_its_experts_and_everything_else_but_the_embeddings(
    header: Callable[[str], Sizes],
) -> None:
    """Of 128 experts 8, of several tokens their union, and the text as far as it goes."""
    sizes = header("Qwen3 30B-A3B")
    whole = (1,) * (sizes.num_layers + 1)
    experts = sum(size for (_, part, _), size in sizes._sizes.items() if part == "experts")
    embeddings = sizes.header.tensors["token_embd.weight"].num_bytes
    rest = sizes.header.num_bytes - experts - embeddings

    def read(depth: int = 0, num_tokens: int = 1) -> int:
        reads = sizes.reads(SHAPE, whole, depth=depth, num_tokens=num_tokens)
        return reads.num_bytes[1]

    assert read() == pytest.approx(rest + experts / 16, rel=1e-6)
    assert read(num_tokens=4) == pytest.approx(rest + experts * (1 - (15 / 16) ** 4), rel=1e-6)
    per_token = 48 * 2 * 4 * 128 * 2
    assert read(depth=4096) - read() == 4096 * per_token
    assert sizes.reads(SHAPE, whole).num_bytes[HOST] == 0


def test_tied_embeddings_are_read_as_the_output(header: Callable[[str], Sizes]) -> None:
    """On the output's device."""
    sizes = header("Gemma 4 31B")
    whole = (1,) * (sizes.num_layers + 1)
    assert sizes.reads(SHAPE, whole).num_bytes == (0, sizes.header.num_bytes)


@pytest.mark.parametrize(("kept", "hand_overs"), [(0, 1), (1, 3), (10, 21)])
def test_each_block_with_a_part_elsewhere_costs_two_hand_overs(
    header: Callable[[str], Sizes], kept: int, hand_overs: int
) -> None:
    """Beside the one from the host's embeddings; its bytes are read there."""
    sizes = header("Qwen3 30B-A3B")
    whole = (1,) * (sizes.num_layers + 1)
    blocks = BlocksOnHost("experts", tuple(range(kept)))
    reads = sizes.reads(SHAPE, whole, blocks)
    assert reads.hand_overs == hand_overs
    assert sum(reads.num_bytes) == sum(sizes.reads(SHAPE, whole).num_bytes)
    assert bool(reads.num_bytes[HOST]) == bool(kept)


def test_a_block_that_is_split_costs_no_more_hand_overs(header: Callable[[str], Sizes]) -> None:
    """A third of it is the matrices that end a block, two thirds are those that begin it."""
    sizes = header("Qwen3 30B-A3B")
    whole = (1,) * (sizes.num_layers + 1)
    reads = [sizes.reads(SHAPE, whole, BlocksOnHost("experts", (5, 4), n)) for n in range(3)]
    assert {each.hand_overs for each in reads} == {5}
    of_block = reads[0].num_bytes[HOST] / 2
    tensors = sizes.header.tensors
    up, gate, down = (
        tensors[f"blk.4.ffn_{name}_exps.weight"].num_bytes for name in ("up", "gate", "down")
    )
    on_host = [(each.num_bytes[HOST] - of_block) / of_block for each in reads]
    of_all = up + gate + down
    assert on_host == pytest.approx([1, (up + gate) / of_all, down / of_all], rel=1e-3)


@pytest.mark.parametrize("num_spared", [0, 1, 2])
def test_llama_cpp_and_plans_keep_the_same_weights_on_the_host(num_spared: int) -> None:
    """Fused gates and biases, too; routers and shared experts stay where they are."""
    own = ("gate", "up", "down", "gate_up")
    kinds = ("_exps.weight", "_exps.bias", "_chexps.weight", ".weight", "_shexp.weight")
    names = [f"ffn_{matrix}{kind}" for matrix in own for kind in kinds] + ["ffn_gate_inp.weight"]
    for part in PARTS:
        kept = BlocksOnHost(part, (14, 4), num_spared)
        found = [
            [name for name in names if re.search(kept.pattern, f"blk.{block}.{name}")]
            for block in (14, 4, 1)
        ]
        planned = [
            [name for name in names if kept.has(block, *part_of(name))] for block in (14, 4, 1)
        ]
        assert found == planned
        assert len(found[0]) == (12 if part == "experts" else 3)
        num_left = {0: 12, 1: 9, 2: 3} if part == "experts" else {0: 3, 1: 2, 2: 1}
        assert (len(found[1]), len(found[2])) == (num_left[num_spared], 0)


def chosen(sizes: Sizes, *devices: Device) -> str:
    """Return the way of the plan that is chosen, without the context."""
    made = Planner(sizes, None, devices, LoadOptions()).first()
    return made.way.partition(",")[0]


def test_a_gpu_that_is_hardly_faster_gets_layers(header: Callable[[str], Sizes]) -> None:
    """There the hand-overs of experts on the CPU take longer than what they save."""
    sizes = header("Qwen3 30B-A3B")
    assert chosen(sizes, GPU, RAM) == "experts"
    weak = replace(GPU, measured_bandwidth=60e9)
    assert chosen(sizes, weak, RAM) == "layers"
    assert chosen(sizes, weak, replace(RAM, measured_bandwidth=10e9)) == "experts"


def test_the_chosen_plan_is_the_quickest_that_fits(header: Callable[[str], Sizes]) -> None:
    """Of those that give nothing up; and a smaller one is taken only where it gains half."""
    for name in ("Qwen3 32B", "gpt-oss 20B", "Mistral Small 3.2 24B"):
        for size in range(4, 26):
            card = replace(GPU, free=size * GIB, total=size * GIB)
            planner = Planner(header(name), None, [card, RAM], LoadOptions())
            made = planner.first()
            full = [plan for plan in planner.near(math.inf) if plan.ctx == 8192]
            full = [plan for plan in full if plan.cache_type == "f16"]
            if not full:
                assert made.is_on_gpus or not made.gpu_layers
                continue
            least = min(map(planner.step_seconds, full))
            if made.ctx == 8192 and made.cache_type == "f16":
                assert planner.step_seconds(made) == least
            else:
                assert least > 1.5 * planner.step_seconds(made)


def test_a_slow_gpu_is_learned_from_a_pass_and_kept(header: Callable[[str], Sizes]) -> None:
    """The next plan knows it; a file of nonsense counts as nothing learned."""
    sizes = header("Qwen3 30B-A3B")
    planner = planner_here(sizes, None, [GPU, RAM], LoadOptions())
    assert planner.first().way.startswith("experts, ")
    reads = Reads((0, 10**10))
    note_pass(reads, planner.devices, reads.seconds((50e9, 60e9), 50e-6))

    again = planner_here(sizes, None, [GPU, RAM], LoadOptions())
    assert [device.bandwidth for device in again.devices] == [50e9, 60e9]
    assert again.first().way.startswith("layers, ")
    assert times_path().stat().st_mode & 0o077 == 0
    for nonsense in ('{"bandwidths": {"a card": -1.0}}', '{"bandwidths": 3}', "[", '{"a": 1}'):
        times_path().write_text(nonsense, "utf-8")
        devices = planner_here(sizes, None, [GPU, RAM], LoadOptions()).devices
        assert [device.bandwidth for device in devices] == [50e9, 400e9]


def test_a_measured_way_is_taken_from_then_on(
    header: Callable[[str], Sizes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For these files on these GPUs alone, and only while it fits; the oldest is forgotten."""
    monkeypatch.setattr(measured_times, "MOST_PAIRS", 2)
    sizes, options = header("Qwen3 30B-A3B"), LoadOptions()
    planner = planner_here(sizes, None, [GPU, RAM], options)
    plans = {plan.way.partition(",")[0]: plan for plan in planner.near(1.3)}
    assert planner.first().way == plans["experts"].way
    steps = {
        plan.way: MeasuredStep(seconds, planner.step_reads(plan))
        for plan, seconds in ((plans["experts"], 0.03), (plans["layers"], 0.02))
    }
    keep_steps(sizes, None, planner.gpus, steps)

    measured = planner_here(sizes, None, [GPU, RAM], options).first()
    assert measured.way == plans["layers"].way
    other = replace(GPU, description="another card")
    assert planner_here(sizes, None, [other, RAM], options).first().way == plans["experts"].way
    large = replace(GPU, free=48 * GIB, total=48 * GIB)
    assert planner_here(sizes, None, [large, RAM], options).first().is_on_gpus
    for number in range(2):
        keep_steps(sizes, None, [replace(GPU, description=f"card {number}")], {})
    assert planner_here(sizes, None, [GPU, RAM], options).first().way == plans["experts"].way


def test_measured_and_predicted_times_are_on_one_scale(header: Callable[[str], Sizes]) -> None:
    """A machine half as fast as predicted is so for ways that were never timed, too."""
    sizes = header("Qwen3 30B-A3B")
    planner = planner_here(sizes, None, [GPU, RAM], LoadOptions())
    layers, experts = (
        next(plan for plan in planner.near(math.inf) if plan.way.startswith(part))
        for part in ("layers", "experts")
    )
    gain = planner.step_seconds(layers) / planner.step_seconds(experts)
    assert gain > 1.1

    def way_after(plan: Plan, factor: float, device: Device = GPU) -> str:
        seconds = factor * planner.step_seconds(plan)
        keep_steps(sizes, None, planner.gpus, {plan.way: MeasuredStep(seconds, reads[plan.way])})
        return planner_here(sizes, None, [device, RAM], LoadOptions()).first().way

    reads = {plan.way: planner.step_reads(plan) for plan in (layers, experts)}
    assert way_after(layers, 2.0) == way_after(experts, 2.0) == experts.way
    larger = replace(GPU, free=16 * GIB, total=16 * GIB)
    assert way_after(layers, 2.0, larger) == experts.way  # where fewer of either are elsewhere
    # the host turns out to be slow, which is known by then and explains what was measured
    slow = replace(RAM, measured_bandwidth=5e9)
    other = Planner(sizes, None, [GPU, slow], LoadOptions(), {
        layers.way: MeasuredStep(reads[layers.way].seconds((5e9, 400e9), 50e-6), reads[layers.way])
    }).first()  # fmt: skip
    assert other.way == experts.way


def test_what_was_timed_before_an_interruption_is_kept_beside_the_rest(
    header: Callable[[str], Sizes],
) -> None:
    """Only a complete run forgets what was known of other ways."""
    sizes = header("Qwen3 30B-A3B")
    planner = planner_here(sizes, None, [GPU, RAM], LoadOptions())
    plans = {plan.way.partition(",")[0]: plan for plan in planner.near(math.inf)}
    steps = {
        name: {plan.way: MeasuredStep(0.02, planner.step_reads(plan))}
        for name, plan in plans.items()
    }

    def known() -> set[str]:
        content = json.loads(times_path().read_text("utf-8"))
        (of_pair,) = content["placements"].values()
        return set(of_pair)

    keep_steps(sizes, None, planner.gpus, steps["layers"])
    keep_steps(sizes, None, planner.gpus, steps["experts"], is_complete=False)
    assert known() == {plans["layers"].way, plans["experts"].way}
    keep_steps(sizes, None, planner.gpus, steps["experts"])
    assert known() == {plans["experts"].way}


@pytest.mark.parametrize(
    "step",
    [
        {"seconds": 0.0, "reads": {"num_bytes": [1, 1], "hand_overs": 0}},
        {"seconds": 1.0, "reads": {"num_bytes": [1], "hand_overs": 0}},
        {"seconds": 1.0, "reads": {"num_bytes": [], "hand_overs": 0}},
        {"seconds": 1.0, "reads": {"num_bytes": [0, 0], "hand_overs": 0}},
        {"seconds": 1.0, "reads": {"num_bytes": [-1, 2], "hand_overs": 0}},
        {"seconds": 1.0, "reads": {"num_bytes": [1, 2], "hand_overs": -1}},
        0.02,
    ],
    ids=str,
)
def test_a_step_that_cannot_be_counts_as_not_measured(
    header: Callable[[str], Sizes], step: object
) -> None:
    """The file may be damaged, or of another version."""
    sizes = header("Qwen3 30B-A3B")
    planner = planner_here(sizes, None, [GPU, RAM], LoadOptions())
    expected = planner.first()
    ways = [plan.way for plan in planner.near(math.inf)]
    keep_steps(sizes, None, planner.gpus, {})
    content = json.loads(times_path().read_text("utf-8"))
    (key,) = content["placements"]
    damaged = content | {"placements": {key: dict.fromkeys(ways[1:], step)}}
    times_path().write_text(json.dumps(damaged), "utf-8")
    assert planner_here(sizes, None, [GPU, RAM], LoadOptions()).first() == expected


def test_bandwidths_outlive_what_an_earlier_version_kept_beside_them(
    header: Callable[[str], Sizes],
) -> None:
    """It had other steps, under another name."""
    note_pass(Reads((0, 2**30)), [GPU, RAM], 0.1)
    content = json.loads(times_path().read_text("utf-8"))
    assert content["bandwidths"]
    older = {"bandwidths": content["bandwidths"], "steps": {"a.gguf 9": {"layers": 0.02}}}
    times_path().write_text(json.dumps(older), "utf-8")
    sizes = header("Qwen3 30B-A3B")
    keep_steps(sizes, None, planner_here(sizes, None, [GPU, RAM], LoadOptions()).gpus, {})
    assert json.loads(times_path().read_text("utf-8"))["bandwidths"] == content["bandwidths"]


def test_near_plans_are_of_different_ways(header: Callable[[str], Sizes]) -> None:
    """Those that `tune` measures: within a share of the best, each way once."""
    sizes = header("Qwen3 30B-A3B")
    planner = Planner(sizes, None, [GPU, RAM], LoadOptions())
    near, more = planner.near(1.3), planner.near(math.inf)
    assert near[0] == planner.first() == more[0]
    assert 2 <= len(near) < len(more)
    assert len({plan.way for plan in more}) == len(more)
    assert len(Planner(sizes, None, [RAM], LoadOptions()).near(1.3)) == 1
