"""The draft model's confidence, from which the pacer learns how often its tokens are accepted."""

from __future__ import annotations

import numpy as np
import pytest

from specchat.decoding.distribution import Distribution
from specchat.drafting.draft_model import confidence_of
from tables import table


def test_a_sampled_token_has_half_the_largest_share_and_a_half() -> None:
    """One half for a flat distribution without end, 1 for a certain token."""
    distribution = Distribution(np.arange(3), np.array([0.2, 0.5, 0.3]))

    assert confidence_of(np.zeros(3, np.float32), distribution) == pytest.approx(0.75)


@table(("lead", "confidence"), [(0.0, 0.5), (1.0, 0.7310586), (500.0, 1.0)])
def test_a_greedy_token_has_its_share_of_the_two_likeliest(lead: float, confidence: float) -> None:
    """p1 / (p1 + p2), whatever others are; the logits are left as they were."""
    logits = np.array([0.5, 2.0 + lead, 2.0, -3.0], np.float32)
    before = logits.copy()

    assert confidence_of(logits, Distribution.certain(1)) == pytest.approx(confidence)
    assert logits.tolist() == before.tolist()


def test_the_only_token_of_a_vocabulary_is_certain() -> None:
    """There is no second one to compare it with."""
    assert confidence_of(np.zeros(1, np.float32), Distribution.certain(0)) == 1.0
