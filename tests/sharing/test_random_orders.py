"""Answers that arrive in random orders are those they would be alone (scripts/check has more)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from conftest import WriteModel
from scripts.support.random_orders import alone, in_random_order, requests
from scripts.support.tiny_gguf import ARCHITECTURES
from sharing.test_shared_engine import loading_of, shared


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("count", [4, 8])
def test_the_order_of_arrival_changes_no_text(
    shallow: WriteModel, architecture: str, count: int
) -> None:
    """With and without drafts, seeds, grammars and common beginnings; some leave."""
    loading = replace(loading_of(shallow, architecture), at_once=4, exact="on")
    with shared(loading) as engine:
        engine.call(lambda owned: owned.prepare(only_exactness=True))
        asked = requests(count)
        wanted = alone(engine, asked)
        found, chance = Counter[str](), random.Random(count)
        for _ in range(5):
            found += in_random_order(engine, asked, wanted, chance)
    assert found.keys() <= {"the same", "given up"}
    assert found["the same"] > count
