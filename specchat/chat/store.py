"""The store: conversations, their messages and presets in one SQLite file of the user's own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import time
from types import TracebackType
from typing import Any, Self

import platformdirs

from specchat import drafters
from specchat.chat.attachments import Attachment
from specchat.chat.conversation import Conversation, Message, Piece, Role, Tree
from specchat.chat.database import BUSY_SECONDS, Database
from specchat.chat.safe_text import harmless
from specchat.errors import ConversationNotFound, StoreBusy

__all__ = ["Found", "Preset", "Store", "default_path"]

KEPT_AFTER_DELETION = 24 * 3600.0
"""Seconds for which what was deleted can still be brought back."""
LONGEST_TITLE = 60
LONGEST_RECALLED = 5000
LARGEST_NUMBER = 2**63 - 1
"""What SQLite can count to: no conversation has a larger number, and no list is longer."""
CONVERSATIONS = (
    "SELECT id, title, created, changed, system_prompt, pair, leaf, preset FROM conversation"
)


def default_path() -> Path:
    """Return where conversations are kept."""
    return Path(platformdirs.user_data_path("specchat", appauthor=False)) / "history.db"


@dataclass(frozen=True, slots=True)
class Found:
    """A message that holds what was searched for, with the words around it."""

    conversation: int
    message: int
    title: str
    snippet: str


@dataclass(frozen=True, slots=True)
class Preset:
    """A name for a system prompt and sampling options."""

    name: str
    system_prompt: str
    sampling: Mapping[str, Any]


class Store:
    """Conversations on disk, or in memory alone where `path` is None. For one thread.

    Several programs may use one file at once: StoreBusy is raised where another one has been
    writing for longer than `patience`, in seconds. Raises StoreFailed, with what to do, where the
    disk is full or the file cannot be used.
    """

    def __init__(self, path: Path | None, patience: float = BUSY_SECONDS) -> None:
        """Open the file, or begin one; a damaged one is set aside, as `notice` then says."""
        self._database = Database(path)
        self._database.wait_at_most(patience)
        self.notice = self._database.notice
        with suppress(StoreBusy):  # the next one to open it will do it
            self.purge()

    def be_patient(self) -> None:
        """Wait for other programs from now on, as long as need be within reason."""
        self._database.wait_at_most(BUSY_SECONDS)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def __enter__(self) -> Self:
        """Use the store in a with statement."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    # --- conversations

    def begin(self, system_prompt: str = "", pair: str = "", preset: str = "") -> Conversation:
        """Begin a conversation."""
        now = time()
        row = self._database.write(
            "INSERT INTO conversation (title, created, changed, system_prompt, pair, preset)"
            " VALUES ('', ?, ?, ?, ?, ?)",
            (now, now, _clean(system_prompt), pair, preset),
        )
        return Conversation(row, "", now, now, system_prompt, pair, preset=preset)

    def conversation(self, number: int) -> Conversation:
        """Return one conversation; raises ConversationNotFound."""
        rows = self._database.read(
            CONVERSATIONS + " WHERE id = ? AND deleted IS NULL",
            (number if abs(number) <= LARGEST_NUMBER else None,),
        )
        for row in rows:
            return Conversation(*row)
        raise ConversationNotFound(
            f"there is no conversation {number}: specchat history list shows them"
        )

    def conversations(self, limit: int = -1) -> list[Conversation]:
        """Return conversations that have messages, the newest first."""
        rows = self._database.read(
            CONVERSATIONS
            + " WHERE deleted IS NULL AND leaf IS NOT NULL ORDER BY changed DESC, id DESC LIMIT ?",
            (min(limit, LARGEST_NUMBER),),
        )
        return [Conversation(*row) for row in rows]

    def rename(self, number: int, title: str) -> None:
        """Give a conversation a title."""
        values = (_title(_clean(title)), number)
        self._database.write("UPDATE conversation SET title = ? WHERE id = ?", values)

    def set_system_prompt(self, number: int, text: str) -> None:
        """Give a conversation another system prompt."""
        values = (_clean(text), number)
        self._database.write("UPDATE conversation SET system_prompt = ? WHERE id = ?", values)

    def set_preset(self, number: int, name: str) -> None:
        """Note which preset a conversation is asked with; "" for none."""
        self._database.write("UPDATE conversation SET preset = ? WHERE id = ?", (name, number))

    def read_on(self, number: int, leaf: int | None) -> None:
        """Note which branch is read."""
        self._database.write("UPDATE conversation SET leaf = ? WHERE id = ?", (leaf, number))

    def delete(self, number: int) -> None:
        """Delete a conversation; for a day `restore` brings it back."""
        self._database.write("UPDATE conversation SET deleted = ? WHERE id = ?", (time(), number))

    def restore(self, number: int) -> None:
        """Bring back a deleted conversation."""
        self._database.write("UPDATE conversation SET deleted = NULL WHERE id = ?", (number,))

    def purge(self, older_than: float = KEPT_AFTER_DELETION) -> None:
        """Remove for good what was deleted so many seconds ago."""
        before = time() - older_than
        with self._database.transaction() as database:
            database.execute("DELETE FROM message WHERE deleted <= ?", (before,))
            database.execute("DELETE FROM conversation WHERE deleted <= ?", (before,))

    # --- messages

    def tree(self, conversation: int) -> Tree:
        """Return all messages of a conversation."""
        rows = self._database.read(
            "SELECT id, parent, role, text, created, finish, statistics, pieces, attachments"
            " FROM message WHERE conversation = ? AND deleted IS NULL",
            (conversation,),
        )
        return Tree(_message(row) for row in rows)

    def add(
        self,
        conversation: int,
        role: Role,
        text: str,
        parent: int | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> Message:
        """Add a message after another one, and read on from it."""
        now, text = time(), _clean(text)
        files = [Attachment(_clean(each.name), _clean(each.content)) for each in attachments]
        with self._database.transaction() as database:
            row = database.execute(
                "INSERT INTO message (conversation, parent, role, text, created, attachments)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (conversation, parent, role, text, now, _listed(files)),
            ).lastrowid
            database.execute(
                "UPDATE conversation SET leaf = ?, changed = ?,"
                " title = CASE title WHEN '' THEN ? ELSE title END WHERE id = ?",
                (row, now, _title(text), conversation),
            )
        return Message(int(row or 0), parent, role, text, now, attachments=tuple(files))

    def write(
        self,
        message: int,
        text: str,
        *,
        finish: str | None = None,
        statistics: Mapping[str, Any] | None = None,
        pieces: Sequence[Piece] = (),
    ) -> None:
        """Write what an answer has come to; with `finish` it is complete."""
        self._database.write(
            "UPDATE message SET text = ?, finish = ?, statistics = ?, pieces = ? WHERE id = ?",
            (
                _clean(text),
                finish,
                json.dumps(statistics) if statistics else None,
                json.dumps(
                    [[_clean(text), drafters.origin(origin).letter] for text, origin in pieces],
                    separators=SHORT,
                )
                if pieces
                else None,
                message,
            ),
        )

    def questions(self, limit: int) -> list[str]:
        """Return what was asked last, in any conversation, oldest first; not what is very long."""
        rows = self._database.read(
            "SELECT message.text FROM message"
            " JOIN conversation ON conversation.id = message.conversation"
            " WHERE role = 'user' AND message.deleted IS NULL AND conversation.deleted IS NULL"
            " AND length(message.text) <= ? ORDER BY message.id DESC LIMIT ?",
            (LONGEST_RECALLED, limit),
        )
        return [text for (text,) in reversed(rows)]

    def delete_messages(self, messages: Sequence[int]) -> None:
        """Delete messages; for a day `restore_messages` brings them back."""
        self._mark(messages, time())

    def restore_messages(self, messages: Sequence[int]) -> None:
        """Bring back deleted messages."""
        self._mark(messages, None)

    def search(self, words: str, limit: int = 50, conversation: int | None = None) -> list[Found]:
        """Return messages that hold all words, the last of which may be a beginning."""
        quoted = ['"' + word.replace('"', '""') + '"' for word in _clean(words).split()]
        if not quoted:
            return []
        rows = self._database.read(
            "SELECT message.conversation, message.id, conversation.title,"
            " snippet(found, 0, '', '', '…', 16) FROM found"
            " JOIN message ON message.id = found.rowid"
            " JOIN conversation ON conversation.id = message.conversation"
            " WHERE found MATCH ? AND message.deleted IS NULL AND conversation.deleted IS NULL"
            " AND (? IS NULL OR message.conversation = ?) ORDER BY message.id DESC LIMIT ?",
            (" ".join(quoted) + "*", conversation, conversation, limit),
        )
        return [Found(*row) for row in rows]

    # --- presets

    def presets(self) -> list[Preset]:
        """Return all presets by name."""
        rows = self._database.read(
            "SELECT name, system_prompt, sampling FROM preset ORDER BY name", ()
        )
        return [Preset(name, prompt, json.loads(sampling)) for name, prompt, sampling in rows]

    def keep_preset(self, preset: Preset) -> None:
        """Keep a preset, in place of one of the same name."""
        values = (_clean(preset.name), _clean(preset.system_prompt), json.dumps(preset.sampling))
        self._database.write("INSERT OR REPLACE INTO preset VALUES (?, ?, ?)", values)

    def delete_preset(self, name: str) -> None:
        """Delete a preset."""
        self._database.write("DELETE FROM preset WHERE name = ?", (name,))

    def _mark(self, messages: Sequence[int], deleted: float | None) -> None:
        with self._database.transaction() as database:
            rows = [(deleted, message) for message in messages]
            database.executemany("UPDATE message SET deleted = ? WHERE id = ?", rows)


SHORT = (",", ":")


def _message(row: tuple[Any, ...]) -> Message:
    number, parent, role, text, created, finish, statistics, pieces, attachments = row
    return Message(
        number,
        parent,
        role,
        text,
        created,
        finish,
        json.loads(statistics) if statistics else {},
        tuple(
            (piece, drafters.origin_of_letter(letter).name) for piece, letter in json.loads(pieces)
        )
        if pieces
        else (),
        tuple(Attachment(**each) for each in json.loads(attachments or "[]")),
    )


def _listed(attachments: Sequence[Attachment]) -> str | None:
    return json.dumps([asdict(each) for each in attachments]) if attachments else None


def _title(text: str) -> str:
    """Return the beginning of a text on one line, without what could command a terminal."""
    line = re.sub(r"\s+", " ", harmless(text[:LONGEST_RECALLED])).strip()
    return line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 1].rstrip() + "…"


def _clean(text: str) -> str:
    """Return a text that can be stored: halves of characters cannot."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
