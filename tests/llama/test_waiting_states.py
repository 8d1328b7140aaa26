"""Hidden states that wait for a head are those of their positions, whatever was dropped before."""

from __future__ import annotations

import numpy as np
import pytest

from specchat.llama.hidden_state_feed import WaitingStates
from tables import table


@pytest.mark.slow
@table("seed", range(5))
def test_rows_are_those_of_their_positions(seed: int) -> None:
    """Appended, dropped at either end and looked at in any order, as a list by position would."""
    random = np.random.default_rng(seed)
    waiting, known, at = WaitingStates(3, 16), dict[int, float](), 0
    for _ in range(3000):
        choice = random.integers(4)
        if choice == 0:
            count = int(random.choice([1, 2, 5, 40], p=[0.4, 0.3, 0.28, 0.02]))
            values = random.random(count).astype(np.float32)
            waiting.append(np.repeat(values[:, np.newaxis], 3, axis=1))
            known |= {at + place: float(value) for place, value in enumerate(values)}
            at += count
        elif choice == 1:
            at = max(0, at - int(random.integers(6)))
            waiting.cut(at)
            known = {place: value for place, value in known.items() if place < at}
        elif choice == 2:
            start = at - int(random.integers(10))
            waiting.drop_before(start)
            known = {place: value for place, value in known.items() if place >= start}
        start = at - int(random.integers(-5, 200))
        end = start + int(random.integers(50))
        expected = [known[place] for place in range(start, end) if place in known]
        assert waiting.between(start, end)[:, 0].tolist() == pytest.approx(expected)
        assert len(waiting) == len(known)
        assert waiting.first == min(known, default=waiting.first)
