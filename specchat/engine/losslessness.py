"""Checks on the user's own pair that speculative decoding does not change greedy or seeded output.

Answers are decoded with and without drafts; then the target alone rescores the answer's tokens from
an empty memory, in batches as large as verification's. Where the answers differ, the distance
between the two tokens' logits is compared with how much the batch size alone changes the logits:
only a near tie within that rounding may be decided differently.

With a seed, the noise of each index, times the temperature, is added to the logits: the token with
the largest sum is the one the target draws. Top-k, top-p and min-p are off, so that every
difference can be traced to logits.

If the engine says that drafts of this length are exact, nothing may differ: neither the answers nor
a bit of any row of logits.

Where drafts may be trees, the answer is decoded once more with branches. A kept branch changes the
order of sums over the cache: a near tie may be decided differently, and nothing else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import islice
from operator import ne
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from specchat.decoding.distribution import Logits
from specchat.decoding.noise import Noise
from specchat.drafter_registry import AUTO, PLAIN
from specchat.engine.local_engine import LocalEngine

USUAL_BRANCHES = 12
"""The branches to check beside a draft."""

Scores: TypeAlias = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class PromptCheck:
    """The result for one prompt.

    `parted_at` is the first token at which the two answers differ (None: they are identical);
    there, `gap` is the distance between the logits of the two tokens, and `rounding` the largest
    difference between the logits of a single-token and a batched pass. `ends_differ` is True if one
    answer ended where the other continued, which rounding never explains. `num_rescored_off` counts
    the tokens that are not the argmax when rescored, `largest_off` is their greatest distance from
    the argmax's logit. If no tokens were `drafted`, nothing was checked. If `is_exact`,
    verification should give the bits of single-token passes; `num_inexact` rows of logits did not.

    `tree` is how the answer with branches compares, None where drafts are chains.
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
    tree: "Parting | None" = None

    @property
    def is_lossless(self) -> bool:
        """Whether nothing differs, or rounding explains the difference if passes are not exact."""
        if self.tree and not self.tree.is_rounding:
            return False
        if self.is_exact:
            return self.parted_at is None and not self.num_inexact
        limit = 2 * self.rounding
        return not self.ends_differ and self.gap <= limit and self.largest_off <= limit


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two answers differ, as in a PromptCheck, and by how much there."""

    parted_at: int | None
    gap: float = 0.0
    rounding: float = 0.0
    ends_differ: bool = False

    @property
    def is_rounding(self) -> bool:
        """Whether nothing differs, or rounding explains it."""
        return not self.ends_differ and self.gap <= 2 * self.rounding


@dataclass(frozen=True, slots=True)
class CheckedSampling:
    """The temperature and the seed to check; at temperature 0 the seed does not matter."""

    temperature: float
    seed: int

    def scores(self, logits: Logits, index: int) -> Scores:
        """Return logits with the noise of an index of the answer, shape (vocabulary,)."""
        if self.temperature == 0:
            return logits
        times = Noise(self.seed).times(np.arange(logits.size), index)
        return logits - self.temperature * np.log(times)


GREEDY = CheckedSampling(temperature=0.0, seed=0)


def check_prompt(
    engine: LocalEngine,
    prompt: str,
    tokens: Sequence[int],
    num_tokens: int,
    draft_length: int,
    sampling: CheckedSampling = GREEDY,
) -> PromptCheck:
    """Decode with and without speculation, rescore the answer, and compare.

    Drafts are at most as long as the engine can roll back.
    """
    draft_length = min(draft_length, engine.facts.longest_draft)
    engine.forget()  # so that prompts are evaluated in the same passes as for rescoring
    lengths = {"max_tokens": num_tokens, "draft_length": draft_length}
    plain, answer = (
        _answer(engine, tokens, sampling, lengths | {"drafter": name}) for name in (PLAIN, AUTO)
    )
    is_exact = draft_length <= (engine.facts.exact_draft or 0)
    rate, drafted = engine.stats.acceptance_rate, engine.stats.drafted
    off, bits = _scored(engine.rescore(tokens, answer, draft_length + 1), answer, sampling)
    parting = _parting(engine, tokens, (plain, answer), draft_length, sampling)
    rounding = parting.rounding
    if off.any():
        rows = _rows_at(engine, tokens, answer, int(off.argmax()), draft_length)
        rounding = max(rounding, float(np.abs(rows[0] - rows[1]).max()))
    tree = None
    if engine.facts.most_branches and not engine.facts.chains_reason:
        size = min(engine.facts.longest_draft, draft_length + USUAL_BRANCHES)
        branching = lengths | {"drafter": AUTO, "draft_tree": size}
        beside = _answer(engine, tokens, sampling, branching)
        tree = _parting(engine, tokens, (plain, beside), draft_length, sampling)
    single = engine.rescore(tokens, answer, 1) if is_exact else ()
    return PromptCheck(
        prompt=prompt,
        num_tokens=len(answer),
        acceptance_rate=rate,
        parted_at=parting.parted_at,
        gap=parting.gap,
        rounding=rounding,
        num_rescored_off=int(np.count_nonzero(off)),
        largest_off=float(off.max(initial=0.0)),
        drafted=drafted,
        ends_differ=parting.ends_differ,
        is_exact=is_exact,
        num_inexact=sum(map(ne, map(_digest, single), bits)),
        tree=tree,
    )


def _parting(
    engine: LocalEngine,
    tokens: Sequence[int],
    answers: tuple[Sequence[int], Sequence[int]],
    draft_length: int,
    sampling: CheckedSampling,
) -> Parting:
    """Compare an answer of plain decoding with another one."""
    plain, other = answers
    if plain == other:
        return Parting(None)
    shorter = min(len(plain), len(other))
    index = next((n for n in range(shorter) if plain[n] != other[n]), shorter)
    if index == shorter:
        return Parting(index, ends_differ=True)
    rows = _rows_at(engine, tokens, other, index, draft_length)
    scored = [sampling.scores(row, index) for row in rows]
    gap = max(abs(float(row[plain[index]] - row[other[index]])) for row in scored)
    return Parting(index, gap, float(np.abs(rows[0] - rows[1]).max()))


def _rows_at(
    engine: LocalEngine, tokens: Sequence[int], answer: Sequence[int], index: int, draft_length: int
) -> list[npt.NDArray[np.float32]]:
    """Return the logits at one token of the answer, from single-token and from batched passes."""
    return [_row_at(engine, tokens, answer, index, n) for n in (1, draft_length + 1)]


def _answer(
    engine: LocalEngine, tokens: Sequence[int], sampling: CheckedSampling, drafting: dict[str, Any]
) -> list[int]:
    options = asdict(sampling) | {"top_k": 0, "top_p": 1.0, "min_p": 0.0} | drafting
    if not sampling.temperature:  # with a seed, no draft would be longer than exact ones
        del options["seed"]
    chunks = engine.generate(tokens, **options)
    return [token for chunk in chunks for token in chunk.tokens]


def _scored(
    rows: Iterator[Logits], answer: Sequence[int], sampling: CheckedSampling
) -> tuple[npt.NDArray[np.float32], list[bytes]]:
    """Return each token's distance below the best score of its row, and a digest of each row."""
    distances: list[float] = []
    digests: list[bytes] = []
    for index, (row, token) in enumerate(zip(rows, answer, strict=True)):
        scores = sampling.scores(row, index)
        distances.append(float(scores.max() - scores[token]))
        digests.append(_digest(row))
    return np.asarray(distances, dtype=np.float32), digests


def _digest(row: Logits) -> bytes:
    return blake2b(row.tobytes()).digest()


def _row_at(
    engine: LocalEngine, tokens: Sequence[int], answer: Sequence[int], index: int, at_once: int
) -> npt.NDArray[np.float32]:
    """Return the logits at one token of the answer, evaluated `at_once` tokens per pass."""
    rows = engine.rescore(tokens, answer[: index + at_once], at_once)
    return next(islice(rows, index, None)).copy()
