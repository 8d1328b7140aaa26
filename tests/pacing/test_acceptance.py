"""The acceptance rate of draft tokens: learned from few tokens, and relearned."""

from __future__ import annotations

import numpy as np
import pytest

from specchat.pacing.acceptance import NUM_EQUAL_POSITIONS, AcceptanceModel
from tables import table


def taught(
    rates: list[float], *, num_each: int = 100, seed: int = 0, confidence: float = 0.9
) -> AcceptanceModel:
    """Return a model that saw tokens accepted at these rates, one after the other."""
    random = np.random.default_rng(seed)
    model = AcceptanceModel()
    for rate in rates:
        for _ in range(num_each):
            model.predict(confidence)
            model.observe(confidence, bool(random.random() < rate))
    return model


def middle(model: AcceptanceModel, optimism: float = 0.0) -> float:
    """Return the middle one of the probabilities of a token not seen yet."""
    return model.expected(optimism=optimism)[0][1]


@table("rate", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_rate_is_learned_whatever_the_confidence(rate: float) -> None:
    """The drafter is always confident; the mean over many histories is the true rate."""
    found = [taught([rate], seed=seed).probability(0.9) for seed in range(40)]

    assert np.mean(found) == pytest.approx(rate, abs=0.06)


def test_a_hopeless_drafter_is_found_out_soon() -> None:
    """Six rejections are enough."""
    model = taught([0.0], num_each=6)

    assert model.probability(0.9) < 0.35


@pytest.mark.parametrize(("before", "after"), [(0.9, 0.2), (0.2, 0.9)])
def test_a_change_is_followed_within_a_few_dozen_tokens(before: float, after: float) -> None:
    """Forty tokens after the text changed, the estimate has moved most of the way."""
    found = []
    for seed in range(40):
        model = taught([before], num_each=300, seed=seed)
        random = np.random.default_rng(seed)
        for _ in range(40):
            model.observe(0.9, bool(random.random() < after))
        found.append(model.probability(0.9))

    assert abs(np.mean(found) - after) < 0.3 * abs(before - after)


def test_an_informative_confidence_is_used() -> None:
    """Confident tokens are accepted, others are not, and both are learned."""
    model = AcceptanceModel()
    random = np.random.default_rng(0)
    for _ in range(400):
        is_sure = bool(random.random() < 0.5)
        model.observe(0.97 if is_sure else 0.55, bool(random.random() < 0.2 + 0.7 * is_sure))

    assert model.probability(0.97) > 0.75
    assert model.probability(0.55) < 0.4


def test_optimism_is_above_expectation_and_grows_with_silence() -> None:
    """What was learned long ago counts less and less, until the next outcome."""
    model = taught([0.1], num_each=60)
    expected, hoped = middle(model), middle(model, model.optimism)
    for _ in range(300):
        model.decay()

    assert expected < hoped < 0.6
    assert middle(model, model.optimism) > 0.8
    assert middle(model) == expected
    before = model.optimism
    model.observe(0.9, 0.0)
    assert model.optimism < 0.7 * before


def test_what_was_learned_can_be_kept() -> None:
    """A record restores the model it was made from; a malformed one is ignored."""
    model, again = taught([0.4]), AcceptanceModel()
    again.learn_record([float("nan"), 1.0, 0.0])
    again.learn_record([1.0])
    assert again.probability(0.9) == AcceptanceModel().probability(0.9)
    again.learn_record(model.as_record())

    assert again.probability(0.9) == pytest.approx(model.probability(0.9), abs=0.05)
    assert again.expected()[0] == pytest.approx(model.expected()[0], abs=0.05)


def test_what_was_hardly_reached_hardly_counts() -> None:
    """A token behind others that were almost certainly rejected teaches almost nothing."""
    model = AcceptanceModel()
    before = model.probability(0.9)
    model.observe(0.9, 0.0, reached=0.05)
    assert model.probability(0.9) > before - 0.1
    model.observe(0.9, 0.0)
    assert model.probability(0.9) < before - 0.2


def test_what_the_position_says_is_learned() -> None:
    """Later tokens are accepted more often, and that is expected of others at their position."""
    found = []
    for seed in range(20):
        model, random = AcceptanceModel(), np.random.default_rng(seed)
        for _ in range(400):
            position = float(random.random() < 0.5)
            accepted = bool(random.random() < 0.7 + 0.2 * position)
            model.observe(0.9, accepted, position=position)
            model.predict(0.9, position)
        found.append([sum(each) / 3 for each in model.expected()[::NUM_EQUAL_POSITIONS]])
    first, later = np.mean(found, 0)

    assert first == pytest.approx(0.75, abs=0.07)
    assert later > first + 0.05


def test_an_assumed_weight_of_the_position_holds_until_more_is_known() -> None:
    """The assumption comes from measurements of other pairs."""
    model = AcceptanceModel(position_weight=0.7)

    assert model.probability(0.75, 1.0) > model.probability(0.75, 0.0) + 0.09


@pytest.mark.parametrize(("spread", "teaches_more"), [(0.03, True), (0.45, False)])
def test_chances_teach_more_where_they_vary_less_than_outcomes(
    spread: float, teaches_more: bool
) -> None:
    """A dozen that agree teach as much as dozens of outcomes; chances like outcomes no more."""
    doubts = []
    for seed in range(20):
        models, random = (AcceptanceModel(), AcceptanceModel()), np.random.default_rng(seed)
        for _ in range(40):
            chance = 0.5 + spread * random.choice([-1, 1])
            for model, kept in zip(models, (chance, random.random() < chance), strict=True):
                model.observe(0.75, float(kept))
        doubts.append(models[0].optimism / models[1].optimism)

    assert (np.mean(doubts) < 0.75) == teaches_more
    assert np.mean(doubts) < 1.1
