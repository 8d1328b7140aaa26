"""Greedy answers compared: equal up to a place where two tokens were nearly equally likely."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specchat.engine.local_engine import LocalEngine

NEAR_TIE = 1.1
"""Logits between two tokens, up to which rounding may swap them.

With the same kernels, the distance between the two most likely tokens is llama-server's to three
decimals. Other kernels round in another way: between flash attention on and off it changes by up to
0.94 at 674 places of 20 answers (99 % of them: 0.6), measured on a processor with AVX-512.
`test_rounding_explains_the_limit` measures it again.
"""


def first_difference(first: Sequence[int], second: Sequence[int]) -> int | None:
    """Return the first place where two answers differ; None if they are equal."""
    if list(first) == list(second):
        return None
    both = zip(first, second, strict=False)
    differing = (place for place, (one, other) in enumerate(both) if one != other)
    return next(differing, min(len(first), len(second)))


def require_near_tie(
    engine: LocalEngine, prompt: Sequence[int], first: Sequence[int], second: Sequence[int]
) -> None:
    """Fail unless two answers to a prompt are equal, or differ first at a near tie; print that."""
    place = first_difference(first, second)
    if place is None:
        return
    assert place < min(len(first), len(second)), "one answer ends where the other goes on"
    row = logits(engine, prompt, first[: place + 1], 1)[place]
    gap = abs(float(row[first[place]] - row[second[place]]))
    pieces = [engine.model.vocabulary.piece(answer[place]) for answer in (first, second)]
    words = f"token {place}: {pieces[0]!r} or {pieces[1]!r}, {gap:.3f} logits apart"
    print(f"near tie at {words}")
    assert gap <= NEAR_TIE, words


def logits(
    engine: LocalEngine, prompt: Sequence[int], answer: Sequence[int], num_at_once: int
) -> npt.NDArray[np.float32]:
    """Return the logits that each token of an answer is chosen from, shape (n, vocabulary)."""
    return np.array([row.copy() for row in engine.rescore(prompt, answer, num_at_once)])


def distances(rows: npt.NDArray[np.float32], answer: Sequence[int]) -> npt.NDArray[np.float32]:
    """Return how far each token's logit is below the highest of its row."""
    below: npt.NDArray[np.float32] = rows.max(axis=1) - rows[np.arange(len(answer)), list(answer)]
    return below
