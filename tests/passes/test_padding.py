"""Target passes are padded where that is faster, and nothing else changes."""

from __future__ import annotations

import statistics
from itertools import product

import pytest

from decoding.toy_answers import GREEDY, WHOLE, ToyPair
from scripts.support.simulated_pair import SimulatedMachine, always, best_fixed, knowledge_of
from specchat.decoding.distribution import Distribution
from specchat.decoding.draft_passes import DraftPasses
from specchat.decoding.draft_tree import DraftTree
from specchat.decoding.ports import PaddingCosts
from specchat.decoding.proposal import DraftToken
from specchat.decoding.request import Request
from specchat.options.declarations import Sampling
from specchat.pacing import pacer as pacing
from specchat.pacing.pacer import LearningPacer
from specchat.passes.padding import padded_row, padded_size
from specchat.passes.pass_costs import PassCosts
from specchat.testing.toy import ToyLanguageModel, random_logits

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
    forbidden, costs = PassCosts(33), PassCosts(33)
    costs.longest_padded = 8
    for each in (forbidden, costs):
        each.begin_with({length: BLOCKS[length] for length in (1, 2, 3, 4)})
    assert forbidden.padded(2, 0, 33) == 2
    assert costs.padded(2, 0, 33) == 4
    assert costs.seconds(2, 0) == pytest.approx(1.02)
    for _ in range(100):
        costs.observe(1, 0, 1.0)
        costs.observe(4, 0, 1.6)
    assert costs.padded(2, 0, 33) == 2
    for _ in range(20):
        costs.observe(2, 0, 1.5)
    assert costs.padded(2, 0, 33) == 2
    assert costs.seconds(2, 0) == pytest.approx(1.5, rel=0.1)


@pytest.mark.parametrize("sampling", [GREEDY, WHOLE], ids=["greedy", "sampled"])
def test_padding_draws_nothing(sampling: Sampling) -> None:
    """With the same random numbers the tokens are those of passes that are not padded."""
    sizes: list[int] = []

    class ToFours:
        def padded(self, num_tokens: int, depth: int, most: int) -> int:
            assert depth + most == 60
            sizes.append(min(-4 * (-num_tokens // 4), most))
            return sizes[-1]

    def answers(costs: PaddingCosts | None = None) -> list[list[int]]:
        pair = ToyPair(random_logits(5, 1), random_logits(5, 2), capacity=60, padding=costs)
        return [
            pair.answer(sampling=sampling, seed=seed, draft_length=length, max_tokens=100)
            for seed in range(5)
            for length in (1, 2, 5)
        ]

    assert answers(ToFours()) == answers()
    assert {4, 8} <= set(sizes)


@pytest.mark.parametrize("size", [2, 4])
def test_the_length_really_run_is_learned(size: int) -> None:
    """A padded pass says nothing of passes over the tokens that it had to read."""
    costs = PassCosts(33)
    costs.longest_padded = 8
    costs.begin_with({length: BLOCKS[length] for length in (1, 2, 3, 4)})
    toy = ToyLanguageModel(random_logits(5, 1), capacity=10 if size == 4 else 3)
    passes = DraftPasses(toy, [1, 2], Request([1, 2], GREEDY), costs)
    passes.read_prompt(0, None)
    draft = DraftTree([DraftToken(3, Distribution.certain(3), "draft")])
    assert len(passes.evaluate(draft)) == 2
    assert toy.length == 1 + size
    costs.observe(2, 1, 1.2)

    single, *several = (seconds / BLOCKS[length] for _, length, seconds in costs.as_record())
    changed = [seconds != pytest.approx(single) for seconds in several]
    assert changed == [length == size for length in (2, 3, 4)]


@pytest.mark.slow
def test_padding_beats_every_fixed_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short drafts pay where long ones cost too many draft passes, and short passes too much."""
    costs = [0.0, *BLOCKS[1:], *(2.3 + 0.3 * more for more in range(40))]
    best = best_fixed(SimulatedMachine(costs, 0.2, always(0.4)))
    padded, bare = list[float](), list[float]()
    for seed, rates in product(range(5), (padded, bare)):
        machine = SimulatedMachine(costs, 0.2, always(0.4), seed)
        monkeypatch.setattr(pacing, "perf_counter", machine.clock)
        knowledge = knowledge_of(machine)
        if rates is bare:
            knowledge.target.longest_padded = 0
        pacer = LearningPacer(knowledge, is_greedy=True, pass_origin="draft")
        rates.append(machine.decode(pacer, 1500))

    assert statistics.mean(padded) > 1.05 * best
    assert statistics.mean(padded) > 1.08 * statistics.mean(bare)


def test_a_change_of_length_has_a_price() -> None:
    """Where it has, a pass is padded to the last one's length if that takes little more."""
    costs = PassCosts(16)
    costs.longest_padded = 16
    costs.begin_with({1: 1.0, 2: 1.0, 3: 1.1, 4: 1.12, 8: 2.0, 16: 4.0})
    assert [costs.padded(size, 0, 16) for size in (4, 3, 2, 8, 4)] == [4, 3, 2, 8, 4]
    costs.change_cost = 0.15
    assert [costs.padded(size, 0, 16) for size in (4, 3, 2, 4, 8, 4)] == [4, 4, 4, 4, 8, 4]
    assert costs.padded(3, 0, 3) == 3  # the context has no room for more
