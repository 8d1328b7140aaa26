"""What the model gets of a conversation: pinned messages, summaries, and what drops out."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from textual.pilot import Pilot

from scripted_chat import Script, chat
from specchat.chat.store import Store
from specchat.tui.actions.context_actions import SUMMARY_REQUEST
from specchat.tui.app import ChatApp
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.message_views import MessageView
from tui.driving import header_text, say, screen_text, status, type_keys, until

pytestmark = pytest.mark.anyio
SIZE = (110, 40)


def sent(script: Script, place: int = -1) -> list[str]:
    """Return the contents of the messages that an answer was asked with."""
    return [each["content"] for each in script.asked[place][0]]


def notices(app: ChatApp) -> str:
    """Return all notices."""
    return "\n".join(each.message for each in app.notices.latest)


async def answered(pilot: Pilot[None], script: Script, count: int) -> None:
    """Wait until this many answers are written."""
    app = pilot.app
    assert isinstance(app, ChatApp)
    await until(pilot, lambda: len(script.asked) == count and app.answers.current is None)


async def test_a_summary_replaces_what_is_above_it(tmp_path: Path) -> None:
    """In the prompt alone: all messages stay on the screen and in the store."""
    script = Script(["First answer", "Second answer", "THE SUMMARY", "Third answer"])
    app = chat(script, tmp_path / "history.db", system_prompt="Be brief.")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        await say(pilot, "Two?")
        await say(pilot, "/compact", wait=False)
        await answered(pilot, script, 3)
        assert sent(script) == [
            "Be brief.", "One?", "First answer", "Two?", "Second answer", SUMMARY_REQUEST,
        ]  # fmt: skip
        await say(pilot, "Three?")
        assert sent(script) == ["Be brief.", SUMMARY_REQUEST, "THE SUMMARY", "Three?"]
        assert script.asked[-1][1]["pinned"] == [1, 2]
        shown = screen_text(app)
        for words in ("One?", "First answer", "the model gets the answer below", "THE SUMMARY"):
            assert words in shown
        assert SUMMARY_REQUEST[:20] not in shown
        await say(pilot, "/context", wait=False)
        await until(pilot, lambda: "A summary stands for 4 earlier messages." in notices(app))
        await pilot.press("up")  # the request is no question of the user's
        assert app.query_one(Composer).text == "/context"
    with Store(tmp_path / "history.db") as store:
        (conversation,) = store.conversations()
        assert len(store.tree(conversation.id)) == 8
        assert SUMMARY_REQUEST not in store.questions(10)


@pytest.mark.slow
async def test_undo_takes_a_summary_back(tmp_path: Path) -> None:
    """Right after it, with its messages; later it becomes an ordinary message."""
    script = Script(["First", "Second", "SUMMARY", "Third", "SUMMARY", "Fourth", "Fifth"])
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        await say(pilot, "Two?")
        await say(pilot, "/compact", wait=False)
        await answered(pilot, script, 3)
        await pilot.press("ctrl+z")
        await until(pilot, lambda: "SUMMARY" not in screen_text(app))
        await say(pilot, "Three?")
        before = ["One?", "First", "Two?", "Second", "Three?"]
        assert sent(script) == before
        await say(pilot, "/compact", wait=False)
        await answered(pilot, script, 5)
        await say(pilot, "Four?")
        assert sent(script) == [SUMMARY_REQUEST, "SUMMARY", "Four?"]
        await pilot.press("ctrl+z")
        await say(pilot, "Five?")
        assert sent(script) == [
            *before, "Third", SUMMARY_REQUEST, "SUMMARY", "Four?", "Fourth", "Five?",
        ]  # fmt: skip
        assert "pinned" not in script.asked[-1][1]


@pytest.mark.slow
async def test_a_summary_that_was_stopped_replaces_nothing() -> None:
    """Neither its question nor the part that was written is sent."""
    script = Script(["First", "Second", "THE SUMMARY is long", "Third"])
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        await say(pilot, "Two?")
        script.hold = threading.Event()
        await say(pilot, "/compact", wait=False)
        await until(pilot, lambda: "THE SUMMARY" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: app.answers.current is None)
        script.hold = None
        await say(pilot, "Three?")
        assert sent(script) == ["One?", "First", "Two?", "Second", "Three?"]


@pytest.mark.slow
async def test_too_little_is_not_summarised() -> None:
    """One question and its answer are as short as a summary."""
    script = Script()
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "/compact", wait=False)
        await until(pilot, lambda: "too little to summarise" in notices(app))
        await say(pilot, "One?")
        await say(pilot, "/compact", wait=False)
        await pilot.pause()
        assert len(script.asked) == 1


@pytest.mark.slow
async def test_pinned_messages_stay_and_are_marked(tmp_path: Path) -> None:
    """By p on a message or /pin, also through a summary; undo and the same key unpin."""
    script = Script(["First", "Second", "SUMMARY", "Third"])
    app = chat(script, tmp_path / "history.db", system_prompt="S")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        await say(pilot, "Two?")
        await pilot.press("shift+up", "up", "up")
        assert isinstance(app.focused, MessageView)
        assert app.focused.text == "First"
        await type_keys(pilot, "p")
        await until(pilot, lambda: "▪ pinned" in screen_text(app))
        app.query_one(Composer).focus()
        await say(pilot, "/pin", wait=False)
        await until(pilot, lambda: screen_text(app).count("▪ pinned") == 2)
        await pilot.press("ctrl+z")
        await until(pilot, lambda: screen_text(app).count("▪ pinned") == 1)
        await say(pilot, "/compact", wait=False)
        await answered(pilot, script, 3)
        assert script.asked[-1][1]["pinned"] == [1, 2, 5]
        await say(pilot, "Three?")
        assert sent(script) == ["S", "One?", "First", SUMMARY_REQUEST, "SUMMARY", "Three?"]
        assert script.asked[-1][1]["pinned"] == [1, 2, 3, 4]
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        app.conversations.open(1)
        await app.view.show_branch()
        await until(pilot, lambda: screen_text(app).count("▪ pinned") == 1)


@pytest.mark.slow
async def test_what_drops_out_next_is_said() -> None:
    """The first turn that is neither pinned nor left out; the last one never is."""
    script = Script(["First", "Second", "Third"])
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Write a Python program that prints its own source")
        await say(pilot, "/context", wait=False)
        await until(pilot, lambda: "Nothing can drop out of it." in notices(app))
        await say(pilot, "Two?")
        await say(pilot, "/context", wait=False)
        words = "Next to drop: “Write a Python program that pr…” and what follows it."
        await until(pilot, lambda: words in notices(app))
        assert "of 4096 tokens is" in notices(app)
        script.left_out = 2
        await say(pilot, "Three?")
        assert "no longer fit the context" in status(app)
        await say(pilot, "/context", wait=False)
        await until(pilot, lambda: "The oldest 2 messages are left out." in notices(app))
        assert "Next to drop: “Two?” and what follows it." in notices(app)
        app.state.changes.pin(app.conversations.branch[2].id)
        await say(pilot, "/context", wait=False)
        await until(pilot, lambda: "1 turn stays whatever happens." in notices(app))
        assert "Nothing can drop out of it." in notices(app)


async def test_the_context_never_falls_while_an_answer_is_awaited() -> None:
    """It has what was there before, and about what is new; then what was read."""
    script = Script(["abcdefghijkl" * 40, "Short"], finish="length")
    app = chat(script, system_prompt="Be brief. " * 60)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "0 % of 4096" in header_text(app))

        async def awaited(percents: str) -> None:
            script.first_hold = threading.Event()
            await (say(pilot, asked, wait=False) if asked else pilot.press("ctrl+g"))
            await until(pilot, lambda: app.answers.current is not None)
            await pilot.pause(0.2)
            assert app.answers.figures.statistics.prompt_tokens == 0
            assert f" {percents} of 4096" in header_text(app)
            app.actions.context.show()
            assert f"is {percents} full" in app.notices.latest[-1].message
            script.first_hold.set()
            await until(pilot, lambda: app.answers.current is None)

        asked = "word " * 40
        await awaited("5 %")  # 150 and 50 tokens
        assert " 4 % of 4096" in header_text(app)  # 40 and 120, as the engine has counted
        asked = "word " * 400
        await awaited("16 %")
        assert " 1 % of 4096" in header_text(app)
        asked = ""
        await awaited("1 %")
