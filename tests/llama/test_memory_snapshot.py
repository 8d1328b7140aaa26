"""Copies of real memories: a text that was set aside goes on as if nothing had happened."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import WriteModel
from memory_bench import TOLERANCE, bench
from scripts.support.tiny_gguf import ARCHITECTURES
from specchat.errors import EngineFailed
from tables import table

TEXT = [int(token) for token in np.random.default_rng(1).integers(3, 250, 900)]
OTHER = [int(token) for token in np.random.default_rng(2).integers(3, 250, 900)]


@table("architecture", ARCHITECTURES)
def test_a_restored_text_goes_on_with_the_same_bits(tiny: WriteModel, architecture: str) -> None:
    """The rows after it are those without the other text in between, bit for bit.

    Not with a sliding window, whose cells llama.cpp puts in another order.
    """
    with bench(tiny, architecture) as it:
        it.memory.prefill(TEXT[:60])
        expected = [np.array(it.memory.evaluate([token], 1)[0]) for token in TEXT[60:70]]
        it.memory.prefill([])
        it.memory.prefill(TEXT[:60])
        kept = it.memory.snapshot()
        it.memory.prefill(OTHER[:90])
        it.memory.evaluate(OTHER[90:95], 5)
        it.memory.restore(kept)

        assert it.memory.tokens == TEXT[:60]
        found = [np.array(it.memory.evaluate([token], 1)[0]) for token in TEXT[60:70]]
        if it.memory.rollback_kind.restores_bits:
            assert np.array_equal(found, expected)
        assert np.array(found) == pytest.approx(np.array(expected), abs=TOLERANCE)
        assert it.memory.rollback_kind.restores_bits or architecture == "gemma3"


@table("architecture", ARCHITECTURES)
def test_a_restored_text_can_be_shortened_and_drafted_after(
    tiny: WriteModel, architecture: str
) -> None:
    """What can be gone back to is as foreseen, and every row is right."""
    with bench(tiny, architecture) as it:
        it.memory.prefill(TEXT[:40])
        it.memory.prefill(TEXT[:80])
        kept = it.memory.snapshot()
        it.memory.prefill(OTHER[:90])
        it.memory.restore(kept)
        wanted = [*TEXT[:50], *OTHER[:10]]
        foreseen = it.memory.reachable_in(kept, wanted)
        assert it.memory.reachable(wanted) == foreseen
        assert it.memory.prefill(wanted) == foreseen
        it.memory.mark()
        rows = np.array(it.memory.evaluate(OTHER[20:25], 5))
        assert rows == pytest.approx(it.expected([*wanted, *OTHER[20:25]], 5), abs=TOLERANCE)
        it.memory.rollback(62)
        it.require_right()


def test_a_state_that_is_cut_short_empties_the_memory(tiny: WriteModel) -> None:
    """Nothing of it is trusted, and the next text is right."""
    with bench(tiny, "llama") as it:
        it.memory.prefill(TEXT[:40])
        kept = it.memory.snapshot()
        cut = type(kept)(kept.tokens, kept.data[: kept.data.size // 2])
        with pytest.raises(EngineFailed, match="cannot restore"):
            it.memory.restore(cut)
        assert it.memory.length == 0
        it.memory.prefill(TEXT[:40])
        it.require_right()
