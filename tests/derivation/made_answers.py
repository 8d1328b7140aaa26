"""Answers as if they had been sampled, for tests of what is done with them."""

from __future__ import annotations

import numpy as np

from specchat.llama.batch_sampling import LIKELIEST, SampledAnswer


def answers(first: int, count: int) -> list[SampledAnswer]:
    """Return answers with different first tokens."""
    return [
        SampledAnswer(
            [number, 1, 2],
            0.8 * (number % 2),
            tokens=[5] * (1 + number % 9),
            likeliest=[np.arange(LIKELIEST, dtype=np.int32) + number] * (1 + number % 9),
            logs=[np.full(LIKELIEST, -number / 100, np.float16)] * (1 + number % 9),
        )
        for number in range(first, first + count)
    ]
