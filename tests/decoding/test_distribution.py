"""Sparse distributions: look-ups, draws and residuals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specchat.decoding.distribution import LARGEST_TABLE, Distribution

weights = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6)


def sparse(values: list[float], seed: int) -> Distribution:
    """Return a distribution over some of 12 tokens, in no order."""
    ids = np.random.default_rng(seed).permutation(12)[: len(values)]
    return Distribution(ids, np.array(values) / sum(values))


def dense(distribution: Distribution) -> np.ndarray:
    """Return all 12 probabilities."""
    row = np.zeros(12)
    row[distribution.ids] = distribution.weights
    return row


@given(weights, weights, st.integers(0, 99), st.floats(0.1, 1.0))
def test_sparse_operations_agree_with_dense_ones(
    first: list[float], second: list[float], seed: int, scale: float
) -> None:
    """Probabilities and the excess are those of whole rows."""
    p, q = sparse(first, seed), sparse(second, seed + 1)

    assert [p.probability(token) for token in range(12)] == dense(p).tolist()
    assert p.weights_of(np.arange(12)).tolist() == dense(p).tolist()
    excess = np.maximum(scale * dense(p) - dense(q), 0).sum()
    assert p.excess_mass(q, scale) == pytest.approx(excess)


@pytest.mark.parametrize("size", [LARGEST_TABLE, LARGEST_TABLE + 1])
def test_tables_and_arrays_do_the_same(size: int) -> None:
    """On both sides of the limit, look-ups, masses and draws agree with whole rows."""
    generator = np.random.default_rng(size)
    p, q = (
        Distribution(generator.permutation(2 * size)[:size], generator.dirichlet(np.ones(size)))
        for _ in "pq"
    )
    everything = np.arange(2 * size)
    rows = p.weights_of(everything), q.weights_of(everything)

    assert [p.probability(token) for token in everything.tolist()] == rows[0].tolist()
    assert p.best() == rows[0].argmax()
    excess = np.maximum(0.7 * rows[0] - rows[1], 0)
    assert p.excess_mass(q, 0.7) == pytest.approx(excess.sum())
    for exact, draw in (
        (rows[0], p.sample),
        (excess / excess.sum(), lambda random: p.sample_excess(q, random, 0.7)),
    ):
        drawn = np.bincount([draw(generator.random) for _ in range(8000)], minlength=2 * size)
        assert drawn[exact == 0].sum() == 0
        kept = exact > 0
        chance = stats.chisquare(drawn[kept], 8000 * exact[kept] / exact[kept].sum()).pvalue
        assert chance > 1e-5


def test_draws_follow_the_weights() -> None:
    """The edges of the uniform number fall on the first and the last token with any weight."""
    p = Distribution(np.array([4, 2, 9]), np.array([0.25, 0.75, 0.0]))

    drawn = [p.sample(lambda u=u: u) for u in (0.0, 0.2499, 0.25, 0.999999, 1 - 2**-53)]  # type: ignore[misc]

    assert drawn == [4, 4, 2, 2, 2]


def test_the_residual_never_draws_what_the_draft_covers() -> None:
    """Tokens with no excess have no share in the residual."""
    p = Distribution(np.arange(3), np.array([0.2, 0.3, 0.5]))
    q = Distribution(np.arange(3), np.array([0.5, 0.3, 0.2]))
    random = np.random.default_rng(0).random

    assert {p.sample_excess(q, random) for _ in range(200)} == {2}


def test_equal_distributions_fall_back_to_themselves() -> None:
    """Where rounding leaves no excess, the target's own distribution is drawn from."""
    p = Distribution(np.arange(2), np.array([0.4, 0.6]))
    random = np.random.default_rng(0).random

    assert {p.sample_excess(p, random) for _ in range(50)} == {0, 1}


def test_the_best_token_is_the_lowest_among_equals() -> None:
    """Ties do not depend on the order in memory."""
    p = Distribution(np.array([7, 3, 5]), np.array([0.4, 0.4, 0.2]))

    assert p.best() == 3


def test_the_excess_is_that_over_the_distribution_and_scale_asked_for() -> None:
    """The last one is kept, as verification and pacing ask for the same."""
    p, q, r = (
        Distribution(np.arange(3), np.array(weights))
        for weights in ([0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8])
    )

    for other, scale in [(q, 1.0), (q, 1.0), (r, 1.0), (q, 0.5), (r, 0.5), (q, 1.0)]:
        fresh = Distribution(np.arange(3), np.array([0.6, 0.3, 0.1]))
        assert p.excess_mass(other, scale) == fresh.excess_mass(other, scale)
    assert p.excess_mass(q) == pytest.approx(0.4)
