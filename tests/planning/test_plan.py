"""What is planned for a pair on invented machines: it fits, and the right things give way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.support.tiny_gguf import Shape, write_hollow, write_projector
from scripts.support.tiny_gguf.shapes import ASSISTANT
from specchat.errors import ModelWontLoad
from specchat.gguf.draft_kinds import KINDS, kind_of_file, own_head
from specchat.gguf.reader import read_header
from specchat.options.declarations import LoadOptions
from specchat.planning.device import Device
from specchat.planning.memory import HOST, Sizes
from specchat.planning.placement import OnHost
from specchat.planning.plan import Plan
from specchat.planning.planner import PROJECTOR_WORK, Planner, why_chains

GIB = 2**30
WHOLE_TARGET, WHOLE_DRAFT = 37, 29


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sizes, Sizes]:
    """Return a target of 4.6 GiB and a draft of 0.5 GiB, of the shapes of Qwen3 8B and 0.6B."""
    folder = tmp_path_factory.mktemp("plans")
    large = Shape(151_936, num_layers=36, width=4096, feed_forward=12_288, head_width=128)
    small = Shape(151_936, num_layers=28, width=1024, feed_forward=3072, head_width=64)
    target = write_hollow(folder / "target.gguf", "qwen3", large, quantisation="q4_0")
    draft = write_hollow(folder / "draft.gguf", "qwen3", small, quantisation="q8_0")
    return Sizes(read_header(target)), Sizes(read_header(draft))


def gpu(free: float, *, number: int = 0, total: float | None = None) -> Device:
    """A GPU with this many GiB free."""
    size = int((total or free) * GIB)
    return Device(f"CUDA{number}", "a card", "gpu", int(free * GIB), size)


def host(free: float) -> Device:
    """A host with this many GiB free."""
    return Device("CPU", "a processor", "cpu", int(free * GIB), int(free * GIB))


def metal(free: float) -> Device:
    """An integrated GPU."""
    return Device("MTL0", "a chip", "integrated", int(free * GIB), int(free * GIB))


def hard_need(made: Plan) -> int:
    """What the host must give: weights that are only mapped can leave its memory again."""
    need = made.needs[HOST]
    return need.total if made.is_repacked else need.total - need.weights


def plan(pair: tuple[Sizes, Sizes | None], *devices: Device, **constraints: Any) -> Plan:
    """The first plan for a pair."""
    return Planner(*pair, devices, LoadOptions(**constraints)).first()


def test_a_large_gpu_holds_everything(pair: tuple[Sizes, Sizes]) -> None:
    """Nothing is given up, and there is no notice."""
    made = plan(pair, gpu(24), host(32))

    assert (made.gpu_layers, made.draft_gpu_layers) == (WHOLE_TARGET, WHOLE_DRAFT)
    assert (made.ctx, made.cache_type) == (8192, "f16")
    assert made.notice is None
    assert made.summary.startswith("target on the GPU, draft on the GPU, context 8192, ")
    assert made.is_repacked
    assert made.is_on_gpus


def test_with_less_memory_what_costs_least_gives_way(pair: tuple[Sizes, Sizes]) -> None:
    """The context where that keeps all on the GPU; where most is slow anyhow, it stays long."""
    seen: list[str] = []
    for free in (24, 11, 10.5, 10, 9.5, 9, 8.5, 8, 7.5, 7, 6, 5, 4, 3):
        made = plan(pair, gpu(free), host(32))
        place = "layers" if made.gpu_layers < WHOLE_TARGET else "all"
        seen.append(f"{place} {made.ctx} {made.cache_type}")
        assert made.needs[1].total <= gpu(free).budget

    assert seen[0] == "all 8192 f16"
    assert seen[-1] == "layers 8192 f16"
    assert "all 4096 f16" in seen


def test_a_hybrid_keeps_fewer_states_for_drafts_before_anything_else_gives_way(
    tmp_path: Path,
) -> None:
    """The notice says how long drafts are then; one that keeps none for drafts has none to give."""
    shape = Shape(151_936, num_layers=32, width=2048, feed_forward=6144, head_width=64, state=128)
    seen: dict[str, list[str]] = {}
    for kind in ("qwen35", "granitehybrid"):
        path = write_hollow(tmp_path / f"{kind}.gguf", kind, shape, quantisation="q4_0")
        whole = Sizes(read_header(path))
        made = [
            Planner(whole, None, [gpu(tenths / 20), host(32)], LoadOptions())
            for tenths in range(160, 4, -1)
        ]
        plans = [planner.first() for planner in made]
        seen[kind] = [
            f"{plan.ctx} {planner.models(plan)[0][1].rollback_length}"
            for planner, plan in zip(made, plans, strict=True)
            if plan.gpu_layers == 33 and plan.cache_type == "f16"
        ]
        shortened = [
            plan for plan in plans if "drafts have at most 3 tokens" in (plan.notice or "")
        ]
        assert bool(shortened) == (kind == "qwen35")

    assert list(dict.fromkeys(seen["qwen35"])) == ["8192 64", "8192 3", "4096 3"]
    assert list(dict.fromkeys(seen["granitehybrid"])) == ["8192 64", "4096 64"]


def test_layers_on_the_cpu_are_reported_with_their_number(pair: tuple[Sizes, Sizes]) -> None:
    """The GPU holds as many layers as fit: one more would not."""
    made = plan(pair, gpu(5), host(32))

    assert 5 < made.gpu_layers < WHOLE_TARGET
    assert made.ctx == 8192
    assert f"{WHOLE_TARGET - made.gpu_layers} of 37 layers of the target run on the" in (
        made.notice or ""
    )
    assert f"{made.gpu_layers} of 37 layers of the target on the GPU" in made.summary
    assert not made.is_on_gpus
    more = plan(pair, gpu(5), host(32), gpu_layers=made.gpu_layers + 1, draft_gpu_layers=29)
    assert more.needs[1].total > gpu(5).budget or more.ctx < made.ctx


def test_a_gpu_too_small_for_the_draft_takes_layers_of_the_target(
    pair: tuple[Sizes, Sizes],
) -> None:
    """A GPU that is too small for any layer is not used."""
    some = plan(pair, gpu(1.4), host(32))
    none = plan(pair, gpu(0.2), host(32))

    assert some.gpu_layers > 0
    assert some.draft_gpu_layers == 0
    assert (none.gpu_layers, none.draft_gpu_layers) == (0, 0)
    assert none.needs[1].total == 0


@pytest.mark.parametrize(("num_used", "is_first"), [(1, False), (32, True)])
def test_a_draft_whose_tokens_read_little_of_it_goes_behind(
    pair: tuple[Sizes, Sizes], tmp_path: Path, num_used: int, is_first: bool
) -> None:
    """Of 64 experts one a token: three tokens read less of it than a pass of the target's bytes."""
    small = Shape(
        151_936, num_layers=28, width=1024, feed_forward=1024, head_width=64,
        num_experts=64, num_experts_used=num_used,
    )  # fmt: skip
    draft = write_hollow(tmp_path / "mixture.gguf", "qwen3moe", small, quantisation="q8_0")
    target = pair[0]
    short = plan((target, Sizes(read_header(draft))), gpu(5), host(32))
    ample = plan((target, Sizes(read_header(draft))), gpu(24), host(32))

    assert (short.draft_gpu_layers == WHOLE_DRAFT) == is_first
    assert ample.draft_gpu_layers == WHOLE_DRAFT
    assert (ample.is_on_gpus, short.is_on_gpus) == (True, False)
    if not is_first:
        assert short.gpu_layers > plan(pair, gpu(5), host(32)).gpu_layers


def test_two_gpus_share_by_their_memory_or_by_option(pair: tuple[Sizes, Sizes]) -> None:
    """Each within its own, or by shares of the user's."""
    devices = (gpu(8), gpu(5, number=1), host(32))
    shared = plan(pair, *devices)
    message = plan(pair, *devices, tensor_split=(1.0, 1.0), ctx=2048)

    assert shared.gpu_layers == message.gpu_layers == WHOLE_TARGET
    assert shared.shares == (8.0 * GIB, 5.0 * GIB)
    assert shared.needs[1].weights > shared.needs[2].weights > 0
    assert message.shares == (1.0, 1.0)


def test_memory_that_is_shared_is_counted_once(pair: tuple[Sizes, Sizes]) -> None:
    """What an integrated GPU takes is gone for the host."""
    made = plan(pair, metal(12), host(16))

    assert made.gpu_layers == WHOLE_TARGET
    assert sum(need.total for need in made.needs) <= host(16).budget
    tight = plan(pair, metal(12), host(7))
    assert sum(need.total for need in tight.needs) <= host(7).budget


def test_an_integrated_gpu_beside_another_is_not_used(pair: tuple[Sizes, Sizes]) -> None:
    """llama.cpp chooses in the same way."""
    assert len(plan(pair, metal(12), gpu(24), host(16)).needs) == 2


def test_without_a_gpu_the_context_and_then_the_draft_give_way(
    pair: tuple[Sizes, Sizes],
) -> None:
    """Weights larger than the memory there is stay in the file, at last."""
    plans = [plan(pair, host(free)) for free in (16, 9, 7.8, 6.3, 5.9, 4)]

    assert [made.gpu_layers for made in plans] == [0] * 6
    assert not any(made.is_on_gpus for made in plans)
    assert plans[0].notice is None
    contexts = [made.ctx for made in plans]
    assert contexts[:3] == [8192, 8192, 4096]
    assert "tokens instead of 8192" in (plans[2].notice or "")
    assert [made.draft_gpu_layers for made in plans[:3]] == [0, 0, 0]
    assert not plans[-1].is_repacked
    assert "from the disk repeatedly" in (plans[-1].notice or "")


def test_a_draft_is_left_out_before_the_weights_are_left_in_the_file(
    pair: tuple[Sizes, Sizes],
) -> None:
    """The plan has a notice about it."""
    made = plan(pair, host(5.9))

    assert made.draft_gpu_layers is None
    assert made.is_repacked
    assert "the draft model is not used" in (made.notice or "")


def test_a_projector_takes_what_the_model_leaves(pair: tuple[Sizes, Sizes], tmp_path: Path) -> None:
    """Who only writes loses no layer and no context to it; where a GPU is full, it is elsewhere."""
    projector = write_projector(tmp_path / "mmproj.gguf", "mlp")
    work = PROJECTOR_WORK / GIB
    on_gpu, on_host = (plan(pair, gpu(24), host(32)).needs[number].total / GIB for number in (1, 0))

    def made(*devices: Device, **constraints: Any) -> tuple[Plan, bool]:
        options = LoadOptions(projector=projector, **constraints)
        planner = Planner(*pair, devices, options)
        found = planner.first()
        assert replace(found, needs=()) == replace(plan(pair, *devices, **constraints), needs=())
        return found, planner.has_room_for_projector(found)

    large = next(size / 4 for size in range(99) if gpu(size / 4).budget / GIB > on_gpu + 2 * work)
    small = next(size / 64 for size in range(999) if gpu(size / 64).budget / GIB >= on_gpu)
    assert made(gpu(large), host(32))[1]
    assert not made(gpu(small), host(32))[1]
    assert not made(gpu(large), host(32), gpu_layers=0)[1]
    assert not made(gpu(large), host(32), flash_attention="off")[1]
    assert made(gpu(24), host(32), flash_attention="off")[1]
    assert not made(host(32))[1]
    needed = plan(pair, host(32)).needs[HOST].total / GIB
    assert on_host < needed
    tight = next(size / 64 for size in range(9999) if host(size / 64).budget / GIB >= needed)
    options = LoadOptions(projector=projector)
    assert plan(pair, host(tight)).ctx > Planner(*pair, [host(tight)], options).first().ctx


def test_what_the_user_named_holds(pair: tuple[Sizes, Sizes]) -> None:
    """Context, cache and layers are theirs; only what they left open gives way."""
    small = (gpu(7), host(64))

    assert plan(pair, *small, ctx=32_768).ctx == 32_768
    assert plan(pair, *small, cache_type="f16").cache_type == "f16"
    assert plan(pair, *small, cache_type="q4_0").cache_type == "q4_0"
    assert plan(pair, *small, flash_attention="off").cache_type == "f16"
    assert plan(pair, *small, gpu_layers=3).gpu_layers == 3
    assert plan(pair, *small, gpu_layers=0, draft_gpu_layers=0).needs[1].total == 0
    assert plan(pair, *small, draft_gpu_layers=5).draft_gpu_layers == 5


def test_layers_the_user_named_are_tried_even_where_they_seem_too_many(
    pair: tuple[Sizes, Sizes],
) -> None:
    """The user may know better."""
    assert plan(pair, gpu(3), host(64), gpu_layers=37).gpu_layers == WHOLE_TARGET


@pytest.mark.parametrize(
    ("constraints", "advice"),
    [
        ({}, "smaller model"),
        ({"ctx": 2**24}, "--ctx"),
        ({"mmap": False}, "quantization of at most [123][.][0-9] GB would fit"),
    ],
)
def test_what_does_not_fit_says_what_would(
    pair: tuple[Sizes, Sizes], constraints: dict[str, object], advice: str
) -> None:
    """A smaller file, a shorter context, or another model."""
    free = {"smaller model": 0.3, "--ctx": 32.0}.get(advice, 4.0)

    with pytest.raises(ModelWontLoad, match=rf"target[.]gguf does not fit: .*{advice}") as caught:
        plan(pair, host(free), **constraints)

    assert "\n" not in str(caught.value)


def test_plans_after_the_first_are_smaller_and_end(pair: tuple[Sizes, Sizes]) -> None:
    """Memory of the GPU is given back step by step, then that of the host."""
    planner = Planner(*pair, (gpu(24), host(32)), LoadOptions())
    plans = [planner.first()]
    while (smaller := planner.after(plans[-1])) is not None:
        plans.append(smaller)
        assert len(plans) < 40

    on_gpu = [made.needs[1].total for made in plans]
    assert on_gpu == sorted(on_gpu, reverse=True)
    assert on_gpu[0] > 0 == on_gpu[-1]
    on_host = [hard_need(made) for made in plans if not made.needs[1].total]
    assert on_host == sorted(on_host, reverse=True)
    assert len(set(map(str, plans))) == len(plans)
    assert plans[-1].draft_gpu_layers is None


def test_a_target_alone_is_planned(pair: tuple[Sizes, Sizes]) -> None:
    """The summary does not mention a draft."""
    made = plan((pair[0], None), gpu(6), host(32))

    assert made.draft_gpu_layers is None
    assert "draft" not in f"{made.summary} {made.notice}"


def test_a_short_training_context_is_no_less(tmp_path: Path) -> None:
    """A model of 2048 tokens gives nothing up by having no more."""
    shape = Shape(32_000, width=512, head_width=64)
    path = write_hollow(tmp_path / "short.gguf", "llama", shape, context_length=2048)
    made = plan((Sizes(read_header(path)), None), host(4))

    assert made.ctx == 2048
    assert made.notice is None


amounts = st.floats(0.05, 30.0)
all_constraints = st.builds(
    LoadOptions,
    ctx=st.sampled_from([0, 512, 4096, 100_000]),
    gpu_layers=st.sampled_from([None, None, 0, 7, 99]),
    draft_gpu_layers=st.sampled_from([None, None, 0, 3, 99]),
    cache_type=st.sampled_from(["auto", "f16", "q8_0"]),
    flash_attention=st.sampled_from(["auto", "on", "off"]),
    tensor_split=st.sampled_from([(), (), (1.0, 3.0), (0.0, 1.0)]),
    mmap=st.booleans(),
).filter(lambda options: (options.cache_type, options.flash_attention) != ("q8_0", "off"))


@given(
    cards=st.lists(amounts, max_size=3),
    memory=amounts,
    is_metal=st.booleans(),
    constraints=all_constraints,
)
@settings(max_examples=60, deadline=None)
def test_any_plan_fits_into_its_machine(
    pair: tuple[Sizes, Sizes],
    cards: list[float],
    memory: float,
    is_metal: bool,
    constraints: LoadOptions,
) -> None:
    """Or there is none, and one line says so; layers that the user named are their own affair."""
    gpus = [gpu(free, number=number) for number, free in enumerate(cards)]
    if is_metal and gpus:
        gpus = [metal(cards[0])]
    machine = host(memory)
    planner = Planner(*pair, [*gpus, machine], constraints)
    try:
        made = planner.first()
    except ModelWontLoad as refusal:
        message = str(refusal)
    else:
        message = f"{made.summary} {made.notice}"
        if constraints.gpu_layers is None:
            assert hard_need(made) <= machine.budget
            assert all(
                need.total <= device.budget
                for need, device in zip(made.needs[1:], gpus, strict=False)
            )
        assert constraints.ctx in {0, made.ctx}
    assert message.isprintable()


@pytest.mark.parametrize(
    ("gpu_layers", "cards", "split", "device"),
    [
        (0, [24], (), HOST),
        (1, [24], (), HOST),
        (2, [24], (), 1),
        (None, [24], (), 1),
        (None, [12, 12], (), 2),
        (None, [12, 12], (1.0, 0.0), 1),
        (2, [12, 12], (1.0, 1.0), 1),
        (3, [12, 12], (9.0, 1.0), 1),
    ],
)
def test_an_assistant_goes_where_the_cache_is_that_it_reads(
    tmp_path: Path,
    gpu_layers: int | None,
    cards: list[int],
    split: tuple[float, ...],
    device: int,
) -> None:
    """To the device of the target's last layer, all of it, whatever is said of drafts."""
    shape = Shape(32_000, num_layers=16, width=1024, feed_forward=3072, head_width=64)
    files = [write_hollow(tmp_path / f"{kind}.gguf", kind, shape) for kind in ("gemma4", ASSISTANT)]
    assistant = read_header(files[1])
    target = Sizes(read_header(files[0]))
    head = Sizes(kind_of_file(assistant).header(assistant))
    devices = [host(32), *(gpu(free, number=number) for number, free in enumerate(cards))]
    for own in (None, 0, 1):
        options = LoadOptions(gpu_layers=gpu_layers, tensor_split=split, draft_gpu_layers=own)
        planner = Planner(target, head, devices, options)
        made = planner.first()
        loaded = planner.models(made)[1][1]
        alone = Planner(target, None, devices, options).first()
        rises = [
            more.weights - need.weights for more, need in zip(made.needs, alone.needs, strict=True)
        ]

        assert made.draft_gpu_layers == loaded.gpu_layers
        assert [number for number, rise in enumerate(rises) if rise] == sorted({HOST, device})


def test_a_head_goes_before_layers_leave_the_gpu(tmp_path: Path) -> None:
    """It is a small part of a step, and layers on the CPU slow every token down."""
    shape = Shape(
        151_936, num_layers=16, width=2048, feed_forward=6144, head_width=128, has_head=True
    )
    whole = read_header(write_hollow(tmp_path / "x.gguf", "glm4moe", shape, quantisation="q4_0"))
    head = own_head(whole)
    assert head
    pair = Sizes(whole), Sizes(head)
    seen = []
    for tenths in range(60, 2, -1):
        made = plan(pair, gpu(tenths / 10), host(32))
        layers = "all" if made.gpu_layers == 17 else "some" if made.gpu_layers else "none"
        seen.append((layers, made.draft_gpu_layers))

    assert seen[0] == ("all", 2)
    assert ("some", None) in seen
    assert all(layers == "all" for layers, of_head in seen if of_head is not None)


def test_drafts_are_chains_where_branches_cannot_be_held(pair: tuple[Sizes, Sizes]) -> None:
    """Neither a memory that two read nor exact bits allow them; the plan follows the reason."""
    layout = pair[0].layout
    reasons = [
        why_chains(layout, None, LoadOptions()),
        why_chains(layout, KINDS["model"], LoadOptions(exact="auto")),
        why_chains(layout, KINDS["assistant"], LoadOptions()),
        why_chains(layout, None, LoadOptions(exact="on")),
    ]
    words = [None, None, "shares the target's memory", "--exact is on"]
    for reason, word in zip(reasons, words, strict=True):
        assert (reason is None) == (word is None)
        assert (word or "") in (reason or "")
    for exact in ("on", "auto", "off"):
        planner = Planner(*pair, [host(32)], LoadOptions(exact=exact))
        (_, options), (_, of_draft) = planner.models(planner.first())
        assert options.has_branches == (exact != "on")
        assert not of_draft.has_branches


def lent(free: float, *, number: int = 2, name: str = "CUDA0") -> Device:
    """A device of a worker with this many GiB free."""
    size = int(free * GIB)
    return Device(name, "a far card", "gpu", size, size, worker=f"10.0.0.{number}:50052")


def test_a_worker_holds_the_target_of_a_machine_without_a_gpu(pair: tuple[Sizes, Sizes]) -> None:
    """All of it, and nothing of the draft model, which stays on the CPU."""
    workers = ("10.0.0.2:50052",)
    made = plan(pair, host(32), lent(24), workers=workers)
    assert (made.gpu_layers, made.draft_gpu_layers) == (WHOLE_TARGET, 0)
    assert made.summary.startswith("target on the worker, draft on the CPU, context 8192, ")
    assert "of 24.0 GiB on CUDA0 on 10.0.0.2" in made.summary
    assert made.notice is None
    assert not made.is_on_gpus

    planner = Planner(*pair, [host(32), lent(24)], LoadOptions(workers=workers))
    (_, of_target), (_, of_draft) = planner.models(planner.first())
    assert of_target.workers == workers
    assert (of_draft.workers, of_draft.gpu_layers, of_draft.tensor_split) == ((), 0, ())


def test_a_target_is_split_over_workers_and_gpus_by_their_memory(pair: tuple[Sizes, Sizes]) -> None:
    """Workers come first, so that the logits are computed here; the draft is on local GPUs."""
    workers = ("10.0.0.2:50052", "10.0.0.3:50052")
    devices = [gpu(8), gpu(4, number=1), host(32), lent(4), lent(8, number=3)]
    planner = Planner(*pair, devices, LoadOptions(workers=workers))
    assert [each.worker for each in planner.gpus] == [*workers, "", ""]
    made = planner.first()
    assert made.gpu_layers == WHOLE_TARGET
    assert [round(share / GIB) for share in made.shares] == [4, 8, 8, 4]
    assert all(
        need.total <= each.budget for need, each in zip(made.needs[1:], planner.gpus, strict=True)
    )
    (_, of_target), (_, of_draft) = planner.models(made)
    assert of_target.tensor_split == made.shares
    assert (of_draft.workers, of_draft.tensor_split) == ((), made.shares[2:])
    alone = Planner(pair[0], None, devices, LoadOptions(workers=workers)).first()
    assert [each.total for each in alone.needs[1:3]] == [each.total for each in made.needs[1:3]]
    assert made.summary.startswith("target on the GPU and workers, draft on the GPU, ")


def test_a_worker_beside_an_integrated_gpu_has_its_own_memory(pair: tuple[Sizes, Sizes]) -> None:
    """What the GPU takes is the host's, what the worker takes is not."""
    workers = ("10.0.0.2:50052",)
    made = plan(pair, metal(3), host(3), lent(24), workers=workers)
    assert made.gpu_layers == WHOLE_TARGET
    assert made.needs[1].total > 3 * GIB
    shared = made.needs[2].total + hard_need(made)
    assert shared <= host(3).budget


def test_the_users_split_names_the_workers_first(pair: tuple[Sizes, Sizes]) -> None:
    """Nothing is on a worker that has no share."""
    made = plan(
        pair, gpu(24), host(32), lent(24), workers=("10.0.0.2:50052",), tensor_split=(0.0, 1.0)
    )
    assert made.needs[1].total == 0
    assert made.gpu_layers == WHOLE_TARGET


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Sizes:
    """Return a target of 16 GiB, nearly all of it experts, of the shape of Qwen3 30B-A3B."""
    shape = Shape(
        151_936, num_layers=48, width=2048, feed_forward=1536, head_width=128,
        num_experts=128, num_experts_used=8,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("mixture") / "mixture.gguf"
    return Sizes(read_header(write_hollow(path, "qwen3moe", shape, quantisation="q4_0")))


def test_experts_leave_the_gpu_before_the_context_is_shortened(mixture: Sizes) -> None:
    """Those of as few blocks as fit; with all on the host, layers leave at last."""
    seen: list[str] = []
    last = 0.0
    for free in (24, 18, 16, 12, 8, 6, 4, 3, 2.5, 2, 1.5):
        made = plan((mixture, None), gpu(free), host(64), ctx=0 if free > 3 else 32_768)
        assert made.needs[1].total <= gpu(free).budget
        if made.gpu_layers == 49:
            assert made.on_host.num_blocks >= last
            last = made.on_host.num_blocks
        blocks = "some" if 0 < made.on_host.num_blocks < 48 else made.on_host.count
        seen.append(f"{'all' if made.gpu_layers == 49 else 'some'} layers, experts of {blocks}")
        if free > 3:
            assert made.ctx == 8192
            assert made.is_on_gpus == (not made.on_host)
        if made.gpu_layers == 49 and made.on_host:
            less = OnHost("experts", made.on_host.num_blocks - 1 / 3)
            named: dict[str, Any] = {"on_cpu": f"experts:{less.count}" if less else "none"}
            named |= {"gpu_layers": 49, "ctx": made.ctx, "cache_type": "f16"}
            fewer = plan((mixture, None), gpu(free), host(64), **named)
            assert fewer.needs[1].total > gpu(free).budget
    assert list(dict.fromkeys(seen))[:2] == [
        "all layers, experts of 0",
        "all layers, experts of some",
    ]
    assert seen[-1].startswith("some layers")
    made = plan((mixture, None), gpu(1.5), host(64), ctx=32_768)
    count = made.on_host.count
    assert f"of 49 layers of the target and the experts of {count}" in str(made.notice)


def test_the_summary_and_the_notice_say_what_is_where(mixture: Sizes) -> None:
    """In one line each, the scarce memory first."""
    made = plan((mixture, None), gpu(8), host(32), ctx=32_768)
    count = made.on_host.count
    assert made.summary.startswith(
        f"target on the GPU but for the experts of {count} of 48 blocks, context 32768, "
    )
    assert " of 8.0 GiB on CUDA0, " in made.summary
    assert made.summary.endswith(" of 32.0 GiB in RAM")
    assert made.notice == (
        f"memory is short: the experts of {count} blocks run on the CPU, which is slower"
    )
    own = plan((mixture, None), gpu(8), host(32), on_cpu="experts")
    assert own.summary.startswith("target on the GPU but for the experts of all 48 blocks, ")
    assert own.notice is None


def test_what_stays_on_the_cpu_is_the_users_choice(
    mixture: Sizes, pair: tuple[Sizes, Sizes]
) -> None:
    """A model without the part keeps nothing there, and a draft keeps all."""
    devices = (gpu(24), host(64))
    assert plan((mixture, None), *devices, on_cpu="experts:5").on_host == OnHost("experts", 5)
    some = plan((mixture, None), *devices, on_cpu="experts:4.7").on_host
    assert some == OnHost("experts", 14 / 3)
    assert str(some) == "the experts of 4.7 blocks"
    assert plan((mixture, None), *devices, on_cpu="experts:500").on_host == OnHost("experts", 48)
    made = plan((mixture, None), *devices, on_cpu="ffn")
    assert not made.on_host
    assert made.needs == plan((mixture, None), *devices, on_cpu="none").needs
    layers = plan((mixture, None), gpu(8), host(64), on_cpu="none")
    assert (bool(layers.on_host), layers.gpu_layers < 49) == (False, True)
    assert plan(pair, *devices, on_cpu="ffn:3").on_host == OnHost("ffn", 3)
    assert not plan(pair, host(64), on_cpu="ffn:3").on_host


def test_experts_leave_each_of_two_gpus(mixture: Sizes) -> None:
    """The last blocks of each, so that neither is short; long passes read more tokens at once."""
    devices = [gpu(6), gpu(3, number=1), host(64)]
    planner = Planner(mixture, None, devices, LoadOptions())
    made = planner.first()
    ((_, options),) = planner.models(made)
    assert made.gpu_layers == 49
    assert all(
        0.7 * each.budget < need.total <= each.budget
        for need, each in zip(made.needs[1:], devices, strict=False)
    )
    kept = sorted(options.kept.blocks)
    first = [block for block in kept if block < 32]
    assert first == list(range(first[0], 32))
    assert kept[-1] == 47
    assert options.batch == 2048
    assert planner.models(plan((mixture, None), gpu(24)))[0][1].batch == 512


def test_experts_stay_with_their_layers_on_workers(mixture: Sizes) -> None:
    """Each block would wait for the network twice; the user may ask for it."""
    options = LoadOptions(workers=("10.0.0.2:50052",))
    devices = [host(64), lent(8)]
    made = Planner(mixture, None, devices, options).first()
    assert (bool(made.on_host), made.gpu_layers < 49) == (False, True)
    asked = replace(options, on_cpu="experts")
    assert Planner(mixture, None, devices, asked).first().on_host == OnHost("experts", 48)


def test_a_heads_own_experts_stay_on_the_gpu(tmp_path: Path) -> None:
    """A step reads them for each drafted token, and those of a block once."""
    shape = Shape(
        151_936, num_layers=16, width=2048, feed_forward=2048, head_width=128,
        num_experts=32, has_head=True,
    )  # fmt: skip
    whole = read_header(write_hollow(tmp_path / "x.gguf", "qwen35moe", shape, quantisation="q4_0"))
    head = own_head(whole)
    assert head
    options = LoadOptions(on_cpu="experts")
    planner = Planner(Sizes(whole), Sizes(head), [gpu(2.5), host(32)], options)
    made = planner.first()
    (_, options), (_, of_head) = planner.models(made)
    assert made.draft_gpu_layers == 2
    assert options.kept.blocks
    assert max(options.kept.blocks) == 15
    assert not of_head.kept.blocks
    assert ", head on the GPU, " in made.summary
