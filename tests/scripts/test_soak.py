"""The chat used for many turns, in short; scripts/check/soak.py does thousands."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("what processes hold is read as on Linux", allow_module_level=True)

from scripts.support import chat_soak

pytestmark = pytest.mark.slow


def test_turns_of_every_kind_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After edits, versions, stops and switches: the same answers, descriptors and threads."""
    monkeypatch.setattr(chat_soak, "NUM_SWITCHES", 1)
    found = asyncio.run(chat_soak.run(12, 1, tmp_path))

    assert found.turn == 12
    assert found.counts["switch"] >= 1
    assert {"ask", "edit", "regenerate", "stop", "go_on"} <= set(found.counts)
    first, last = found.samples[1], found.samples[-1]
    assert last.chat_descriptors <= first.chat_descriptors
    assert last.engine_descriptors <= first.engine_descriptors
    assert last.chat_threads <= first.chat_threads + 2  # as many as the screen lets wait at once


def test_growth_is_seen() -> None:
    """The warm-up is left out; the engine's is that of its last process."""
    samples = [
        chat_soak.Sample(
            turn, turn if turn <= 50 else turn - 50, 100 + max(turn - 20, 0), 9, 4, 80, 9, 3
        )
        for turn in range(1, 101)
    ]
    growths = {name: growth for name, *_, growth in chat_soak.growths(samples)}

    assert growths["chat_mib"] > chat_soak.MOST_GROWTH
    assert growths["chat_descriptors"] == growths["engine_mib"] == 0
