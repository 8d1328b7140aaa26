"""Changes that can be undone, also where the store fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from specchat.chat.store import Store
from specchat.errors import StoreBusy, StoreFailed
from specchat.tui.controllers.answer_options import AnswerOptions
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.pair_controller import PairController
from specchat.tui.controllers.undoable_changes import UndoableChanges


@pytest.fixture
def chat(tmp_path: Path) -> Conversations:
    """A chat with one question."""
    chat = Conversations(Store(tmp_path / "history.db"), "pair")
    chat.ask("Question")
    return chat


def options_of(chat: Conversations) -> AnswerOptions:
    """Return options, of which nothing was changed yet."""
    return AnswerOptions(chat, cast("PairController", None))


def changes_of(chat: Conversations) -> UndoableChanges:
    """Return the changes of a chat."""
    return UndoableChanges(chat, options_of(chat))


def failing(error: Exception) -> Any:
    """Return a method that raises an error."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def texts(chat: Conversations) -> list[str]:
    """Return the messages that are shown."""
    return [each.text for each in chat.branch]


def test_an_undo_that_fails_can_be_repeated(
    chat: Conversations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As once a full disk has room again."""
    changes = changes_of(chat)
    changes.delete(chat.branch[0].id)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "delete_messages", failing(StoreFailed("the disk is full")))
        with pytest.raises(StoreFailed):
            changes.undo()
    assert changes.undo()
    assert texts(chat) == ["Question"]


def test_a_deletion_of_which_half_failed_can_be_undone(
    chat: Conversations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages are deleted before the branch that is left is stored."""
    changes = changes_of(chat)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "change", failing(StoreBusy("another program is writing")))
        with pytest.raises(StoreBusy):
            changes.delete(chat.branch[0].id)
    assert texts(chat) == []
    assert changes.undo()
    assert texts(chat) == ["Question"]


@pytest.mark.parametrize("failing_write", ["change", "delete_messages"])
def test_a_summary_or_version_that_cannot_be_taken_away_stays_whole(
    chat: Conversations, monkeypatch: pytest.MonkeyPatch, failing_write: str
) -> None:
    """The next attempt takes it away: what is on the screen is there until then."""
    changes = changes_of(chat)
    question = chat.branch[0].id
    summary = changes.ask_for_summary("Summarise").id
    version = chat.answer(summary).id
    with monkeypatch.context() as patch:
        patch.setattr(Store, failing_write, failing(StoreBusy("another program is writing")))
        with pytest.raises(StoreBusy):
            chat.withdraw(version, question)
        with pytest.raises(StoreBusy):
            changes.undo()
    assert [each.id for each in chat.branch] == [question, summary, version]
    chat.withdraw(version, summary)
    assert changes.undo()
    assert texts(chat) == ["Question"]
    assert list(chat.store.tree(chat.stored_number())) == [question]


def test_options_that_were_changed_since_leave_nothing_to_undo(chat: Conversations) -> None:
    """Which is said, if nothing was changed before them."""
    options = options_of(chat)
    changes = UndoableChanges(chat, options)
    changes.change_options({"drafter": "suffix"}, lambda: None)
    options.changed["drafter"] = "model"
    assert not changes.undo()
