"""The noise of seeds: known numbers, a sound distribution, and no more of them than needed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from specchat.decoding import noise
from specchat.decoding.distribution import Distribution, Ids, Weights
from specchat.decoding.noise import Noise
from specchat.decoding.sampling import Sampler
from specchat.options.declarations import Sampling
from tables import table

SPLITMIX64 = [
    6457827717110365317, 3203168211198807973, 9817491932198370423,
    4593380528125082431, 16408922859458223821,
]  # fmt: skip
"""The first numbers of the reference implementation (Vigna's splitmix64.c) from 1234567."""


def test_the_generator_is_splitmix64() -> None:
    """Both implementations give the reference's numbers."""
    counters = np.arange(1, 6, dtype=np.uint64)

    assert noise._words(1234567, counters).tolist() == SPLITMIX64
    assert [noise._word(1234567 + n * noise.INCREMENT) for n in range(1, 6)] == SPLITMIX64


def test_a_seed_draws_the_same_in_every_version() -> None:
    """Users keep seeds: these draws must never change, whatever becomes of the code."""
    few, many = (Distribution(np.arange(size), np.ones(size)) for size in (200, 100_000))

    assert [Noise(7).draw(few, place) for place in range(6)] == [172, 169, 58, 143, 145, 23]
    assert [Noise(7).draw(many, place) for place in range(3)] == [87924, 38639, 31776]
    assert Noise(2**80).draw(few, 0) != Noise(2**80 + 1).draw(few, 0)


@table("size", [1, 2, 40, 256, 257, 3000, 60_000])
@table("spread", [0.0, 1.0, 4.0, 40.0])
def test_the_winner_is_that_of_the_whole_race(size: int, spread: float) -> None:
    """Leaving out who cannot win changes nothing, in any order of tokens and for weights of 0."""
    generator = np.random.default_rng(size)
    for place in range(12):
        ids = generator.permutation(size + 9000)[:size]
        logits = generator.normal(0.0, spread, size)
        weights = np.exp(logits - logits.max()).astype(np.float32)
        order = weights.argsort()[::-1] if place % 2 else np.arange(size)
        distribution = Distribution(ids[order], weights[order])

        expected = ids[(weights / Noise(place).times(ids, place)).argmax()]

        assert Noise(place).draw(distribution, place) == expected


@pytest.mark.parametrize(("spread", "most"), [(0.0, 1500), (1.0, 1500), (3.0, 3000), (8.0, 1500)])
def test_few_numbers_are_looked_up(
    spread: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 152,000 tokens and no truncation, at most 2 % of them are in the race."""
    counts: list[int] = []
    times = noise._times

    def counting(ids: Ids, starts: tuple[int, int]) -> Weights:
        counts.append(ids.size)
        return times(ids, starts)

    monkeypatch.setattr(noise, "_times", counting)
    row = np.random.default_rng(1).normal(0.0, spread, 152_000).astype(np.float32)
    whole = Sampler(Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0))
    for place in range(8):
        counts.clear()
        Noise(1).draw(whole.distribution(row, ()), place)
        assert 0 < sum(counts) <= most


def test_the_numbers_are_exponential_and_independent() -> None:
    """By seeds, by places and by tokens, neighbours included (33 tests, false alarm 1e-5 each)."""
    ids = np.arange(512)
    numbers = np.array(
        [[Noise(seed).times(ids, place) for place in range(12)] for seed in range(60, 72)]
    )
    for axis in range(3):
        for line in np.moveaxis(numbers, axis, 0)[:8]:
            assert stats.kstest(line.ravel(), "expon").pvalue > 1e-5
        for lag in (1, 2, 8):
            size = numbers.shape[axis] - lag
            first = numbers.take(range(size), axis).ravel()
            second = numbers.take(range(lag, size + lag), axis).ravel()
            assert stats.spearmanr(first, second).pvalue > 1e-5
    assert np.unique(numbers).size == numbers.size


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("size", [5, 300])
def test_draws_fit_the_distribution(size: int) -> None:
    """Over seeds, over places and over both at once (3 tests a size, false alarm 1e-5 each)."""
    generator = np.random.default_rng(size)
    weights = generator.dirichlet(np.ones(size))
    distribution = Distribution(np.arange(size), weights)
    number = 4000
    for step, pace in ((1, 0), (0, 1), (3, 2)):
        draws = [Noise(n * step).draw(distribution, n * pace) for n in range(number)]
        order = weights.argsort()
        edges = np.searchsorted(weights[order].cumsum(), np.linspace(0.1, 0.9, 5))
        bins = np.digitize(order.argsort(), edges)
        expected = number * np.bincount(bins, weights, minlength=6)
        observed = np.bincount(bins[draws], minlength=6)
        kept = expected > 0
        assert stats.chisquare(observed[kept], expected[kept]).pvalue > 1e-5
