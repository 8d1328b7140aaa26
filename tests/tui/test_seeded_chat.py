"""Seeds in the chat: an answer has one text, regenerated or measured again without speculation."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import WriteModel
from engine.test_lossless import EXACT
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.tui.app import ChatApp
from specchat.tui.setup import PairChoice, Setup
from tui.driving import race, say, until

pytestmark = pytest.mark.anyio


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("drafter", ["auto", "suffix"])
async def test_regenerating_and_f7_reproduce_a_seeds_text(tiny: WriteModel, drafter: str) -> None:
    """F5 and F7 decode what the answer says, with drafts and without."""
    sampling: dict[str, Any] = {"seed": 7, "temperature": 0.8, "max_tokens": 60}
    options = {**sampling, "draft_length": 4, "drafter": drafter}
    loading = Loading(tiny("llama"), tiny("llama", "half right"), **EXACT)
    pair = PairChoice("tiny", "for tests", loading, options)
    app = ChatApp(Setup(pair, offers=list, history=None), load=LocalEngine)
    async with app.run_test(size=(120, 40)) as pilot:
        await say(pilot, "aa aa aa aa aa aa aa aa")
        texts, drafted, accepted = [], [], []
        for key in ("", "f5", "f7"):
            if key == "f7":
                await race(pilot)
            elif key:
                await pilot.press(key)
                await until(pilot, lambda: app.answers.current is None)
            last = app.conversations.last
            assert last is not None
            texts.append(last.text)
            drafted.append(last.statistics["drafted"])
            accepted.append(last.statistics["accepted"])
        raced = app.state.races.last

    assert len(texts[0]) > 20
    assert texts == [texts[0]] * 3
    assert raced is not None
    assert [lane.text for lane in raced.lanes] == [texts[0]] * 2
    assert [lane.stats["drafted"] > 0 for lane in raced.lanes] == [False, True]
    assert raced.speculative.stats["accepted"] == accepted[-1]
    assert min(drafted) > 0
