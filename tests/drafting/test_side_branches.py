"""The tokens of the highest logits, as branches beside a draft."""

from __future__ import annotations

import math

import numpy as np

from specchat.decoding.distribution import Distribution
from specchat.decoding.ports import DraftTask
from specchat.drafting.side_branches import SideBranches, highest
from specchat.drafting.token_map import TokenMap
from specchat.options.declarations import Sampling

ROW = np.array([1.0, 4.0, -2.0, 3.0, 3.5], dtype=np.float32)


def beside() -> SideBranches:
    """Return the branches of an answer at temperature 0."""
    task = DraftTask([1], Sampling(temperature=0.0), lambda *_: 0, has_branches=True)
    return SideBranches(task, TokenMap(5), "draft")


def test_a_row_is_left_as_it_was() -> None:
    """Also one in which fewer tokens may come than are asked for."""
    row = ROW.copy()
    assert highest(row, 3) == [(1, 4.0), (4, 3.5), (3, 3.0)]
    assert (row == ROW).all()
    masked = np.where(ROW > 3.2, ROW, np.float32(-np.inf))
    before = masked.copy()
    assert highest(masked, 4) == [(1, 4.0), (4, 3.5)]
    assert (masked == before).all()
    assert highest(np.full(3, -np.inf, dtype=np.float32), 2) == []


def test_shares_are_of_what_follows_the_best() -> None:
    """And of as much again as the last of these, for all that is not looked at."""
    branches = beside()
    branches.add(ROW.copy(), Distribution.certain(1), 0, 0, 2)
    assert [(each.token, each.fork, each.behind) for each in branches.branches] == [
        (1, 0, -1), (4, 0, -1), (3, 0, -1),
    ]  # fmt: skip
    second, third = (each.confidence for each in branches.branches[1:])
    weights = math.exp(-0.5), math.exp(-1.0)
    assert math.isclose(second, weights[0] / (weights[0] + 2 * weights[1]), rel_tol=1e-6)
    assert math.isclose(third, weights[1] / (weights[0] + 2 * weights[1]), rel_tol=1e-6)


def test_numbers_that_are_none_are_no_branches() -> None:
    """As from a damaged draft model."""
    branches = beside()
    branches.add(np.full(5, np.nan, dtype=np.float32), Distribution.certain(1), 0, 0, 2)
    assert branches.branches == []
