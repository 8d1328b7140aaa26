"""What was written but not sent is there when the chat is opened again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from textual.events import Paste

from scripted_chat import Script, chat
from specchat.tui.app import ChatApp
from specchat.tui.widgets.composer import LONGEST_PASTE, Composer
from tui.driving import say, type_keys, until

pytestmark = pytest.mark.anyio


def written(app: ChatApp) -> str:
    """Return the text of the composer, with its pasted texts in full."""
    return app.query_one(Composer).written[1]


async def test_a_draft_comes_back_with_what_was_pasted_and_what_waited(tmp_path: Path) -> None:
    """Questions that waited for an answer stand above it; once all is sent, nothing comes back."""
    history, pasted = tmp_path / "history.db", "long" * LONGEST_PASTE
    script = Script(hold=threading.Event())
    app = chat(script, history)
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "First", wait=False)
        await until(pilot, lambda: app.answers.current is not None)
        await say(pilot, "Waiting", wait=False)
        await until(pilot, lambda: bool(app.state.questions.queued))
        app.post_message(Paste(pasted))
        await until(pilot, lambda: "[pasted" in app.query_one(Composer).text)
        assert script.hold is not None
        app.answers.on_free = lambda: None
        script.hold.set()
    again = chat(Script(), history)
    async with again.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: written(again) == f"Waiting\n\n{pasted}")
        assert "[pasted" in again.query_one(Composer).text
        await type_keys(pilot, "enter")
        await until(pilot, lambda: len(again.conversations.branch) == 2)
    last = chat(Script(), history)
    async with last.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: last.state.unsent._is_taken)
        assert written(last) == ""


async def test_two_chats_at_once_keep_their_own(tmp_path: Path) -> None:
    """The second does not take what the first is writing; both come back, one after the other."""
    history = tmp_path / "history.db"
    first, second = chat(Script(), history), chat(Script(), history)
    async with first.run_test() as pilot:
        await until(pilot, lambda: first.state.unsent._is_taken)
        await type_keys(pilot, *"one")
        await until(pilot, (tmp_path / "draft.json").exists)
        async with second.run_test() as pilot_of_second:
            await until(pilot_of_second, lambda: second.state.unsent._is_taken)
            assert written(second) == ""
            await type_keys(pilot_of_second, *"two")
    third, fourth = chat(Script(), history), chat(Script(), history)
    async with third.run_test() as pilot:
        await until(pilot, lambda: written(third) == "one")
        async with fourth.run_test() as pilot_of_fourth:
            await until(pilot_of_fourth, lambda: written(fourth) == "two")
