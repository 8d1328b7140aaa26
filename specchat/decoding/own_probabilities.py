"""A model's own probabilities: those of its logits alone, before temperature and all else."""

import math

import numpy as np

from specchat.decoding.distribution import Logits
from specchat.decoding.sampling import Sampler
from specchat.options.declarations import Sampling

OWN = Sampling(temperature=1.0, top_k=40, top_p=1.0, min_p=0.0)
"""Finds a model's most likely tokens: sorting all of them takes longer."""


class OwnProbabilities:
    """Finds the most likely tokens of rows of logits; each row makes the next one faster."""

    def __init__(self) -> None:
        """Begin without an estimate of where the likely tokens are."""
        self._sampler = Sampler(OWN)

    def likeliest(self, row: Logits, token: int, count: int) -> list[tuple[int, float]]:
        """Return up to `count` likely tokens and this one, with their probabilities, best first.

        `row` has the shape (vocabulary,). The probabilities are of the whole vocabulary. Raises
        NotNumbers for a row of NaN or infinities.
        """
        likely = [other for other, _ in self._sampler.distribution(row, ()).likeliest(count)]
        if token not in likely:
            likely.append(token)
        top = float(row.max())
        total = float(np.exp(row - np.float32(top)).sum(dtype=np.float64))
        return [(other, math.exp(row.item(other) - top) / total) for other in likely]
