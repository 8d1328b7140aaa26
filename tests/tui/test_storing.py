"""Answers that cannot be stored: on a full disk, and in a damaged file."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from chat.test_damage import PAGE, with_page_zeroed
from scripted_chat import Script, chat
from specchat.chat.store import Store
from specchat.errors import StoreFailed
from specchat.tui.answer_parts import AnswerParts
from specchat.tui.app import ChatApp
from specchat.tui.controllers.conversations import Conversations
from tui.driving import say, status, until
from tui.test_asking import SIZE, notes

pytestmark = pytest.mark.anyio
LONG = "some words " * 4000


def set_disk_full(app: ChatApp, *, is_full: bool) -> None:
    """Let the store's file grow no further, as on a full disk."""
    database = app.conversations.store._connection
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages if is_full else 2**30}")


@pytest.mark.slow
async def test_an_answer_on_a_full_disk_is_stored_when_there_is_space(tmp_path: Path) -> None:
    """One line says that it is not saved yet; no notice covers the screen."""
    path = tmp_path / "history.db"
    script = Script([LONG], hold=threading.Event())
    app = chat(script, path)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await say(pilot, "one", wait=False)
        await until(pilot, lambda: app.answers.current is not None)
        set_disk_full(app, is_full=True)
        assert script.hold is not None
        script.hold.set()
        await until(pilot, lambda: app.answers.current is None)
        assert status(app).startswith("Not saved yet: ")
        assert "disk is full" in status(app)
        assert "disk is full" not in notes(app)
        set_disk_full(app, is_full=False)
        await until(pilot, app.conversations.writes.settle)
        app.answers.settle()
        assert "Not saved" not in status(app)
        with Store(path) as store:
            assert store.tree(1).branch(2)[-1].text == LONG
    assert app.failure == ""


async def test_an_answer_that_waits_to_be_stored_is_continued_with_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps through it show both parts, before and after it is stored."""
    write, is_full = Store.write, True

    def write_if_possible(*given: Any, **more: Any) -> None:
        if is_full:
            raise StoreFailed("the disk is full")
        write(*given, **more)

    monkeypatch.setattr(Store, "write", write_if_possible)
    app = chat(Script(["one two", "three four"], finish="length"), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Count")
        await pilot.press("ctrl+g")
        await until(
            pilot,
            lambda: "three" in app.conversations.branch[-1].text and not app.answers.current,
        )
        answer = app.conversations.branch[-1]
        waiting = app.answers.steps_of(answer.id)
        is_full = False
        assert app.conversations.writes.settle()
        stored = app.conversations.store.steps(answer.id)
    for known in (waiting, stored):
        assert known is not None
        assert "".join(step.text for step in known.steps) == answer.text


def test_an_answer_that_is_gone_from_the_history_is_said_once(tmp_path: Path) -> None:
    """It can never be written; what is written after it is as usual."""
    path = tmp_path / "history.db"
    with Store(path) as store, Store(path) as other:
        conversations = Conversations(store, "pair")
        writes = conversations.writes
        answer = conversations.answer(conversations.ask("Question").id)
        other.delete(conversations.number or 0, permanently=True)
        other.purge()
        writes.write(answer.id, AnswerParts("the ans"))
        conversations.finish(answer, AnswerParts("the answer"), "stop", {"steps": 1})
        assert writes.trouble.startswith("Not saved: the answer is no longer in the history")
        assert writes.settle()
        assert writes.trouble
        assert conversations.tree[answer.id].text == "the answer"
        conversations.begin()
        answer = conversations.answer(conversations.ask("Another").id)
        conversations.finish(answer, AnswerParts("the other answer"), "stop", {"steps": 1})
        assert writes.trouble == ""


async def test_an_answer_that_is_gone_is_reported_at_the_end(tmp_path: Path) -> None:
    """Where the chat ends before its line was seen."""
    path = tmp_path / "history.db"
    script = Script([LONG], hold=threading.Event())
    app = chat(script, path)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "one", wait=False)
        await until(pilot, lambda: app.answers.current is not None)
        with Store(path) as other:
            other.delete(1, permanently=True)
            other.purge()
        assert script.hold is not None
        script.hold.set()
    assert app.failure.startswith("an answer was not saved.")
    assert "no longer in the history" in app.failure


async def test_what_stays_unsaved_is_reported_at_the_end(tmp_path: Path) -> None:
    """The shell shows it in one line."""
    script = Script([LONG], hold=threading.Event())
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "one", wait=False)
        await until(pilot, lambda: app.answers.current is not None)
        set_disk_full(app, is_full=True)
        assert script.hold is not None
        script.hold.set()
        await until(pilot, lambda: "Not saved yet" in status(app))
    assert app.failure.startswith("an answer was not saved.")
    assert "disk is full" in app.failure


@pytest.mark.slow
async def test_damage_found_while_chatting_is_recovered_and_reported(tmp_path: Path) -> None:
    """The chat goes on with what could be read."""
    path = tmp_path / "history.db"
    with Store(path) as store:
        for _ in range(20):
            store.add(store.begin().id, "user", LONG)
    content = path.read_bytes()
    app = chat(Script(["An answer."]), path)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        for number in range(1, len(content) // PAGE):
            with_page_zeroed(path, number)
        await say(pilot, "one", wait=False)
        await until(pilot, lambda: "were recovered; the damaged file is kept as" in notes(app))
        await pilot.press("enter")
        await until(pilot, lambda: len(app.conversations.branch) == 2)
        await until(pilot, lambda: app.answers.current is None)
    with Store(path) as store:
        assert store.conversations()[0].title == "one"
