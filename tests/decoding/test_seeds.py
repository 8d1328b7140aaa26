"""Seeds on toy models: one text for each, whatever drafts and however much, and the right text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from decoding.test_loop import SAMPLINGS, Dropping, transition_p_value
from decoding.toy_answers import WHOLE, ToyPair, remembered_distributions
from drafting.toy_vocabularies import MODELS, ToyModels
from specchat.decoding.distribution import Distribution
from specchat.decoding.noise import Noise
from specchat.decoding.ports import Drafter
from specchat.decoding.proposal import DraftToken, Hint
from specchat.decoding.request import Request
from specchat.decoding.verification import Verifier, verify_by_block, verify_by_noise
from specchat.drafting.combined import CombinedDrafter
from specchat.drafting.suffix import SuffixDrafter
from specchat.options.declarations import Sampling
from specchat.pacing.knowledge import Knowledge
from specchat.pacing.pacer import LearningPacer
from specchat.testing.toy import LogitsAfter, random_logits
from tables import table

DRAFTERS: dict[str, Callable[[Drafter], Drafter]] = {
    "model": lambda drafter: drafter,
    "suffix": lambda _: SuffixDrafter(),
    "auto": lambda drafter: CombinedDrafter(SuffixDrafter(), drafter),  # type: ignore[arg-type]
}
SAME = MODELS["same tokens"]
NUM_TOKENS = 12


def half_right(models: ToyModels) -> tuple[LogitsAfter, LogitsAfter]:
    """Return a target, and a draft model that is right about half of the time."""
    right, wrong = models.draft(1), models.draft(2)
    return models.target(1), lambda tokens: 0.6 * right(tokens) + 0.4 * wrong(tokens)


def sampling_at(temperature: float) -> Sampling:
    """Return options that make use of everything the distribution of a token depends on."""
    return Sampling(
        temperature=temperature, top_k=4, repeat_penalty=1.1, repeat_last_n=8, logit_bias={0: 0.5}
    )


def texts_by_draft(
    temperature: float, seeds: Sequence[int], models: ToyModels = SAME
) -> list[list[list[int]]]:
    """Return each seed's texts: without drafts, then with each drafter at several lengths.

    Even seeds are drafted at lengths 1, 3, 5 and 7, odd ones at 2, 4, 6 and 8. A drafter goes from
    answer to answer, as in a conversation.
    """
    options = {"sampling": sampling_at(temperature), "max_tokens": NUM_TOKENS, "is_seeded": True}
    plain = ToyPair(models.target(1))
    pairs = [
        ToyPair(*half_right(models), wrap=wrap, tokens=models.token_map())
        for wrap in DRAFTERS.values()
    ]
    with remembered_distributions():
        return [
            [
                plain.answer(seed=seed, **options),
                *(
                    pair.answer(seed=seed, draft_length=length, **options)
                    for pair in pairs
                    for length in range(1 + seed % 2, 9, 2)
                ),
            ]
            for seed in seeds
        ]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("models", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("temperature", [0.3, 0.8, 1.5])
def test_a_seed_has_one_text(temperature: float, models: ToyModels) -> None:
    """20 seeds, without drafts and with each drafter, at draft lengths 1 to 8 among them."""
    texts = texts_by_draft(temperature, range(20), models)

    assert all(text == alike[0] for alike in texts for text in alike)
    assert len({tuple(alike[0]) for alike in texts}) > 14


class Fickle(LearningPacer):
    """A pacer that follows no rule, and learns what it should not."""

    def __init__(self, seed: int) -> None:
        """Decide by chance."""
        super().__init__(Knowledge(), is_greedy=False, pass_origin="draft")
        self.chance = np.random.default_rng(seed).random

    def wants_pass(self, origin: str, num_tokens: int) -> bool:
        """Perhaps."""
        return self.room > 0 and self.chance() < 0.7

    def wants_token(self, origin: str, hint: Hint) -> bool:
        """Perhaps."""
        wants = self.chance() < 0.8
        if wants:
            self._known.append((origin, hint))
        return wants


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("wrap", [*DRAFTERS.values(), Dropping], ids=[*DRAFTERS, "dropping"])
def test_no_pace_changes_the_text(wrap: Callable[[Drafter], Drafter]) -> None:
    """Draft lengths may follow the clock, chance, or even the tokens that were drawn."""
    target, draft = half_right(SAME)
    plain, pair = ToyPair(target), ToyPair(target, draft, wrap=wrap)
    drafted = 0
    for seed in range(40):
        options = {"sampling": WHOLE, "seed": seed, "max_tokens": 24, "is_seeded": True}
        text = pair.answer(draft_length=8, pacer=Fickle(seed), **options)
        drafted += pair.statistics.drafted
        assert text == plain.answer(**options)
    assert drafted > 0


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("draft_length", [0, 3])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS.keys())
def test_texts_over_seeds_fit_the_exact_distribution(sampling: Sampling, draft_length: int) -> None:
    """Every token of 60 seeds' answers fits (10 tests, false alarm 1e-5 each: 1e-4 in all).

    Drafts of all lengths give the same texts: `test_a_seed_has_one_text`.
    """
    p_value = transition_p_value(
        random_logits(5, 1),
        random_logits(5, 2),
        sampling,
        draft_length=draft_length,
        is_seeded=True,
    )

    assert p_value > 1e-5


def chance_of_acceptance(p: np.ndarray, q: np.ndarray) -> float:
    """Return the probability that both win the same race with the same token.

    It is x if no rate of p or q over that of x exceeds its time: 1 / sum_y max(p_y/p_x, q_y/q_x).
    """
    ratios = np.maximum(p[None, :] / p[:, None], q[None, :] / q[:, None])
    return float((1.0 / ratios.sum(1)).sum())


def acceptance_z() -> float:
    """Return how many standard errors the accepted share of 4,000 drafts is off what it should be.

    Each draft is one token for a place of its own, between unlike distributions.
    """
    generator = np.random.default_rng(8)
    off, variance = 0.0, 0.0
    for number in range(4000):
        p, q = generator.dirichlet(np.ones(6), 2)
        target, proposed = (Distribution(np.arange(6), weights) for weights in (p, q))
        request = Request([1], WHOLE, noise=Noise(number // 8))
        drafted = DraftToken(request.draw(proposed, number % 8), proposed, "draft")
        verdict = request.verifier_at(number % 8)([drafted], ([target] * 2).__getitem__, float)
        chance = chance_of_acceptance(p, q)
        distance = 0.5 * np.abs(p - q).sum()
        assert (1 - distance) / (1 + distance) - 1e-9 <= chance <= 1 - distance + 1e-9
        off += verdict.num_accepted - chance
        variance += chance * (1 - chance)
    return float(off / variance**0.5)


@pytest.mark.slow
def test_drafts_are_accepted_as_often_as_coupling_allows() -> None:
    """The share is what two races with the same numbers agree on (false alarm 1e-5)."""
    assert abs(acceptance_z()) < 4.42


@table("draft_length", [1, 2, 5])
def test_an_identical_draft_is_always_accepted(draft_length: int) -> None:
    """Noise is shared at every place of the answer."""
    pair = ToyPair(random_logits(5, 1), random_logits(5, 1))
    for seed in range(20):
        pair.answer(sampling=WHOLE, seed=seed, draft_length=draft_length, is_seeded=True)

        assert pair.statistics.acceptance_rate == 1.0


# --- mutants: each of these must fail a test above


@pytest.mark.slow
def test_noise_that_is_not_shared_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drafter with noise of its own leaves the text alone but loses acceptance."""
    monkeypatch.setattr(Request, "draw", lambda _, q, index: Noise(12345).draw(q, index))

    assert acceptance_z() < -10


@pytest.mark.slow
def test_noise_shifted_by_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drafter that draws with the noise of the next index loses acceptance too."""
    monkeypatch.setattr(Request, "draw", lambda self, q, index: self.noise.draw(q, index + 1))

    assert acceptance_z() < -10


@pytest.mark.slow
def test_noise_used_again_at_the_next_place_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two indices in a row with the same numbers spoil the distribution of the second."""
    draw = Noise.draw
    monkeypatch.setattr(Noise, "draw", lambda self, p, index: draw(self, p, index // 2))
    same = random_logits(5, 1), random_logits(5, 2)

    assert transition_p_value(*same, WHOLE, draft_length=3, is_seeded=True) < 1e-9


@pytest.mark.slow
def test_indices_counted_by_drafts_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """If every step began with the first noise again, drafts would change the text.

    A few seeds keep theirs by chance: with little noise the toy repeats itself.
    """

    def verifier_at(self: Request, *_: object) -> Verifier:
        assert self.noise is not None
        return verify_by_noise(self.noise, 0)

    monkeypatch.setattr(Request, "verifier_at", verifier_at)
    texts = texts_by_draft(0.8, range(20))

    assert sum(all(text == alike[0] for text in alike) for alike in texts) < 5


def test_block_verification_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verification that looks at the drafter's distribution gives other texts with other drafts."""
    monkeypatch.setattr(Request, "verifier_at", lambda *_: verify_by_block)
    texts = texts_by_draft(0.8, range(5))

    assert not any(all(text == alike[0] for text in alike) for alike in texts)
