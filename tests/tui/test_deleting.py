"""Deleting and bringing back, and keeping while another program writes."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from scripted_chat import Script, chat
from specchat.chat.store import Store
from specchat.chat.stored_steps import StoredSteps
from specchat.decoding.chunk import Chunk
from specchat.errors import StoreBusy, StoreFailed
from specchat.tui.answer_parts import AnswerParts
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.screens.dialogs import ConfirmScreen
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.sidebar import Sidebar
from tui.driving import agree, say, screen_text, until
from tui.test_asking import SIZE, notes, texts

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_undo_leads_back_to_the_conversation_it_belongs_to(tmp_path: Path) -> None:
    """Two conversations never mix, on the screen or in the store."""
    path = tmp_path / "history.db"
    app = chat(Script(["a", "b", "c", "d"]), path)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "one")
        await say(pilot, "two")
        await agree(pilot, "shift+up", "up", "d")
        await pilot.pause()
        await pilot.press("ctrl+n")
        await say(pilot, "elsewhere")
        await app.run_action("undo")
        await pilot.pause()
        assert texts(app) == ["one", "a", "two", "b"]
        await say(pilot, "three")
    with Store(path) as store:
        said = [
            [message.text for message in store.tree(each.id).branch(each.leaf)]
            for each in store.conversations()
        ]

    assert said == [["one", "a", "two", "b", "three", "d"], ["elsewhere", "c"]]


@pytest.mark.slow
async def test_deleting_one_version_of_the_first_question_leaves_the_other(
    tmp_path: Path,
) -> None:
    """The conversation is not empty, and stays in the list; brought back, it has its place."""
    app = chat(Script(["a", "b"]), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "one")
        await pilot.press("shift+up", "up", "e")
        await say(pilot, "one, edited")
        await pilot.press("shift+up", "up", "left")
        await pilot.pause()
        await agree(pilot, "d")
        await pilot.pause()
        assert texts(app) == ["one, edited", "b"]
        assert len(app.conversations.store.conversations()) == 1
        await app.run_action("undo")
        await pilot.pause()
        assert texts(app) == ["one", "a"]
        assert app.conversations.tree.version(app.conversations.branch[0].id) == (1, 2)


async def test_figures_belong_to_the_answer_that_undo_brings_back(tmp_path: Path) -> None:
    """Not to the version that was shown meanwhile."""
    app = chat(Script(["a", "a much longer answer"]), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "one")
        await pilot.press("shift+up", "up", "e")
        await say(pilot, "one, edited")
        figures = app.answers.figures.statistics.generated_tokens
        await agree(pilot, "shift+up", "up", "d")
        await until(pilot, lambda: texts(app) == ["one", "a"])
        assert app.answers.figures.statistics.generated_tokens < figures
        await app.run_action("undo")
        await until(pilot, lambda: texts(app) == ["one, edited", "a much longer answer"])
        assert app.answers.figures.statistics.generated_tokens == figures


@pytest.mark.slow
async def test_undo_waits_for_the_answer(tmp_path: Path) -> None:
    """While an answer is being written, undo restores nothing and shows the reason."""
    script = Script(["a"])
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await say(pilot, "one")
        await agree(pilot, "shift+up", "up", "d")
        script.hold = threading.Event()
        await say(pilot, "two", wait=False)
        await app.run_action("undo")
        await until(pilot, lambda: "Esc stops it" in notes(app))
        script.hold.set()
        await until(pilot, lambda: app.answers.current is None)
        assert texts(app) == ["two", "a"]


@pytest.mark.slow
@pytest.mark.parametrize("key", ["ctrl+z", "f12"])
async def test_a_key_brings_back_what_was_deleted(key: str, tmp_path: Path) -> None:
    """Ctrl+Z, or the key of the settings, where nothing is written; it opens what was open."""
    app = chat(Script(["a"]), tmp_path / "history.db", keys={"undo": key})
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await say(pilot, "one")
        await pilot.press("f2")
        app.query_one(Sidebar).focus()
        await agree(pilot, "d")
        await pilot.pause()
        assert texts(app) == []
        app.query_one(Composer).focus()
        await pilot.press(key)
        await until(pilot, lambda: texts(app) == ["one", "a"])
        app.query_one(Composer).focus()
        await pilot.press({"f12": "ctrl+z"}.get(key, "x"))
        await pilot.pause()
        assert "nothing to restore" not in notes(app)
        app.query_one(Composer).text = ""
        await pilot.press(key)
        await until(pilot, lambda: "nothing to restore" in notes(app))


@pytest.mark.slow
async def test_another_program_that_writes_does_not_stop_the_screen(tmp_path: Path) -> None:
    """What was asked can be sent again, and an answer is kept when the other one has ended."""
    path = tmp_path / "history.db"
    script = Script(["an answer of some length"])
    app = chat(script, path)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await say(pilot, "one")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await say(pilot, "two")
        assert "try again" in notes(app)
        assert app.query_one(Composer).text == "two"
        answer = app.conversations.branch[-1]
        app.conversations.finish(answer, AnswerParts("the end of it"), "stop", {"steps": 1})
        app.answers.settle()
        assert not app.conversations.writes.settle()
        other.execute("COMMIT")
        other.close()
        await until(pilot, app.conversations.writes.settle)
        with Store(path) as store:
            assert store.tree(1)[answer.id].text == "the end of it"
        await pilot.press("enter")
        await until(pilot, lambda: texts(app)[-1:] == [script.answers[0]])


def test_a_busy_store_differs_from_a_broken_one(tmp_path: Path) -> None:
    """A program that does not wait learns at once that the store is busy."""
    with Store(tmp_path / "history.db", busy_timeout=0.0) as store:
        other = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="try again"):
            store.begin()
        Store(tmp_path / "history.db", busy_timeout=0.0).close()
        other.close()


@pytest.mark.slow
async def test_keys_pressed_after_one_that_deletes_do_nothing() -> None:
    """A question is asked, and they do not answer it; the message is still there."""
    app = chat(Script())
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "A question")
        await pilot.press("shift+up")
        for keys in ("dd", "dr", "de"):
            await pilot.press(*keys)
            await pilot.pause()
            assert isinstance(app.screen, ConfirmScreen), keys
            assert "An answer." in screen_text(app)
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(app.screen, ConfirmScreen))
            assert len(app.conversations.branch) == 2
        await agree(pilot, "d")
        assert len(app.conversations.branch) == 1


@pytest.mark.slow
async def test_ctrl_z_brings_back_what_was_deleted_beside_a_text(tmp_path: Path) -> None:
    """What is being written stays; once it changes, Ctrl+Z is the composer's again."""
    app = chat(Script(), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "A question")
        await pilot.press(*"half")
        await agree(pilot, "shift+up", "up", "d")
        assert texts(app) == []
        await pilot.press("ctrl+z")
        await until(pilot, lambda: texts(app) == ["A question", "An answer."])
        assert app.view.composer.text == "half"
        await pilot.press("x", "ctrl+z")
        await until(pilot, lambda: app.view.composer.text != "halfx")
        assert texts(app) == ["A question", "An answer."]


async def test_an_answer_is_kept_though_another_program_deleted_its_chat(tmp_path: Path) -> None:
    """It ends out of sight; brought back, the chat has all of it."""
    path = tmp_path / "history.db"
    script = Script(["one two three four five six seven eight"], hold=threading.Event())
    app = chat(script, path)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: "one two" in screen_text(app))
        await pilot.press("ctrl+n")
        with Store(path) as store:
            store.delete(1)
        script.hold.set()  # type: ignore[union-attr]
        await until(pilot, lambda: app.answers.current is None)
        assert "Answered: Another chat" in notes(app)
    with Store(path) as store:
        store.restore(1)
        tree = store.tree(1)
        (answer,) = [message for message in tree.values() if message.role == "assistant"]
    assert (answer.text, answer.finish) == (script.answers[0], "stop")


async def test_a_chat_is_not_deleted_while_its_answer_is_raced(tmp_path: Path) -> None:
    """What is asked next would be deleted with it."""
    script = Script(["one two three four five six seven eight"], hold=threading.Event())
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        script.hold.set()  # type: ignore[union-attr]
        await say(pilot, "Count")
        script.hold.clear()  # type: ignore[union-attr]
        await pilot.press("f7")
        await until(pilot, lambda: app.answers.current is not None)
        await app.actions.conversations.delete(1)
        await pilot.pause()
        assert not isinstance(app.screen, ConfirmScreen)
        assert "Still answering" in notes(app)
        script.hold.set()  # type: ignore[union-attr]


async def test_an_answer_stays_where_no_other_can_be_begun(tmp_path: Path) -> None:
    """As while another program writes into the history."""
    path = tmp_path / "history.db"
    app = chat(Script(["an answer of some length"]), path)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await say(pilot, "one")
        shown = [each.id for each in app.conversations.branch]
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await pilot.press("f5")
        await until(pilot, lambda: "try again" in notes(app))
        other.execute("ROLLBACK")
        other.close()
        await until(pilot, lambda: len(app.view.transcript.views) == len(shown))
        assert [each.id for each in app.conversations.branch] == shown


def test_an_answer_that_waits_to_be_written_is_there_when_its_conversation_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be empty, and what is then kept of it would replace its text and its steps."""
    write, is_full = Store.write, True

    def write_if_possible(*given: Any, **more: Any) -> None:
        if is_full:
            raise StoreFailed("the disk is full")
        write(*given, **more)

    monkeypatch.setattr(Store, "write", write_if_possible)
    store = Store(tmp_path / "history.db")
    conversations = Conversations(store, "pair")
    answer = conversations.answer(conversations.ask("Question").id)
    number = conversations.number
    assert number is not None
    steps = StoredSteps("target", (Chunk("the", (1,), ("target",), ("the",)),))
    conversations.finish(answer, AnswerParts("the whole answer"), "stop", {"steps": 1}, steps)
    conversations.begin()
    conversations.open(number)
    assert conversations.tree[answer.id].text == "the whole answer"
    conversations.keep_figures(answer.id, {"raced": {}})
    assert conversations.writes.steps_of(answer.id) == steps
    is_full = False
    assert conversations.writes.settle()
    assert not conversations.writes.waiting
    assert store.tree(number)[answer.id].text == "the whole answer"
    assert store.tree(number)[answer.id].statistics == {"steps": 1, "raced": {}}
    assert store.steps(answer.id) == steps
    store.close()
