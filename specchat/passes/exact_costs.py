"""What exact kernels cost: passes with and without fast, inexact kernels, timed in turn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from specchat.passes.exact_passes import ComparedModel, InexactKernels, depths_of, fill, text_of

TIMED_LENGTHS, NUM_TIMED = (2, 4, 8, 16), 3
"""Passes to time, the shortest first: llama.cpp's kernels change about there."""
CHEAP = 1.05
"""Exact kernels are cheap if passes take up to this many times as long."""


@dataclass(slots=True)
class TimedCosts:
    """The costs timed so far, at `num_depths` depths in `spent` seconds: timing may be stopped."""

    costs: dict[int, float] = field(default_factory=dict)
    num_depths: int = 0
    spent: float = 0.0


def exact_costs(
    model: ComparedModel,
    kernels: InexactKernels,
    longest: int,
    most_seconds: float,
    on_share: Callable[[float], None] | None = None,
    timed: TimedCosts | None = None,
) -> dict[int, float]:
    """Return the cost of exact kernels for passes, by their number of tokens.

    A cost is the time of a pass with exact kernels divided by that with fast ones: the larger of
    those in a shallow and in a deep context. Passes of up to `longest` tokens are timed, as many as
    `most_seconds` allow. Empty if this build has one kind of kernels only. The model's memory is
    empty afterwards.

    `on_share` is called before each pass with the share of the time that has passed, and may raise
    an exception to stop. Given the same `timed` again, the next call goes on with that depth.
    """
    if not kernels.is_optional():
        return {}
    depths = depths_of(model)
    depths = list(dict.fromkeys([*depths[:1], *depths[-1:]]))
    timed = timed or TimedCosts()
    if not timed.num_depths:
        timed.costs = {length: 0.0 for length in TIMED_LENGTHS if length <= longest and depths}
    for number, depth in list(enumerate(depths, 1))[timed.num_depths :]:
        began = perf_counter() - timed.spent
        deadline = began + most_seconds * number / len(depths)

        def on_pass(began: float = began) -> None:
            if on_share:
                on_share(min(1.0, (perf_counter() - began) / most_seconds))

        here = costs_at(model, kernels, depth, list(timed.costs), deadline, on_pass)
        timed.costs = {length: max(timed.costs[length], cost) for length, cost in here.items()}
        timed.num_depths, timed.spent = number, perf_counter() - began
    model.prefill([])
    return timed.costs


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
    on_pass: Callable[[], None] = lambda: None,
) -> dict[int, float]:
    """Return the costs of passes at a depth, by their number of tokens, until the deadline.

    `on_pass` is called before each pass.
    """
    costs: dict[int, float] = {}
    on_pass()
    if not fill(model, depth, deadline):
        return costs
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
                    seconds.append(_seconds(model, depth, length))
        took = perf_counter() - began
        fast, exactly = map(min, taken)
        costs[length] = exactly / fast
    return costs


def _seconds(model: ComparedModel, depth: int, length: int) -> float:
    """Return the seconds of a pass, and roll it back."""
    base = model.length
    tokens = text_of(model, depth, depth + length)
    began = perf_counter()
    model.evaluate(tokens, length)
    took = perf_counter() - began
    model.rollback(base)
    return took
