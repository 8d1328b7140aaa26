"""Answers that arrive in random orders are those they would be alone (scripts/check has more)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest

from conftest import WriteModel
from scripts.support.lone_answers import LoneAnswers
from scripts.support.random_orders import FINE, NEAR_TIE, in_random_order, requests
from scripts.support.tiny_gguf import ARCHITECTURES
from sharing.test_shared_engine import loading_of, shared
from specchat.engine.local_engine import LocalEngine
from specchat.engine.parked_memories import ParkedMemories
from specchat.engine.text_place import TextPlace
from specchat.llama.text_memory import count_common

Exact = Literal["on", "auto"]


def orders(write: WriteModel, architecture: str, exact: Exact, count: int = 8) -> Counter[str]:
    """Return how answers ended in five orders."""
    loading = replace(loading_of(write, architecture), at_once=4, exact=exact, batch=64)
    with shared(loading) as engine, LocalEngine(loading) as alone:
        engine.call(lambda owned: owned.prepare(only_exactness=True))
        alone.prepare(only_exactness=True)
        found, chance, wanted = Counter[str](), random.Random(count), LoneAnswers(alone)
        for _ in range(5):
            found += in_random_order(engine, requests(count), wanted, chance)
    return found


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("exact", ["on", "auto"])
def test_the_order_of_arrival_changes_no_text(
    shallow: WriteModel, architecture: str, exact: Exact
) -> None:
    """With and without drafts, seeds, grammars and common beginnings; some leave."""
    found = orders(shallow, architecture, exact)
    assert found.keys() <= (FINE if exact == "on" else {*FINE, NEAR_TIE})
    assert found["the same"] > 8


def test_a_memory_that_holds_another_text_is_found(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was copied from another text, with what follows their common beginning."""

    def share(
        self: ParkedMemories, place: TextPlace, tokens: Sequence[int], *, repeats: bool
    ) -> None:
        del repeats
        num_kept = place.context.reachable(tokens)
        for other in self._places:
            snapshot = other.context.snapshot()
            num_common = count_common(snapshot.tokens, tokens)
            if num_kept + 64 < num_common < snapshot.length < len(tokens):
                place.context.restore(replace(snapshot, tokens=tokens[: snapshot.length]))

    monkeypatch.setattr(ParkedMemories, "share", share)
    found = orders(shallow, "llama", "auto")
    assert any(end.startswith("ANOTHER TEXT") for end in found), found
