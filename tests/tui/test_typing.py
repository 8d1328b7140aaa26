"""What is typed reaches the composer, wherever a click or a search left the focus."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path

import pytest
from textual.events import Key, Paste
from textual.widgets import Input

from scripted_chat import Script, chat
from specchat.tui.actions.leaving import TWICE_SECONDS
from specchat.tui.app import ChatApp
from specchat.tui.screens.dialogs import ChoiceScreen
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.message_views import MessageView
from tui.driving import say, screen_text, type_keys, until

pytestmark = pytest.mark.anyio
SIZE = (110, 36)
WORDS = ("d", "r", "e", "a", "d", "space", "i", "t")


def branch(app: ChatApp) -> list[str]:
    """Return the texts of the conversation."""
    return [message.text for message in app.conversations.branch]


async def test_letters_after_a_click_are_text() -> None:
    """Half a question, a click on an answer, the other half: nothing is deleted or answered."""
    script = Script()
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "A question")
        await pilot.press("h", "i", "space")
        await pilot.click(app.view.transcript.views[-1], offset=(6, 0))
        assert isinstance(app.focused, MessageView)
        await pilot.press(*WORDS, "delete")
        await pilot.pause()
        assert app.view.composer.text == "hi dread it"
        assert branch(app) == ["A question", "An answer."]
        assert len(script.asked) == 1


@pytest.mark.slow
async def test_letters_after_a_search_are_text(tmp_path: Path) -> None:
    """The message that was found has the focus, and is read, not changed."""
    script = Script()
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "A dragon")
        await app.actions.conversations.open(1, app.conversations.branch[0].id)
        await until(pilot, lambda: isinstance(app.focused, MessageView))
        await pilot.press(*WORDS)
        await pilot.pause()
        assert app.view.composer.text == "dread it"
        assert len(script.asked) == 1


@pytest.mark.slow
async def test_a_paste_after_a_click_is_text() -> None:
    """So is what is typed where nothing has the focus."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "A question")
        await pilot.click(app.view.transcript.views[-1], offset=(6, 0))
        app.post_message(Paste("pasted"))
        await until(pilot, lambda: app.view.composer.text == "pasted")
        app.screen.set_focus(None)
        await pilot.press("x")
        await until(pilot, lambda: app.view.composer.text == "pastedx")


@pytest.mark.slow
async def test_letters_act_once_the_keyboard_chose_a_message() -> None:
    """Until the focus is elsewhere."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "A question")
        await pilot.press("shift+up", "c")
        await until(pilot, lambda: app.clipboard == "An answer.")
        app.view.composer.focus()
        await pilot.pause()
        await pilot.click(app.view.transcript.views[-1], offset=(6, 0))
        await pilot.press("c")
        await until(pilot, lambda: app.view.composer.text == "c")


@pytest.mark.slow
async def test_lines_that_are_not_marked_as_pasted_are_one_message() -> None:
    """They arrive as keys, one right after the other, each line with an Enter."""
    script = Script()
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        for character in "one\rtwo\rthree\r":
            name = "enter" if character == "\r" else character
            app.post_message(Key(name, character))
        await until(pilot, lambda: len(script.asked) == 1 and app.answers.current is None)
        assert branch(app) == ["one\ntwo\nthree", "An answer."]


async def test_ctrl_c_clears_what_was_written_before_it_quits() -> None:
    """Ctrl+Z brings it back, and a key between two presses means that one goes on."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        composer = app.query_one(Composer)
        await pilot.press("ctrl+c")
        await type_keys(pilot, *"hello")
        await pilot.press("ctrl+c")
        assert (composer.text, app._exit) == ("", False)
        await pilot.press("ctrl+z")
        assert composer.text == "hello"
        await pilot.press("ctrl+c", "ctrl+c", "left", "ctrl+c")
        assert not app._exit
        await pilot.press("ctrl+c")
        assert app._exit


async def test_ctrl_c_closes_a_dialog() -> None:
    """Also while one types in it."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f9", "a")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not isinstance(app.screen, ChoiceScreen))


async def test_ctrl_c_clears_the_filter_of_the_chats_before_it_leaves_them() -> None:
    """Where nothing was found, the list says so."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f2", "slash", *"zz")
        await until(pilot, lambda: "Nothing found" in screen_text(app))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not app.query_one("#filter", Input).value)
        assert app.query_one("#conversations").has_focus
        await pilot.press("ctrl+c", "ctrl+c")
        assert app.query_one(Composer).has_focus
        assert not app._exit


async def test_what_was_not_sent_comes_back(tmp_path: Path) -> None:
    """Once: with a folded paste, below a question that waited for an answer."""
    history, pasted = tmp_path / "history.db", "word " * 1000
    script = Script(["a long answer"], hold=threading.Event())
    app = chat(script, history)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "First", wait=False)
        await until(pilot, lambda: len(script.asked) == 1)
        await say(pilot, "Second", wait=False)
        await until(pilot, lambda: bool(app.state.questions.queued))
        await type_keys(pilot, *"see ")
        app.post_message(Paste(pasted))
        await until(pilot, lambda: "[pasted" in app.query_one(Composer).text)
    for is_kept in (True, False):
        app = chat(Script(), history)
        async with app.run_test(size=SIZE) as pilot:
            composer, kept = app.query_one(Composer), f"Second\n\nsee {pasted}" * is_kept
            await until(pilot, partial(getattr, app.state.unsent, "is_taken"))
            assert composer.written[1] == kept
            if is_kept:
                await pilot.press("ctrl+c")
            assert composer.text == ""


async def test_what_is_typed_while_a_conversation_opens_is_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No letter of it renames or deletes in the list, however long opening takes."""
    app = chat(Script(), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "A question")
        await pilot.press("ctrl+n", "f2")
        begins, goes_on, show = asyncio.Event(), asyncio.Event(), app.view.show_branch

        async def show_later() -> None:
            begins.set()
            await goes_on.wait()
            await show()

        monkeypatch.setattr(app.view, "show_branch", show_later)
        app.post_message(Key("enter", "\r"))
        await begins.wait()
        for letter in "dread":
            app.post_message(Key(letter, letter))
        goes_on.set()
        await until(pilot, lambda: app.view.composer.text == "dread")
        assert branch(app) == ["A question", "An answer."]
        assert len(app.screen_stack) == 1


def has(composer: Composer, text: str) -> bool:
    """Return True if this is what is written."""
    return composer.text == text


async def test_what_is_typed_before_a_command_runs_stays() -> None:
    """Also where the command is refused: it is put above that."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        composer = app.query_one(Composer)
        for command, kept in (("/schema off", "abc"), ("/schema {", "/schema {\n\nabc")):
            composer.text = command
            for key in ("enter", *"abc"):
                app.post_message(Key(key, "\r" if key == "enter" else key))
            await until(pilot, partial(has, composer, kept))


async def test_editing_leaves_what_was_half_written_to_undo() -> None:
    """Before the edit and after it was cancelled."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "A question")
        await pilot.press(*"half", "shift+up", "up", "e")
        await until(pilot, lambda: app.view.composer.text == "A question")
        await pilot.press("escape")
        await until(pilot, lambda: app.view.composer.text == "")
        await pilot.press("ctrl+z", "ctrl+z")
        await until(pilot, lambda: app.view.composer.text == "half")


async def test_ctrl_c_twice_and_exit_leave_the_chat() -> None:
    """Once says so; any other way to leave works too."""
    app = chat(Script())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("ctrl+c")
        await until(pilot, lambda: bool(app._notifications))
        shown = [(each.message, each.timeout) for each in app._notifications]
        assert shown == [("Press Ctrl+C again to quit.", TWICE_SECONDS)]
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not app.is_running or app._exit)
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "/exit", wait=False)
        await until(pilot, lambda: not app.is_running or app._exit)
