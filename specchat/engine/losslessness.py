"""Checks on the user's own pair that speculative decoding does not change greedy output.

Answers are decoded at temperature 0 with and without drafts; then the target alone rescores the
answer's tokens from an empty memory, in batches as large as verification's. Where the answers
differ, the distance between the two tokens' logits is compared with how much the batch size alone
changes the logits: only a near tie within that rounding may be decided differently.

Where the engine says that drafts of this length are exact, nothing may differ: neither the answers
nor a bit of any row of logits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from operator import ne

import numpy as np
import numpy.typing as npt

from specchat.decoding.ports import Rows
from specchat.drafter_registry import AUTO, PLAIN
from specchat.engine.local_engine import LocalEngine


@dataclass(frozen=True, slots=True)
class PromptCheck:
    """The result for one prompt.

    `parted_at` is the first token at which the two answers differ (None: they are identical);
    there, `gap` is the distance between the logits of the two tokens, and `rounding` the largest
    difference between the logits of a single-token and a batched pass. `ends_differ` if one answer
    ended where the other went on, which rounding never explains. `num_rescored_off` counts the
    tokens that are not the argmax when rescored, `largest_off` is their greatest distance from the
    argmax's logit. If no tokens were `drafted`, nothing was checked. Where `is_exact`, verification
    should give the bits of single tokens; `num_inexact` rows of logits did not.
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
    is_exact: bool = False
    num_inexact: int = 0

    @property
    def is_lossless(self) -> bool:
        """Whether nothing differs, or where passes are not exact, rounding explains it."""
        if self.is_exact:
            return self.parted_at is None and not self.num_inexact
        limit = 2 * self.rounding
        return not self.ends_differ and self.gap <= limit and self.largest_off <= limit


def check_prompt(
    engine: LocalEngine, prompt: str, tokens: Sequence[int], num_tokens: int, draft_length: int
) -> PromptCheck:
    """Decode with and without speculation at temperature 0, score again, and compare.

    Drafts are no longer than the engine can roll back.
    """
    draft_length = min(draft_length, engine.facts.longest_draft)
    plain = _answer(engine, tokens, num_tokens, PLAIN, draft_length)
    answer = _answer(engine, tokens, num_tokens, AUTO, draft_length)
    is_exact = draft_length <= (engine.facts.exact_draft or 0)
    rate, drafted = engine.stats.acceptance_rate, engine.stats.drafted
    off = _distances(engine.rescore(tokens, answer, draft_length + 1), answer)
    shorter = min(len(plain), len(answer))
    num_equal = next((n for n in range(shorter) if plain[n] != answer[n]), shorter)
    parted_at = num_equal if plain != answer else None
    ends_differ = parted_at == shorter
    rounding = gap = 0.0
    worst = int(off.argmax()) if off.any() else None
    for place in (parted_at, worst):
        if place is None or place >= len(answer):
            continue
        rows = [_row_at(engine, tokens, answer, place, n) for n in (1, draft_length + 1)]
        rounding = max(rounding, float(np.abs(rows[0] - rows[1]).max()))
        if place == parted_at and not ends_differ:
            gap = max(abs(float(row[plain[place]] - row[answer[place]])) for row in rows)
    return PromptCheck(
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
        is_exact=is_exact,
        num_inexact=_num_inexact(engine, tokens, answer, draft_length) if is_exact else 0,
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


def _distances(rows: Iterator[Rows], answer: Sequence[int]) -> npt.NDArray[np.float32]:
    """Return how far each token's logit is below the best one of its row; 0 for the best."""
    distances: list[float] = []
    for part in rows:
        for row in part:
            distances.append(float(row.max() - row[answer[len(distances)]]))
    return np.asarray(distances, dtype=np.float32)


def _num_inexact(
    engine: LocalEngine, tokens: Sequence[int], answer: Sequence[int], draft_length: int
) -> int:
    """Count the rows of logits of an answer whose bits are not those of single-token passes."""
    single, batched = (
        [blake2b(row.tobytes()).digest() for part in parts for row in part]
        for parts in (engine.rescore(tokens, answer, n) for n in (1, draft_length + 1))
    )
    return sum(map(ne, single, batched))


def _row_at(
    engine: LocalEngine, tokens: Sequence[int], answer: Sequence[int], place: int, at_once: int
) -> npt.NDArray[np.float32]:
    """Return the logits at one token of the answer, evaluated `at_once` tokens per pass."""
    parts = engine.rescore(tokens, answer[: place + at_once], at_once)
    part = next(islice(parts, place // at_once, None))
    row: npt.NDArray[np.float32] = part[place % at_once].copy()
    return row
