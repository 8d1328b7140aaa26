"""Proving on the user's own pair that speculative decoding changes nothing.

Temperature 0, with and without the draft; then the very tokens of the answer are scored again by
the target alone, from an empty memory, in batches as large as verification's. Where the two answers
part, the distance of the two tokens in the target's logits is set against what the batch's size
alone does to those logits: only a near tie within that may fall the other way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specchat.drafters import AUTO, PLAIN
from specchat.engine.local_engine import LocalEngine

__all__ = ["Finding", "check_prompt"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one prompt.

    `parted_at` is the first token at which the two answers differ (None: they are identical);
    there, `gap` is the distance between the logits of the two tokens, in the pass where it is
    larger, and `rounding` how far apart the logits of a single-token and of a batched pass are at
    most. `ends_differ` where one answer ended and the other went on, which no rounding does.
    `num_rescored_off` counts the tokens that the second scoring would not have chosen, and
    `largest_off` is the greatest distance to the one it would have. Without any `drafted` tokens
    nothing is proved.
    """

    prompt: str
    num_tokens: int
    acceptance_rate: float
    parted_at: int | None
    gap: float
    rounding: float
    num_rescored_off: int
    largest_off: float
    drafted: int
    ends_differ: bool

    @property
    def is_lossless(self) -> bool:
        """Say whether rounding explains every difference."""
        limit = 2 * self.rounding
        return not self.ends_differ and self.gap <= limit and self.largest_off <= limit


def check_prompt(
    engine: LocalEngine, prompt: str, tokens: Sequence[int], num_tokens: int, draft_length: int
) -> Finding:
    """Decode with and without speculation at temperature 0, score again, and compare.

    Drafts are no longer than the engine can take back.
    """
    draft_length = min(draft_length, engine.facts.longest_draft)
    plain = _answer(engine, tokens, num_tokens, PLAIN, draft_length)
    answer = _answer(engine, tokens, num_tokens, AUTO, draft_length)
    rate, drafted = engine.stats.acceptance_rate, engine.stats.drafted
    off = _distances(engine.rescore(tokens, answer, draft_length + 1), answer)
    parted_at = _first_difference(plain, answer)
    places = [place for place in (parted_at, _worst(off)) if place is not None]
    rounding = max(
        (_rounding(engine, tokens, answer, p, draft_length + 1) for p in places), default=0.0
    )
    gap = 0.0
    ends_differ = parted_at is not None and parted_at >= min(len(plain), len(answer))
    if parted_at is not None and not ends_differ:
        pair = plain[parted_at], answer[parted_at]
        gap = _gap(engine, tokens, answer, parted_at, draft_length + 1, pair)
    return Finding(
        prompt=prompt,
        num_tokens=len(answer),
        acceptance_rate=rate,
        parted_at=parted_at,
        gap=gap,
        rounding=rounding,
        num_rescored_off=int(np.count_nonzero(off)),
        largest_off=float(off.max(initial=0.0)),
        drafted=drafted,
        ends_differ=ends_differ,
    )


def _answer(
    engine: LocalEngine, tokens: Sequence[int], num_tokens: int, drafter: str, draft_length: int
) -> list[int]:
    chunks = engine.generate(
        tokens,
        temperature=0.0,
        max_tokens=num_tokens,
        drafter=drafter,
        draft_length=draft_length,
    )
    return [token for chunk in chunks for token in chunk.tokens]


def _distances(
    rows: Iterator[npt.NDArray[np.float32]], answer: Sequence[int]
) -> npt.NDArray[np.float32]:
    """Return how far each token's logit is below the best one of its row; 0 for the best."""
    distances: list[float] = []
    for part in rows:
        for row in part:
            distances.append(float(row.max() - row[answer[len(distances)]]))
    return np.asarray(distances, dtype=np.float32)


def _worst(off: npt.NDArray[np.float32]) -> int | None:
    return int(off.argmax()) if off.any() else None


def _first_difference(first: Sequence[int], second: Sequence[int]) -> int | None:
    if first == second:
        return None
    pairs = zip(first, second, strict=False)
    return next(
        (place for place, (one, other) in enumerate(pairs) if one != other),
        min(len(first), len(second)),
    )


def _row_at(
    engine: LocalEngine, tokens: Sequence[int], answer: Sequence[int], place: int, at_once: int
) -> npt.NDArray[np.float32]:
    """Return the logits at one token of the answer, evaluated so many tokens at once."""
    seen = 0
    for part in engine.rescore(tokens, answer[: place + at_once], at_once):
        if place < seen + len(part):
            row: npt.NDArray[np.float32] = part[place - seen].copy()
            return row
        seen += len(part)
    raise IndexError(place)


def _rounding(
    engine: LocalEngine, tokens: Sequence[int], answer: Sequence[int], place: int, at_once: int
) -> float:
    """Return how far apart the logits of single and batched passes are at one token."""
    if place >= len(answer):
        return 0.0
    single = _row_at(engine, tokens, answer, place, 1)
    batched = _row_at(engine, tokens, answer, place, at_once)
    return float(np.abs(single - batched).max())


def _gap(
    engine: LocalEngine,
    tokens: Sequence[int],
    answer: Sequence[int],
    place: int,
    at_once: int,
    pair: tuple[int, int],
) -> float:
    """Return the distance between two tokens' logits, in the pass where it is larger."""
    rows = [_row_at(engine, tokens, answer, place, count) for count in (1, at_once)]
    return max(abs(float(row[pair[0]] - row[pair[1]])) for row in rows)
