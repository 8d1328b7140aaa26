"""What exact kernels cost: passes without tinyBLAS, timed in turn with passes with it."""

from collections.abc import Mapping, Sequence
from time import perf_counter

from specchat.llama.context import Context
from specchat.llama.exact_passes import depths_of, fill, has_choice, text_of, without_tinyblas

LENGTHS, ROUNDS = (2, 4, 8, 16), 3
"""Passes to time, the shortest first: llama.cpp's kernels change about there."""
CHEAP = 1.05
"""Exact kernels are cheap if passes take up to this many times as long."""
WITH_TINYBLAS = 1


def exact_costs(context: Context, longest: int, most_seconds: float) -> dict[int, float]:
    """Return how many times as long passes take with exact kernels, by their number of tokens.

    The larger figure of a shallow and a deep context counts. Passes of up to `longest` tokens are
    timed, as far as the time allows. Empty if this build has no choice. The memory is empty
    afterwards.
    """
    began, depths = perf_counter(), depths_of(context)
    depths = list(dict.fromkeys([*depths[:1], *depths[-1:]]))
    found = {length: 0.0 for length in LENGTHS if length <= longest and depths and has_choice()}
    for number, depth in enumerate(depths, 1):
        deadline = began + most_seconds * number / len(depths)
        here = costs_at(context, depth, list(found), deadline)
        found = {length: max(found[length], cost) for length, cost in here.items()}
    context.prefill([])
    return found


def longest_cheap(costs: Mapping[int, float], longest: int) -> int:
    """Return the longest pass, up to `longest`, for which exact kernels are cheap.

    Passes between two timed lengths cost as much more as the longer one. Without a choice of
    kernels, nothing costs more.
    """
    if not has_choice():
        return longest
    cheap = 1
    for length in [length for length in LENGTHS if length <= longest]:
        if costs.get(length, 2 * CHEAP) > CHEAP:
            return cheap
        cheap = length
    return longest


def costs_at(
    context: Context, depth: int, lengths: Sequence[int], deadline: float
) -> dict[int, float]:
    """Return the costs of passes at a depth, of those lengths that the time allows."""
    found: dict[int, float] = {}
    if not fill(context, depth, deadline):
        return found
    took = 0.0
    for length in lengths:
        began = perf_counter()
        if began + 2 * took >= deadline:  # twice as many tokens
            break
        taken: tuple[list[float], list[float]] = ([], [])
        for _ in range(ROUNDS):
            for seconds, exact in zip(taken, (WITH_TINYBLAS, length), strict=True):
                seconds.append(_seconds(context, depth, length, exact))
        took = perf_counter() - began
        fast, exactly = map(min, taken)
        found[length] = exactly / fast
    return found


def _seconds(context: Context, depth: int, length: int, exact: int) -> float:
    """Return the seconds of a pass, computed without tinyBLAS if it has at most `exact` tokens."""
    base = context.length
    tokens = text_of(context, depth, depth + length)
    with without_tinyblas(exact):
        began = perf_counter()
        context.evaluate(tokens, length)
        took = perf_counter() - began
    context.rollback(base)
    return took
