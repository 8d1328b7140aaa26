"""The memory computed from a file's header is what llama.cpp allocates, within 10 %."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from llama_log import listening
from scripts.support.tiny_gguf import ARCHITECTURES, HOLLOW_ALONE, Shape, write_hollow
from scripts.support.tiny_gguf.shapes import ASSISTANT, BLOCKS, EAGLE, STREAMS
from specchat.engine.api import Loading
from specchat.engine.loader import load_pair
from specchat.gguf.draft_kinds import HEAD_BATCH
from specchat.gguf.reader import read_header
from specchat.llama.context import Context
from specchat.llama.library import AbortFlag, logits_address
from specchat.llama.model import Model
from specchat.options.declarations import CacheType, FlashAttention
from specchat.planning.context_shape import ContextShape, ModelOptions, shape_context
from specchat.planning.memory import HOST, Need, Sizes, devices_of_layers
from specchat.planning.placement import BlocksOnHost
from tables import table

MIB = 2**20
TOLERANCE = 0.1
SHAPE = Shape(
    vocabulary=32_000,
    num_layers=4,
    width=512,
    feed_forward=1536,
    head_width=64,
    sliding_window=512,
    num_experts=8,
    state=64,
)
MODELS = [*ARCHITECTURES, *HOLLOW_ALONE, STREAMS, "llama tied", "gemma3 tied"]
LIBC = ctypes.CDLL(None)
BUFFERS = re.compile(r"(model|KV|RS|state|compute|output) buffer size = +([\d.]+) MiB")


@dataclass(frozen=True, slots=True)
class Allocated:
    """What llama.cpp's log says it allocated, in bytes; `row` is one row of logits."""

    weights: float
    cache: float
    compute: float
    row: float


def allocate(path: Path, options: ModelOptions) -> Allocated:
    """Load a model, make a context, and return what that took."""
    with listening() as lines, Model(path, options) as model, Context(model, options):
        found = BUFFERS.findall("".join(lines))
    sizes = {
        kind: sum(float(size) for name, size in found if name == kind) * MIB
        for kind in ("model", "KV", "RS", "state", "compute", "output")
    }
    cache = sizes["KV"] + sizes["RS"] + sizes["state"]
    return Allocated(sizes["model"], cache, sizes["compute"], sizes["output"])


def estimate(path: Path, options: ModelOptions) -> tuple[Need, ContextShape]:
    """Return what the header says for a context made alike on the CPU."""
    sizes = Sizes(read_header(path))
    shape = shape_context(sizes.layout, options, is_on_gpu=False)
    (need,) = sizes.needs(shape, devices_of_layers(sizes.num_layers, 0, ()))
    return need, shape


@pytest.fixture(scope="module")
def hollow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write a model of about 100 MB of each architecture, holes but for the header."""
    folder = tmp_path_factory.mktemp("hollow")
    return {
        name: write_hollow(
            folder / f"{name}.gguf", name.split()[0], SHAPE, is_tied=name.endswith("tied")
        )
        for name in MODELS
    }


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Shape], Path]:
    """Return a writer of further hollow models, each once: reading its holes takes long."""
    written: dict[tuple[str, Shape], Path] = {}

    def write_once(architecture: str, shape: Shape) -> Path:
        if (architecture, shape) not in written:
            path = tmp_path_factory.mktemp("hollow") / "model.gguf"
            written[architecture, shape] = write_hollow(path, architecture, shape)
        return written[architecture, shape]

    return write_once


@pytest.mark.slow(keep=20)
@pytest.mark.parametrize("kind", ["f16", "q8_0"])
@pytest.mark.parametrize("ctx", [1024, 4096, 16_384])
@pytest.mark.parametrize("model", MODELS)
def test_the_estimate_is_within_a_tenth_of_what_llama_cpp_allocates(
    hollow: dict[str, Path], model: str, ctx: int, kind: CacheType
) -> None:
    """All of it; weights and the text's memory to half a percent."""
    options = ModelOptions(ctx=ctx, gpu_layers=0, cache_type=kind, threads=1, rollback_length=32)

    need, shape = estimate(hollow[model], options)
    got = allocate(hollow[model], options)

    total = got.weights + got.cache + got.compute + shape.num_rows * got.row
    assert need.weights == pytest.approx(got.weights, rel=0.005)
    assert need.cache == pytest.approx(got.cache, rel=0.005)
    assert need.total == pytest.approx(total, rel=TOLERANCE)


@table("model", ["llama", "gemma3", "mamba", "granitehybrid", "lfm2", "qwen35"])
def test_a_state_to_go_back_to_takes_what_the_header_says(
    hollow: dict[str, Path], model: str
) -> None:
    """To a percent; where any tail can be removed there are none."""
    options = ModelOptions(ctx=1024, gpu_layers=0, threads=1, rollback_length=32)
    with Model(hollow[model], options) as loaded, Context(loaded, options) as context:
        context.prefill([3 + place % 200 for place in range(600)])
        saved = sum(state.num_bytes for state in context.rollback_kind.checkpoints)

        assert loaded.sizes.state(context.shape) == pytest.approx(saved, rel=0.01)


SHALLOW = replace(SHAPE, num_layers=2)
SHAPES = {
    "wide heads": replace(SHALLOW, head_width=128),
    "many experts": replace(SHALLOW, num_experts=32, num_experts_used=4),
    "large vocabulary": replace(SHALLOW, vocabulary=150_000),
    "long feed-forward": replace(SHALLOW, feed_forward=4096),
}


@pytest.mark.slow(keep=6)
@pytest.mark.parametrize("flash", ["on", "off"])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("model", ["qwen3", "qwen3moe", "qwen35"])
def test_the_estimate_holds_for_other_shapes_and_without_flash_attention(
    write: Callable[[str, Shape], Path], model: str, name: str, flash: FlashAttention
) -> None:
    """Where working room is much of the whole: passes of 512 tokens over 8192."""
    path = write(model, SHAPES[name])
    options = ModelOptions(
        ctx=8192,
        gpu_layers=0,
        flash_attention=flash,
        threads=1,
        rollback_length=16,
    )

    need, shape = estimate(path, options)
    got = allocate(path, options)

    total = got.weights + got.cache + got.compute + shape.num_rows * got.row
    assert need.total == pytest.approx(total, rel=TOLERANCE)


@pytest.mark.skipif(not hasattr(LIBC, "malloc_usable_size"), reason="needs malloc_usable_size")
@table("model", ["llama", "gpt-oss", "qwen35"])
def test_the_logits_of_a_verification_take_what_their_rows_take(
    hollow: dict[str, Path], model: str
) -> None:
    """The buffer begins with one row and grows with the first verification, without a word."""
    options = ModelOptions(ctx=1024, gpu_layers=0, threads=1, rollback_length=32)
    num_rows = estimate(hollow[model], options)[1].num_rows
    with Model(hollow[model], options) as loaded, Context(loaded, options) as context:
        context.evaluate(range(num_rows), num_rows)
        size = LIBC.malloc_usable_size(ctypes.c_void_p(logits_address(context.handle)))

    wanted = num_rows * allocate(hollow[model], options).row
    assert num_rows > 1
    assert size == pytest.approx(wanted, rel=0.02)  # the log rounds to 0.01 MiB


@pytest.mark.parametrize("model", ["llama", "qwen3moe"])
def test_weights_in_a_quicker_form_take_no_more(tmp_path: Path, model: str) -> None:
    """llama.cpp copies weights in q4_0 into another order; read and not mapped, they count once."""
    shape = replace(SHAPE, num_layers=2)
    path = write_hollow(tmp_path / "q4.gguf", model, shape, quantisation="q4_0")
    options = ModelOptions(ctx=1024, gpu_layers=0, mmap=False, threads=1)

    assert estimate(path, options)[0].weights == pytest.approx(
        allocate(path, options).weights, rel=0.005
    )


def test_the_whole_is_the_same_wherever_the_layers_are(hollow: dict[str, Path]) -> None:
    """Layers move with their weights and caches; tied embeddings are needed twice."""
    shape = ContextShape(4096)
    for name, path in hollow.items():
        sizes = Sizes(read_header(path))
        (alone,) = sizes.needs(shape, devices_of_layers(sizes.num_layers, 0, ()))
        spread = sizes.needs(shape, devices_of_layers(sizes.num_layers, 5, (3.0, 1.0)))
        embedding = sizes.header.tensors.get("token_embd.weight")
        again = embedding.num_bytes if embedding and name.endswith("tied") else 0

        assert sum(need.cache for need in spread) == alone.cache
        assert sum(need.weights for need in spread) == alone.weights + again
        assert all(need.weights and need.work for need in spread)


def test_a_gpu_that_weights_are_copied_to_needs_room_for_long_passes(
    hollow: dict[str, Path],
) -> None:
    """As much as with the experts there, and for a tensor: measured on Vulkan, 35.97 and 47.82."""
    sizes, shape = Sizes(read_header(hollow["qwen3moe"])), ContextShape(4096)
    devices = devices_of_layers(sizes.num_layers, 99, (1.0,))
    kept = BlocksOnHost("experts", (1, 3))
    whole, copying = sizes.needs(shape, devices), sizes.needs(shape, devices, kept, 1)
    elsewhere = sizes.needs(shape, devices, replace(kept, blocks=(0, 1, 2, 3)))
    experts = sizes.header.tensors["blk.1.ffn_up_exps.weight"].num_bytes

    assert copying[1].work == whole[1].work + experts
    assert copying[HOST].work == whole[HOST].work < elsewhere[HOST].work
    assert elsewhere[1].work < whole[1].work
    assert whole[1].weights - copying[1].weights == 2 * 3 * experts


@table(
    ("num_layers", "gpu_layers", "shares", "expected"),
    [
        (4, 0, (1.0,), [HOST] * 5),
        (4, 2, (), [HOST] * 5),
        (4, 1, (1.0,), [0, 0, 0, 0, 1]),
        (4, 3, (1.0,), [0, 0, 1, 1, 1]),
        (4, 99, (1.0,), [1, 1, 1, 1, 1]),
        (3, 4, (1.0, 1.0), [1, 1, 2, 2]),
        (7, 8, (3.0, 1.0), [1, 1, 1, 1, 1, 1, 2, 2]),
        (3, 4, (0.0, 1.0), [2, 2, 2, 2]),
        (5, 6, (1.0, 1.0, 1.0), [1, 1, 2, 2, 3, 3]),
    ],
)
def test_layers_are_split_as_llama_cpp_does(
    num_layers: int, gpu_layers: int, shares: tuple[float, ...], expected: list[int]
) -> None:
    """The last layers and the output first; by shares among GPUs (load_tensors' get_layer_buft)."""
    assert list(devices_of_layers(num_layers, gpu_layers, shares)) == expected


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("ctx", [1024, 32768])
@pytest.mark.parametrize(
    "model",
    [
        "qwen35",
        "qwen35moe",
        "glm4moe",
        "hy_v3",
        "cohere2moe",
        "deepseek2",
        "deepseek32",
        "glm-dsa",
        "bailingmoe3",
        "nemotron_h_moe",
        "mimo2",
        "deepseek4",
        "hy_v3 in turn",
        "mimo2 in turn",
        "step35 in turn",
        "qwen35 in two files",
        "gemma4 in two files",
        "qwen3 in two files",
        "llama in two files",
    ],
)
def test_a_plan_with_a_head_is_what_llama_cpp_allocates(
    write: Callable[[str, Shape], Path], model: str, ctx: int
) -> None:
    """Weights, both caches and both compute buffers, in one file and in two."""
    architecture, _, how = model.partition(" ")
    is_split = how == "in two files"
    shape = replace(SHAPE, has_head=not is_split, num_in_turn=3 if how == "in turn" else 1)
    files, of_head = [write(architecture, shape)], ""
    if is_split:
        others = {"gemma4": ASSISTANT, "qwen3": BLOCKS, "llama": EAGLE}
        of_head = others.get(architecture, architecture)
        alone = replace(SHAPE, is_head_only=of_head == architecture, num_left_out=8000)
        files.append(write(of_head, alone))
    loading = Loading(*files, ctx=ctx, threads=1, learn=False, gpu_layers=0)
    with listening() as lines, ExitStack() as stack:
        pair = load_pair(loading, AbortFlag(), stack, lambda *_: None)
        found = [float(size) for _, size in BUFFERS.findall("".join(lines))]
        row = 4 * SHAPE.vocabulary
        more_rows = row * (pair.context.shape.num_rows - 1)  # the log has one row of each
        if of_head == EAGLE:
            more_rows += row * (HEAD_BATCH - 1)

    assert pair.draft_kind == "head"
    assert pair.plan.needs[HOST].total == pytest.approx(sum(found) * MIB + more_rows, rel=TOLERANCE)
