"""What exact kernels cost: passes with and without fast, inexact kernels, timed in turn."""

from collections.abc import Mapping, Sequence
from time import perf_counter

from specchat.passes.exact_passes import ComparedModel, InexactKernels, depths_of, fill, text_of

TIMED_LENGTHS, NUM_TIMED = (2, 4, 8, 16), 3
"""Passes to time, the shortest first: llama.cpp's kernels change about there."""
CHEAP = 1.05
"""Exact kernels are cheap if passes take up to this many times as long."""


def exact_costs(
    model: ComparedModel, kernels: InexactKernels, longest: int, most_seconds: float
) -> dict[int, float]:
    """Return how many times as long passes take with exact kernels, by their number of tokens.

    The larger figure of a shallow and a deep context counts. Passes of up to `longest` tokens are
    timed, as far as the time allows. Empty if this build has no choice. The memory is empty
    afterwards.
    """
    if not kernels.is_optional():
        return {}
    began, depths = perf_counter(), depths_of(model)
    depths = list(dict.fromkeys([*depths[:1], *depths[-1:]]))
    found = {length: 0.0 for length in TIMED_LENGTHS if length <= longest and depths}
    for number, depth in enumerate(depths, 1):
        deadline = began + most_seconds * number / len(depths)
        here = costs_at(model, kernels, depth, list(found), deadline)
        found = {length: max(found[length], cost) for length, cost in here.items()}
    model.prefill([])
    return found


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


def costs_at(
    model: ComparedModel,
    kernels: InexactKernels,
    depth: int,
    lengths: Sequence[int],
    deadline: float,
) -> dict[int, float]:
    """Return the costs of passes at a depth, of those lengths that the time allows."""
    found: dict[int, float] = {}
    if not fill(model, depth, deadline):
        return found
    took = 0.0
    for length in lengths:
        began = perf_counter()
        if began + 2 * took >= deadline:  # twice as many tokens
            break
        taken: tuple[list[float], list[float]] = ([], [])
        for _ in range(NUM_TIMED):
            for seconds, exact in zip(taken, (1, length), strict=True):
                with kernels.left_out(exact):
                    seconds.append(_seconds(model, depth, length))
        took = perf_counter() - began
        fast, exactly = map(min, taken)
        found[length] = exactly / fast
    return found


def _seconds(model: ComparedModel, depth: int, length: int) -> float:
    """Return the seconds of a pass, and roll it back."""
    base = model.length
    tokens = text_of(model, depth, depth + length)
    began = perf_counter()
    model.evaluate(tokens, length)
    took = perf_counter() - began
    model.rollback(base)
    return took
