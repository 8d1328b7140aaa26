"""The times of an answer's steps on a quiet machine."""

from __future__ import annotations

from itertools import chain, repeat

from specchat.decoding.step_times import StepTimes

NUM_BEFORE, NUM_PLAIN, FEWEST, MOST = 8, 4, 8, 44


def timed(speedup: float, seconds: float = 4.0, num_tokens: int = 400) -> StepTimes:
    """Return the times of an answer with a speedup, unknown if that is 0 or the answer is short.

    Some of its steps are plain, in a row.
    """
    plain = speedup * seconds / num_tokens
    num_others = min(int(num_tokens / speedup) - NUM_PLAIN, MOST) if speedup else 0
    times = StepTimes()
    if num_others < FEWEST:
        num_others, plain = MOST, 0.0
    step = (seconds - NUM_PLAIN * plain) / num_others
    before, after = repeat(step, NUM_BEFORE), repeat(step, num_others - NUM_BEFORE)
    for each in chain(before, repeat(plain, NUM_PLAIN if plain else 0), after):
        times.add(0 if each == plain else 8, 1, each)
    times.num_tokens = num_tokens
    return times
