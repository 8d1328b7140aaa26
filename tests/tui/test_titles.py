"""Titles written by the model while it is idle."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from scripted_chat import Script, chat
from specchat.chat.model_title import REQUEST
from specchat.chat.store import Store
from specchat.options.declarations import ScreenOptions
from specchat.tui.controllers import titles
from specchat.tui.screens.dialogs import LineScreen
from tui.driving import header_text, say, screen_text, type_keys, until

pytestmark = pytest.mark.anyio
SIZE = (100, 30)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write titles soon after an answer."""
    monkeypatch.setattr(titles, "QUIET_SECONDS", 0.05)


def asked_for(script: Script) -> list[str]:
    """Return the last message of each request."""
    return [each[0][-1]["content"] for each in script.asked]


async def test_a_conversation_is_titled_after_the_first_answer(tmp_path: Path) -> None:
    """Once, greedily and without drafts; the screen and the store have the title."""
    script = Script(["An answer.", '"The Fox and the Dog"', "More."])
    app = chat(script, tmp_path / "history.db", {"temperature": 0.9}, titles=True)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Tell me of the fox")
        await until(pilot, lambda: header_text(app).startswith("The Fox and the Dog"))
        turns, options = script.asked[1]
        assert [each["content"] for each in turns] == ["Tell me of the fox", "An answer.", REQUEST]
        assert (options["temperature"], options["drafter"], options["is_aside"]) == (
            0,
            "none",
            True,
        )
        assert REQUEST not in screen_text(app)
        await say(pilot, "And the dog?")
        await pilot.pause(0.2)
        assert asked_for(script) == ["Tell me of the fox", REQUEST, "And the dog?"]
    with Store(tmp_path / "history.db") as store:
        (conversation,) = store.conversations()
        assert (conversation.title, conversation.titled_by) == ("The Fox and the Dog", "model")
        assert len(store.tree(conversation.id)) == 4


@pytest.mark.slow
async def test_a_title_of_the_user_stays() -> None:
    """Also one that is the first question, kept on purpose."""
    script = Script(["An answer.", "A Title"])
    app = chat(script, titles=True)
    async with app.run_test(size=SIZE) as pilot:
        script.hold = threading.Event()
        await say(pilot, "One?", wait=False)
        await until(pilot, lambda: app.answers.current is not None and bool(script.asked))
        await type_keys(pilot, *"/rename", "enter")
        await until(pilot, lambda: isinstance(app.screen, LineScreen))
        await until(pilot, lambda: app.screen.query_one(Input).value == "One?")
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(app.screen, LineScreen))
        script.hold.set()
        await until(pilot, lambda: app.answers.current is None)
        await pilot.pause(0.3)
        assert asked_for(script) == ["One?"]
        assert header_text(app).startswith("One?")


@pytest.mark.slow
async def test_a_question_interrupts_a_title(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is answered at once, and the title is written after that answer."""
    monkeypatch.setattr(titles, "QUIET_SECONDS", 1.0)
    script = Script(["An answer.", "A very long title here", "Another.", "A Title"])
    app = chat(script, titles=True)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        script.hold = threading.Event()
        await until(pilot, lambda: len(script.asked) == 2)
        await say(pilot, "Two?", wait=False)  # the title waits until it is stopped
        await until(pilot, lambda: len(script.asked) == 3)
        script.hold = None
        await until(pilot, lambda: app.answers.current is None)
        await until(pilot, lambda: header_text(app).startswith("A Title"))
        assert asked_for(script) == ["One?", REQUEST, "Two?", REQUEST]


@pytest.mark.slow
@pytest.mark.parametrize("text", ["<b>Title</b>", "", "word " * 20])
async def test_what_is_no_title_changes_nothing(text: str) -> None:
    """And the model is not asked again."""
    script = Script(["An answer.", text, "Another."])
    app = chat(script, titles=True)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        await until(pilot, lambda: len(script.asked) == 2)
        await say(pilot, "Two?")
        await pilot.pause(0.3)
        assert asked_for(script) == ["One?", REQUEST, "Two?"]
        assert header_text(app).startswith("One?")


@pytest.mark.slow
async def test_a_title_that_is_cut_off_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it ended at the limit."""
    script = Script(["An answer.", "A Title that goes"], finish="length")
    app = chat(script, titles=True)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        await until(pilot, lambda: len(script.asked) == 2)
        await pilot.pause(0.3)
        assert header_text(app).startswith("One?")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("thinking", "think"), [((), "auto"), (("on", "off"), "off"), (("low", "high"), None)]
)
async def test_the_model_does_not_reason_about_a_title(
    thinking: tuple[str, ...], think: str | None
) -> None:
    """A model that always reasons writes none."""
    script = Script(["An answer.", "A Title"], thinking=thinking)
    app = chat(script, titles=True)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        await pilot.pause(0.3)
        if think is None:
            assert len(script.asked) == 1
            return
        await until(pilot, lambda: header_text(app).startswith("A Title"))
        assert script.asked[1][1].get("think", "auto") == think


@pytest.mark.slow
async def test_a_setting_switches_titles_off() -> None:
    """And a failure shows nothing."""
    script = Script(["An answer.", "A Title"])
    app = chat(script, titles=True, screen=ScreenOptions(model_titles=False))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        await pilot.pause(0.3)
        assert len(script.asked) == 1
        failing: Any = app.state.titles
        failing.answered()
        script.error = ValueError("a bug")
        await until(pilot, lambda: len(script.asked) == 2)
        await pilot.pause(0.1)
        assert not app.notices.latest
        assert header_text(app).startswith("One?")
