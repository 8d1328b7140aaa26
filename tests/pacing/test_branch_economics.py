"""Which branches pay: the best number of all, none where passes are dear, some where not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from specchat.decoding.distribution import Distribution
from specchat.decoding.draft_tree import chances_of, likeliest, with_ancestors
from specchat.decoding.proposal import Branch, DraftToken, Hint
from specchat.pacing.branch_economics import best_number
from specchat.pacing.knowledge import Knowledge
from specchat.pacing.pacer import LearningPacer

FLAT = dict.fromkeys(range(1, 34), 0.01)
GPU = {1: 0.01, 4: 0.0105, 8: 0.011, 16: 0.012, 32: 0.014}
SLOPE = {1: 0.01, 33: 0.02}
STEEP = {length: 0.01 * length for length in (1, 2, 4, 8, 16, 33)}


def branch(fork: int, behind: int = -1, confidence: float = 0.5, token: int = 9) -> Branch:
    """Return a branch."""
    return Branch(token, fork, "draft", confidence, behind)


def test_a_branch_is_worth_the_chance_that_the_target_goes_there() -> None:
    """Where the draft breaks, or its end; behind another branch only if that is right."""
    branches = [branch(0), branch(1), branch(2), branch(1, behind=1), branch(2)]
    found = chances_of([0.8, 0.5], branches, [0.5, 0.5, 0.5, 0.25, 1.0])
    assert found == pytest.approx([0.2 * 0.5, 0.4 * 0.5, 0.4 * 0.5, 0.4 * 0.5 * 0.25, 0.4])
    assert likeliest(found, 2) == [4, 1]
    assert with_ancestors(branches, [3, 0], 2) == [1, 3]
    assert with_ancestors(branches, [3, 0], 3) == [0, 1, 3]


def test_the_best_number_is_that_of_all() -> None:
    """On any staircase, compared with every number by itself."""
    random = np.random.default_rng(7)
    for _ in range(500):
        chances = sorted(random.uniform(0, 0.5, int(random.integers(1, 20))).tolist(), reverse=True)
        prices = [0.0, *random.uniform(-0.1, 0.4, 20).cumsum().tolist()]
        before, worth = int(random.integers(1, 12)), float(random.uniform(0.7, 1.0))
        most = min(len(chances), len(prices) - before - 1)
        gains = [
            worth * sum(chances[:count]) - prices[before + count] + prices[before]
            for count in range(most + 1)
        ]
        found = best_number(chances, prices, before, worth)
        assert gains[found] == pytest.approx(max(gains))
    assert best_number([0.5], [1.0, 2.0], 2) == 0


def paced(costs: dict[int, float]) -> tuple[LearningPacer, float]:
    """Return a pacer in a step that drafts, and which share it takes of three branches a place."""
    knowledge = Knowledge()
    knowledge.target.begin_with(costs)
    knowledge.costs_of("draft").begin_with({1: 0.0005, 2: 0.0005})
    pacer = LearningPacer(knowledge, is_greedy=True, pass_origin="draft")
    for _ in range(30):
        knowledge.acceptance_of("draft", is_greedy=True).observe(0.75, 0.6)
    pacer.begin_step(10, 16)
    draft = drafted(pacer, 3)
    places = [(fork, rank) for fork in range(len(draft) + 1) for rank in range(3)]
    branches = [branch(fork, confidence=0.7 / 3**rank) for fork, rank in places]
    return pacer, len(pacer.choose_branches(draft, branches, 16)) / len(branches)


def drafted(pacer: LearningPacer, count: int) -> list[DraftToken]:
    """Let a step draft some tokens."""
    draft: list[DraftToken] = []
    while len(draft) < count and pacer.wants_pass("draft", 1):
        if not pacer.wants_token("draft", Hint(0.75)):
            break
        draft.append(DraftToken(1, Distribution.certain(1), "draft"))
    return draft


def test_branches_are_taken_where_passes_are_flat() -> None:
    """All that may be right on a flat staircase, many on a GPU's, none on a steep one."""
    assert paced(FLAT)[1] == 1.0
    assert 0.3 < paced(GPU)[1] <= 1.0
    assert paced(STEEP)[1] == 0.0


def test_nothing_is_looked_for_where_nothing_can_pay() -> None:
    """Finding branches takes time of its own."""
    assert paced(GPU)[0].num_siblings("draft") > 0
    assert paced(STEEP)[0].num_siblings("draft") == 0


def test_branches_that_are_never_right_are_given_up() -> None:
    """What was offered teaches, chosen or not; so do those that are right."""
    numbers: dict[bool, Sequence[int]] = {}
    for is_right in (False, True):
        pacer, _ = paced(SLOPE)
        pacer.end_step([9 if is_right else 7], 0.01)
        for _ in range(60):
            pacer.begin_step(10, 16)
            draft = drafted(pacer, 2)
            numbers[is_right] = pacer.choose_branches(draft, [branch(0), branch(0, token=8)], 16)
            num_read = 1 + len(draft) + len(numbers[is_right])
            pacer.end_step([9 if is_right else 7], 0.01 + (num_read - 1) * 0.01 / 32)
    assert len(numbers[False]) == 0
    assert len(numbers[True]) == 2


def test_reading_branches_pays_where_draft_passes_are_cheap() -> None:
    """Followers are looked for behind likely branches, as long as the draft pass costs little."""
    counts = []
    for draft_costs in ({1: 0.0005, 2: 0.0005, 8: 0.0005}, {1: 0.0005, 2: 0.01, 8: 0.05}):
        knowledge = Knowledge()
        knowledge.target.begin_with(GPU)
        knowledge.costs_of("draft").begin_with(draft_costs)
        pacer = LearningPacer(knowledge, is_greedy=True, pass_origin="draft")
        pacer.begin_step(10, 16)
        drafted(pacer, 1)
        assert pacer.wants_pass("draft", 1)
        branches = [branch(0, confidence=0.8), branch(0, confidence=0.2)]
        counts.append(len(pacer.choose_to_read("draft", branches, {0, 1}, 8)))
    assert counts[0] > 0
    assert counts[1] == 0
