"""What exact kernels cost: passes with and without fast, inexact kernels, timed in turn.

cost(n) = least seconds of a pass over n tokens with exact kernels / the same with fast ones
"""

from collections.abc import Callable, Iterable, Mapping
from time import perf_counter

from specchat.passes.exact_passes import ComparedModel, InexactKernels, text_of

TIMED_LENGTHS, NUM_TIMED = (2, 4, 8, 16), 3
"""Passes to time, the shortest first: llama.cpp's kernels change about there."""
CHEAP = 1.05
"""Exact kernels are cheap if passes take up to this many times as long."""


def longest_cheap(costs: Mapping[int, float], longest: int) -> int:
    """Return the longest pass, up to `longest`, for which exact kernels are cheap.

    Passes between two timed lengths cost as much more as the longer one.
    """
    cheap = 1
    for length in [length for length in TIMED_LENGTHS if length <= longest]:
        if costs.get(length, 2 * CHEAP) > CHEAP:
            return cheap
        cheap = length
    return longest


def costs_here(
    model: ComparedModel,
    kernels: InexactKernels,
    lengths: Iterable[int],
    deadline: float,
    on_pass: Callable[[], None] = lambda: None,
) -> dict[int, float]:
    """Return the costs of passes after the present memory, by their number of tokens.

    Only of those that there is time for until the deadline. `on_pass` is called before each pass.
    """
    costs: dict[int, float] = {}
    took = 0.0
    for length in lengths:
        began = perf_counter()
        if began + 2 * took >= deadline:  # these passes have twice as many tokens as the last
            break
        taken: tuple[list[float], list[float]] = ([], [])
        for _ in range(NUM_TIMED):
            for seconds, exact in zip(taken, (1, length), strict=True):
                on_pass()
                with kernels.left_out(exact):
                    seconds.append(_seconds(model, length))
        took = perf_counter() - began
        fast, exactly = map(min, taken)
        costs[length] = exactly / fast
    return costs


def _seconds(model: ComparedModel, length: int) -> float:
    """Return the seconds of a pass, and roll it back."""
    base = model.length
    tokens = text_of(model, base, base + length)
    began = perf_counter()
    model.evaluate(tokens, length)
    took = perf_counter() - began
    model.rollback(base)
    return took
