"""An answer that says a passage over and over: how it is marked, stopped and continued."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Static

from scripted_chat import Script, chat
from specchat.options.declarations import ChatOptions
from specchat.tui.app import ChatApp
from specchat.tui.commands import key_of
from specchat.tui.texts.line_below import line_below
from tables import table
from tui.driving import say, until

pytestmark = pytest.mark.anyio
SIZE = (110, 34)
ROUND = "round and round\n"
RUNNING = "repeats itself · Esc stops"
STOPPED = "stopped: repeating · /regenerate repeat_penalty=1.1"


def looping(text: str = ROUND * 10_000) -> Script:
    """Return an engine that writes a text, for minutes unless it is stopped."""
    return Script([text], finds_loops=True, pause=0.002)


def note(app: ChatApp) -> str:
    """Return the line below the last answer."""
    return str(app.query(".note").last(Static).render())


async def test_an_answer_in_a_loop_is_marked_and_stopped(tmp_path: Path) -> None:
    """At the length of the settings; the mark is there tomorrow, too."""
    script, path = looping(), tmp_path / "history.db"
    app = chat(script, path, chat=ChatOptions(repeat_limit=200))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Sing")
        assert STOPPED in note(app)
        (_, answer) = app.conversations.branch
        assert answer.finish == "cancelled"
        assert answer.statistics["repeating"] >= 200
        number = app.conversations.number or 0
    app = chat(script, path)
    async with app.run_test(size=SIZE) as pilot:
        await app.actions.conversations.open(number)
        await until(pilot, lambda: STOPPED in note(app))


async def test_a_stopped_loop_goes_on_for_as_many_tokens() -> None:
    """Ctrl+G does not end at once: what was there before does not count."""
    app = chat(looping(), chat=ChatOptions(repeat_limit=100))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Sing")
        length = len(app.conversations.branch[-1].text)
        await pilot.press("ctrl+g")
        await until(pilot, lambda: STOPPED in note(app))
        assert len(app.conversations.branch[-1].text) >= length + 4 * 100


@pytest.mark.slow
async def test_with_a_limit_of_0_the_user_stops_a_loop() -> None:
    """It is marked all the same, also after another chat was open."""
    app = chat(looping(), chat=ChatOptions(repeat_limit=0))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Sing", wait=False)
        await until(pilot, lambda: app.answers.figures.statistics.repeating > 300)
        number = app.conversations.number or 0
        await app.actions.conversations.new()
        await app.actions.conversations.open(number)
        await until(pilot, lambda: RUNNING in note(app))
        assert app.answers.current is not None
        await pilot.press("escape")
        await until(pilot, lambda: STOPPED in note(app))


async def test_a_loop_in_another_chat_is_stopped_with_a_notice() -> None:
    """Which says what became of it."""
    app = chat(looping(), chat=ChatOptions(repeat_limit=0))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Sing", wait=False)
        await until(pilot, lambda: app.answers.current is not None)
        await app.actions.conversations.new()
        app.answers.repeat_limit = 200
        await until(pilot, lambda: app.answers.current is None)
        words = "Stopped, repeating itself: Sing. F2 opens it."
        await until(pilot, lambda: words in [each.message for each in app._notifications])


async def test_a_text_that_goes_on_is_no_loop() -> None:
    """Once the model writes something else, and if it ends by itself, nothing is left of it."""
    app = chat(looping(ROUND * 20 + "and home again, said the fox to all the others. " * 2))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Sing")
        assert "repeats" not in note(app)
        answer = app.conversations.branch[-1]
        assert answer.finish == "stop"
        assert answer.statistics["repeated"] > 0
        assert "repeating" not in answer.statistics


@table(
    ("finish", "temperature", "words"),
    [
        ("cancelled", 0.0, "stopped: repeating · /regenerate temperature=0.8"),
        ("length", 1.0, "token limit reached: repeating · /regenerate repeat_penalty=1.1"),
        ("context", 0.0, "context full: repeating · /regenerate temperature=0.8"),
        (None, 0.0, "interrupted: repeating · /regenerate temperature=0.8"),
    ],
)
def test_the_line_below_says_how_to_answer_again(
    finish: str | None, temperature: float, words: str
) -> None:
    """With a higher temperature, or where that is high already, with a penalty.

    Not how to continue: the figures must have room, and a loop would go on.
    """
    figures = {"repeating": 60, "asked_with": {"temperature": temperature}, "generated_tokens": 9}
    assert line_below(finish, figures, key_of).newest == f"{words} · 9 tokens"
    assert "repeating" not in line_below("stop", figures, key_of).newest


@table(
    ("penalty", "words"),
    [
        (1.05, "stopped: repeating · /regenerate repeat_penalty=1.15"),
        (1.1, "stopped: repeating · /regenerate repeat_penalty=1.2"),
        (1.5, "stopped: repeating · Ctrl+G"),
    ],
)
def test_a_penalty_that_did_not_help_is_raised(penalty: float, words: str) -> None:
    """Up to where answers suffer from it."""
    asked = {"temperature": 1.0, "repeat_penalty": penalty}
    figures = {"repeating": 60, "asked_with": asked}
    assert line_below("cancelled", figures, key_of).newest.startswith(words)
