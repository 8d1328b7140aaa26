"""A mixture of experts with random weights that is too large for a GPU, and the ways to place it.

Its sizes are those of Qwen3 30B-A3B, but for attention, which has half of the queries, and the
vocabulary. For a GPU with little memory it has fewer layers.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from scripts.support.made_pair import MixtureShape, layer_tensors, write_model
from specchat.cli.placement_tuning import Timed
from specchat.engine.api import Loading
from specchat.gguf.reader import read_header
from specchat.planning.device import Device
from specchat.planning.memory import Sizes
from specchat.planning.plan import Plan
from specchat.planning.planner import Planner

WHOLE = MixtureShape(layers=48, width=2048, heads=16, kv_heads=4, feed_forward=768)
TIMES = 2
"""The weights take this many times the GPU's memory, if the whole model has as many."""
LEAST_LAYERS = 2
CONTEXT = 4096
HEADINGS = ("placement", "predicted tokens/s", "tokens/s", "prompt tokens/s")


def shape_for(memory: int) -> MixtureShape:
    """Return the sizes of a mixture for a GPU with this memory, in bytes."""
    of_layer = sum(tensor.num_bytes for tensor in layer_tensors(WHOLE, 0))
    layers = round(TIMES * memory / of_layer)
    return replace(WHOLE, layers=min(max(layers, LEAST_LAYERS), WHOLE.layers))


def write_mixture(folder: Path, shape: MixtureShape) -> Path:
    """Write the file unless it is there, and return its path."""
    path = folder / f"mixture-{shape.layers}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".half")
        write_model(half, shape, shape.layers, seed=1)
        half.replace(path)
    return path


def ways_to_place(
    path: Path, gpu: Device, host: Device, memory: int
) -> tuple[Loading, dict[Plan, float]]:
    """Return how to load a mixture, and the plans for a GPU with this memory.

    There is one for each way, the best of it, with its predicted tokens per second.
    """
    loading = Loading(path, ctx=CONTEXT, cache_type="f16")
    devices = [host, replace(gpu, free=memory, total=memory)]
    planner = Planner(Sizes(read_header(path)), None, devices, loading)
    return loading, {plan: 1 / planner.step_seconds(plan) for plan in planner.near(math.inf)}


def table(predicted: Mapping[Plan, float], timed: Sequence[Timed]) -> Iterator[str]:
    """Yield the lines of a table, the quickest placement first."""
    rates = {plan.way: rate for plan, rate in predicted.items()}
    yield f"| {' | '.join(HEADINGS)} |"
    yield f"| --- |{' ---: |' * (len(HEADINGS) - 1)}"
    for each in sorted(timed, key=lambda each: -each.tokens_per_second):
        figures = (rates[each.way], each.tokens_per_second, each.prompt_tokens_per_second)
        yield f"| {each.placement} | {' | '.join(f'{figure:.1f}' for figure in figures)} |"
