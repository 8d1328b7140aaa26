"""Which branches pay: the best number of all, none where passes are dear, some where not."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
import pytest

from specchat.decoding.distribution import Distribution
from specchat.decoding.draft_tree import chances_of, likeliest
from specchat.decoding.proposal import Branch, DraftToken, Hint
from specchat.pacing.branch_pacing import best_number
from specchat.pacing.knowledge import Knowledge
from specchat.pacing.pacer import LearningPacer
from specchat.pacing.recent_drafts import PastDraft

FLAT = dict.fromkeys(range(1, 34), 0.01)
GPU = {length: 0.01 + 0.00013 * (length - 1) for length in range(1, 34)}
SLOPE = {length: 0.01 + 0.0003 * (length - 1) for length in range(1, 34)}
STEEP = {length: 0.01 * length for length in range(1, 34)}


def branch(fork: int, behind: int = -1, confidence: float = 0.5, token: int = 9) -> Branch:
    """Return a branch."""
    return Branch(token, fork, "draft", confidence, behind)


def test_a_branch_is_worth_the_chance_that_the_target_goes_there() -> None:
    """Where the draft breaks, or its end; behind another branch only if that is right."""
    branches = [branch(0), branch(1), branch(2), branch(1, behind=1), branch(2)]
    chances = chances_of([0.8, 0.5], branches, [0.5, 0.5, 0.5, 0.25, 1.0])
    assert chances == pytest.approx([0.2 * 0.5, 0.4 * 0.5, 0.4 * 0.5, 0.4 * 0.5 * 0.25, 0.4])
    assert likeliest(chances, 2) == [4, 1]


def test_the_best_number_is_that_of_all() -> None:
    """On any staircase, compared with every number by itself."""
    random = np.random.default_rng(7)
    for _ in range(500):
        chances = sorted(random.uniform(0, 0.5, int(random.integers(1, 20))).tolist(), reverse=True)
        prices = [0.0, *random.uniform(-0.1, 0.4, 32).cumsum().tolist()]
        before, worth = int(random.integers(1, 12)), float(random.uniform(0.7, 1.0))
        gains = [
            worth * sum(chances[:count]) - prices[before + count] + prices[before]
            for count in range(len(chances) + 1)
        ]
        number = best_number(chances, prices.__getitem__, before, worth)
        assert gains[number] == pytest.approx(max(gains))


def pacer_of(costs: dict[int, float], draft_costs: dict[int, float]) -> LearningPacer:
    """Return the pacer of a pair that accepts 0.6 of each drafted token, which drafts if it may."""
    knowledge = Knowledge()
    knowledge.target.begin_with(costs)
    knowledge.costs_of("draft").begin_with(draft_costs)
    for _ in range(30):
        knowledge.drafts_of("draft greedy").add(PastDraft((0.75,) * 16, (0.6,) * 16))
        knowledge.calibration_of("draft greedy").observe(0.75, 0.6)
    pacer = LearningPacer(knowledge, is_greedy=True, pass_origin="draft")
    pacer.begin_step(10, 16)
    return pacer


def drafted(pacer: LearningPacer, count: int) -> list[DraftToken]:
    """Let a step draft some tokens, as far as they pay."""
    draft: list[DraftToken] = []
    while len(draft) < count and pacer.wants_pass("draft", 1):
        if not pacer.wants_token("draft", Hint(0.75)):
            break
        draft.append(DraftToken(1, Distribution.certain(1), "draft"))
    return draft


def share_taken(costs: dict[int, float]) -> float:
    """Return which share of three branches at each fork a pass takes."""
    pacer = pacer_of(costs, {1: 0.0005, 2: 0.0005})
    draft = drafted(pacer, 3)
    forks = [(fork, rank) for fork in range(len(draft) + 1) for rank in range(3)]
    branches = [branch(fork, confidence=0.7 / 3**rank) for fork, rank in forks]
    return len(pacer.choose_branches(draft, branches, 16)) / len(branches)


def test_branches_are_taken_where_passes_are_flat() -> None:
    """All that may be right on a flat staircase, many on a GPU's, none on a steep one."""
    assert share_taken(FLAT) == 1.0
    assert 0.3 < share_taken(GPU) <= 1.0
    assert share_taken(STEEP) == 0.0


@pytest.mark.parametrize(("costs", "does_look"), [(GPU, True), (STEEP, False)])
def test_nothing_is_looked_for_where_nothing_pays(costs: dict[int, float], does_look: bool) -> None:
    """Finding branches takes time of its own: where none was chosen for long, it is seldom done."""
    pacer, looks = pacer_of(costs, {1: 0.0005}), []
    for _ in range(80):
        pacer.begin_step(10, 16)
        looks.append(pacer.num_siblings > 0)
        branches = [branch(fork, confidence=0.7) for fork in range(3)]
        pacer.choose_branches(drafted(pacer, 2), branches, 16)
        pacer.end_step([9], costs[2])
    assert looks[0]
    share = statistics.mean(looks[40:])
    assert share > 0.9 if does_look else share < 0.2


def test_branches_that_are_never_right_are_given_up() -> None:
    """What was offered teaches, chosen or not; so do those that are right."""
    numbers: dict[bool, Sequence[int]] = {}
    for is_right in (False, True):
        pacer = pacer_of(SLOPE, {1: 0.0005})
        for _ in range(60):
            pacer.begin_step(10, 16)
            draft = drafted(pacer, 2)
            numbers[is_right] = pacer.choose_branches(draft, [branch(0), branch(0, token=8)], 16)
            num_read = 1 + len(draft) + len(numbers[is_right])
            pacer.end_step([9 if is_right else 7], 0.01 + (num_read - 1) * 0.01 / 32)
    assert len(numbers[False]) == 0
    assert len(numbers[True]) >= 1
