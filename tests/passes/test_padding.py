"""Target passes are padded where that is faster, and nothing else changes."""

from __future__ import annotations

import pytest

from decoding.toy_answers import GREEDY, WHOLE, ToyPair
from pacing.simulated_pair import Machine, always, best_fixed, knowledge_of
from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.toy import random_logits
from specchat.options.declarations import Sampling
from specchat.pacing import pacer as pacing
from specchat.pacing.pacer import LearningPacer
from specchat.pacing.padding import padded_row, padded_size
from specchat.pacing.pass_costs import PassCosts

BLOCKS = [0.9, 1.0, 1.5, 1.6, 1.02, 2.1, 2.0, 2.2]
"""Costs by number of tokens, the first one of plain decoding: four cost hardly more than one."""


def test_costs_are_those_of_padded_passes() -> None:
    """Where that is clearly faster and long enough, and never those of one token."""
    assert padded_row(BLOCKS, 7) == [0.9, 1.0, 1.02, 1.02, 1.02, 2.1, 2.0, 2.2]
    assert padded_row(BLOCKS, 3) == BLOCKS
    assert padded_row(BLOCKS, 0) is BLOCKS


def test_a_pass_is_padded_to_the_fastest_size() -> None:
    """As far as there is room, and by as little as possible."""
    assert [padded_size(BLOCKS, size, 7) for size in range(1, 8)] == [1, 4, 4, 4, 5, 6, 7]
    assert [padded_size(BLOCKS, size, 3) for size in range(1, 8)] == [1, 2, 3, 4, 5, 6, 7]
    assert padded_size([1.0, 1.0, 1.5, 1.2, 1.2], 2, 4) == 3


def test_whether_padding_pays_is_learned() -> None:
    """It ends once longer passes turn out not to be faster; without permission it never begins."""
    costs = PassCosts(33)
    for length in (1, 2, 3, 4):
        costs.observe(length, 0, BLOCKS[length])
    assert costs.padded(2, 0, 33) == 2

    costs.longest_padded = 8
    costs._forget_rows()
    assert costs.padded(2, 0, 33) == 4
    assert costs.seconds(2, 0) == pytest.approx(1.02)
    for _ in range(100):
        costs.observe(1, 0, 1.0)
        costs.observe(4, 0, 1.6)
    assert costs.padded(2, 0, 33, is_trial=True) == 2
    for _ in range(20):
        costs.observe(2, 0, 1.5)
    assert costs.padded(2, 0, 33) == 2
    assert costs.seconds(2, 0) == pytest.approx(1.5, rel=0.1)


@pytest.mark.parametrize("sampling", [GREEDY, WHOLE], ids=["greedy", "sampled"])
def test_padding_draws_nothing(sampling: Sampling, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same random numbers the tokens are those of passes that are not padded."""
    sizes: list[int] = []

    def padded(_: FixedPacer, num_tokens: int, most: int) -> int:
        sizes.append(min(-4 * (-num_tokens // 4), most))
        return sizes[-1]

    def answers() -> list[list[int]]:
        pair = ToyPair(random_logits(5, 1), random_logits(5, 2), capacity=60)
        return [
            pair.answer(sampling=sampling, seed=seed, draft_length=length, max_tokens=100)
            for seed in range(5)
            for length in (1, 2, 5)
        ]

    usual = answers()
    monkeypatch.setattr(FixedPacer, "padded", padded)

    assert answers() == usual
    assert {4, 8} <= set(sizes)


def test_padding_beats_every_fixed_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short drafts pay where long ones cost too many draft passes, and short passes too much."""
    costs = [0.0, *BLOCKS[1:], *(2.3 + 0.3 * more for more in range(40))]
    machine = Machine(costs, 0.2, always(0.4))
    best = best_fixed(machine)
    monkeypatch.setattr(pacing, "perf_counter", machine.clock)
    rate = machine.decode(LearningPacer(knowledge_of(machine), is_greedy=True), 1500)
    other = Machine(costs, 0.2, always(0.4))
    monkeypatch.setattr(pacing, "perf_counter", other.clock)
    knowledge = knowledge_of(other)
    knowledge.target.longest_padded = 0
    without = other.decode(LearningPacer(knowledge, is_greedy=True), 1500)

    assert rate > 1.05 * best
    assert rate > 1.08 * without
