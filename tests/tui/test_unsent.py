"""What is written but not sent, in two chats on one history."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripted_chat import Script, chat
from specchat.tui.app import ChatApp
from specchat.tui.widgets.composer import Composer
from tui.driving import type_keys, until

pytestmark = pytest.mark.anyio


def written(app: ChatApp) -> str:
    """Return the text of the composer, with its pasted texts in full."""
    return app.query_one(Composer).written[1]


async def test_two_chats_at_once_keep_their_own(tmp_path: Path) -> None:
    """The second does not take what the first is writing; both come back, one after the other."""
    history = tmp_path / "history.db"
    first, second = chat(Script(), history), chat(Script(), history)
    async with first.run_test() as pilot:
        await until(pilot, lambda: first.state.unsent.is_taken)
        await type_keys(pilot, *"one")
        await until(pilot, (tmp_path / "draft.json").exists)
        async with second.run_test() as pilot_of_second:
            await until(pilot_of_second, lambda: second.state.unsent.is_taken)
            assert written(second) == ""
            await type_keys(pilot_of_second, *"two")
    third, fourth = chat(Script(), history), chat(Script(), history)
    async with third.run_test() as pilot:
        await until(pilot, lambda: written(third) == "one")
        async with fourth.run_test() as pilot_of_fourth:
            await until(pilot_of_fourth, lambda: written(fourth) == "two")
