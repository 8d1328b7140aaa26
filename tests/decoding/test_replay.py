"""A replay of an answer accepts as much of its drafts as the answer did."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest

import pytest
from scipy import stats

from decoding.test_seeds import DRAFTERS, SAME, half_right, sampling_at
from decoding.toy_answers import GREEDY, WHOLE, ToyPair, remembered_distributions, tokens_of
from specchat.decoding.chunk import Chunk
from specchat.decoding.distribution import Distribution
from specchat.decoding.ports import Drafter
from specchat.decoding.replay import Replay
from specchat.decoding.request import Request
from specchat.decoding.verification import Verifier, verify_replayed
from specchat.errors import InvalidOption
from specchat.options.declarations import Sampling
from tables import table

LENGTH = 4


@table("wrap", DRAFTERS.values(), ids=DRAFTERS)
@table("temperature", [0.0, 0.8])
def test_what_is_certain_is_accepted_as_it_was(
    temperature: float, wrap: Callable[[Drafter], Drafter]
) -> None:
    """At temperature 0 and with a seed, step by step; plain decoding has the same tokens."""
    options = {"sampling": sampling_at(temperature), "is_seeded": temperature > 0, "seed": 3}
    pair = ToyPair(*half_right(SAME), wrap=wrap)
    text = pair.answer(draft_length=LENGTH, max_tokens=200, **options)
    accepted = pair.statistics.acceptance_histogram
    replay = Replay(text, len(text))
    pair = ToyPair(*half_right(SAME), wrap=wrap)

    assert pair.answer(draft_length=LENGTH, replay=replay, **options) == text
    assert pair.statistics.acceptance_histogram == accepted
    assert pair.statistics.accepted > 0
    assert pair.answer(draft_length=0, replay=replay, **options) == text
    assert pair.statistics.steps == len(text)


@table("part", [1, 7, 32])
def test_parts_of_a_replay_are_the_whole(part: int) -> None:
    """Each goes on behind the last step of the one before, which may go beyond its part."""
    pair = ToyPair(*half_right(SAME))
    text = pair.answer(draft_length=LENGTH, max_tokens=100)
    steps = pair.statistics.steps, pair.statistics.accepted
    chunks: list[Chunk] = []
    counts = [0, 0]
    for end in range(part, len(text) + part, part):
        done = tokens_of(chunks)
        if len(done) < min(end, len(text)):
            replay = Replay(text, min(end, len(text)))
            more = pair.chunks(draft_length=LENGTH, begun=chunks, replay=replay)
            counts[0] += pair.statistics.steps
            counts[1] += pair.statistics.accepted
            assert more[-1].finish == "length"
            chunks = [each for each in more if each.tokens]
            assert replay.end <= len(tokens_of(chunks)) <= replay.end + LENGTH

    assert tokens_of(chunks) == text
    assert tuple(counts) == steps


def histograms(sampling: Sampling) -> tuple[list[int], list[int]]:
    """Return how many steps accepted 0, 1, ... tokens, in answers and in their replays."""
    pair = ToyPair(*half_right(SAME))
    sums: tuple[list[int], list[int]] = [], []
    with remembered_distributions():
        for seed in range(40):
            text = pair.answer(sampling=sampling, seed=seed, draft_length=LENGTH, max_tokens=200)
            _add(sums[0], pair.statistics.acceptance_histogram)
            again = pair.answer(
                sampling=sampling, seed=1000 + seed, draft_length=LENGTH,
                replay=Replay(text, len(text)),
            )  # fmt: skip
            _add(sums[1], pair.statistics.acceptance_histogram)
            assert again == text
    return sums


def _add(counts: list[int], more: list[int]) -> None:
    counts[:] = [one + other for one, other in zip_longest(counts, more, fillvalue=0)]


def alike(counts: tuple[list[int], list[int]]) -> float:
    """Return the p-value of two histograms having one law."""
    pairs = list(zip_longest(*counts, fillvalue=0))
    return float(stats.chi2_contingency(list(zip(*pairs, strict=True))).pvalue)


@pytest.mark.slow(keep=1)
@table("sampling", [WHOLE, sampling_at(0.8)])
def test_drawn_drafts_are_accepted_as_often_as_they_were(sampling: Sampling) -> None:
    """By block verification, at each place of a draft (false alarm 1e-4 each)."""
    assert alike(histograms(sampling)) > 1e-4


def _drawn_anew(request: Request, distribution: Distribution, index: int) -> int:
    return request.draw(distribution, index)


def _accepts_all(usual: Verifier, text: list[int], *, is_coupled: bool) -> Verifier:
    del is_coupled
    return verify_replayed(usual, text, is_coupled=True)


def _one_by_one(usual: Verifier, text: list[int], *, is_coupled: bool) -> Verifier:
    """Accept as token-by-token rejection would, which accepts less behind others."""

    def without_prefixes(*arguments: object) -> object:
        return usual(*arguments)._replace(prefix_probabilities=())  # type: ignore[arg-type]

    return verify_replayed(without_prefixes, text, is_coupled=is_coupled)  # type: ignore[arg-type]


@pytest.mark.slow(keep=1)
@table(
    ("name", "mutant"),
    [
        ("Request.draw_draft", _drawn_anew),
        ("verify_replayed", _accepts_all),
        ("verify_replayed", _one_by_one),
    ],
)
def test_other_laws_are_caught(name: str, mutant: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts drawn anew, all right ones accepted, or each by itself: the fit is worth something."""
    monkeypatch.setattr(f"specchat.decoding.request.{name}", mutant)
    assert alike(histograms(WHOLE)) < 1e-6


@table("begun", [(), (0, 1), (4, 3, 3)])
@table("end", [0, 3, 6])
def test_a_replay_goes_on_where_its_answer_was(begun: tuple[int, ...], end: int) -> None:
    """It has something left to decode, and begins with tokens of its answer."""
    text = (0, 1, 2, 3, 4)
    steps = [Chunk("", begun, ("target",) * len(begun))] if begun else []
    is_right = text[: len(begun)] == begun and len(begun) < end <= len(text)
    if is_right:
        assert Request((1,), GREEDY, begun=steps, replay=Replay(text, end)).replay
        return
    with pytest.raises(InvalidOption, match="replay"):
        Request((1,), GREEDY, begun=steps, replay=Replay(text, end))
