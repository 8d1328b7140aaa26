"""The store: conversations, their messages and presets in one SQLite file, private to the user."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from time import time
from typing import Any

from specchat.chat.conversation import (
    Attachment,
    ChatSchema,
    Conversation,
    Mark,
    Message,
    Role,
    Tree,
)
from specchat.chat.conversation_rows import CONVERSATIONS, conversation_of, schema_column
from specchat.chat.database import BUSY_TIMEOUT, Database
from specchat.chat.memory_folder import delete_memories
from specchat.chat.message_rows import (
    MESSAGES,
    calls_column,
    message_of,
    pieces_column,
    storable,
    storable_calls,
    title_of,
)
from specchat.chat.preset import ADD_PRESET, PRESETS, Preset, preset_of
from specchat.chat.row_numbers import keep_numbers, last_numbers, next_number
from specchat.chat.stored_images import REMOVE_UNSHOWN, StoredImages, add_images
from specchat.chat.stored_steps import MAX_TOTAL_BYTES, StoredSteps, steps_column, steps_of
from specchat.decoding.chunk import Piece, ToolCall
from specchat.errors import AnswerGone, ConversationNotFound, StoreBusy
from specchat.images.image import Image
from specchat.system.private_files import FOLDERS

UNDO_SECONDS = 24 * 3600.0
"""How long a deletion can be undone, in seconds."""
MAX_RECALLED_LENGTH = 5000
MAX_INTEGER = 2**63 - 1
"""SQLite's largest integer, which limits the numbers of conversations and the length of lists."""

REMOVE_OLD_STEPS = (
    "DELETE FROM steps WHERE message IN (SELECT message FROM (SELECT message,"
    " SUM(LENGTH(data)) OVER (ORDER BY message DESC) AS total FROM steps) WHERE total > ?)"
)
"""Keeps the steps of the newest answers, up to a number of bytes."""

ADD_CONVERSATION = (
    "INSERT INTO conversation"  # noqa: S608 -- ours
    " (id, title, created, changed, system_prompt, pair, preset, schema)"
    f" VALUES ({next_number('conversation')}, '', ?, ?, ?, ?, ?, ?)"
)
ADD_MESSAGE = (
    "INSERT INTO message"  # noqa: S608 -- ours
    " (id, conversation, parent, role, text, created, attachments, reasoning, tool_calls, mark,"
    f" schema) VALUES ({next_number('message')}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

ADD_STEPS = "INSERT INTO steps (message, target, data) SELECT id, ?, ? FROM message WHERE id = ?"


def default_path() -> Path:
    """Return the path of the user's store."""
    return FOLDERS.user_data_path / "history.db"


class Store(Database, AbstractContextManager["Store"]):
    """Conversations on disk, or only in memory if `path` is None. For use in one thread.

    Several programs may share a file. Every method raises StoreBusy if another program has been
    writing for longer than `busy_timeout` seconds, and StoreFailed if the disk is full or the file
    cannot be used.
    """

    def __init__(self, path: Path | None, busy_timeout: float = BUSY_TIMEOUT) -> None:
        """Open or create the file; a damaged one is set aside and `notice` reports it."""
        super().__init__(path, busy_timeout)
        self.images = StoredImages(self, path)
        with suppress(StoreBusy):  # the next program to open the file purges it
            self.purge()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- conversations

    def begin(
        self,
        system_prompt: str = "",
        pair: str = "",
        preset: str = "",
        schema: ChatSchema | None = None,
    ) -> Conversation:
        """Create a conversation and return it."""
        now = time()
        row = self.run(
            ADD_CONVERSATION,
            (now, now, storable(system_prompt), pair, preset, schema_column(schema)),
        )
        return Conversation(row, "", now, now, system_prompt, pair, preset=preset, schema=schema)

    def conversation(self, number: int) -> Conversation:
        """Return a conversation by its number; raises ConversationNotFound."""
        rows = self.rows(
            CONVERSATIONS + " WHERE id = ? AND deleted IS NULL",
            (number if abs(number) <= MAX_INTEGER else None,),
        )
        for row in rows:
            return conversation_of(row)
        raise ConversationNotFound(
            f"no conversation {number}: `specchat history list` shows all numbers"
        )

    def conversations(self, limit: int = -1) -> list[Conversation]:
        """Return the conversations that have messages, newest first."""
        rows = self.rows(
            CONVERSATIONS
            + " WHERE deleted IS NULL AND leaf IS NOT NULL ORDER BY changed DESC, id DESC LIMIT ?",
            (min(limit, MAX_INTEGER),),
        )
        return [conversation_of(row) for row in rows]

    def rename(self, number: int, title: str, titled_by: str = "user") -> None:
        """Set a conversation's title, and who gave it."""
        self.change(number, title=title_of(storable(title)), titled_by=titled_by)

    def change(self, number: int, **columns: str | float | None) -> None:
        """Change columns of a conversation.

        The preset "" stands for none; `leaf` is the last message of the current branch.
        """
        for column, value in columns.items():
            kept = storable(value) if isinstance(value, str) else value
            self.run(f"UPDATE conversation SET {column} = ? WHERE id = ?", (kept, number))  # noqa: S608

    def set_schema(self, number: int, schema: ChatSchema | None) -> None:
        """Set what the answers of a conversation look like; None for any text."""
        self.change(number, schema=schema_column(schema))

    def delete(self, number: int, *, permanently: bool = False) -> None:
        """Delete a conversation; `restore` can undo that for a day, or until `purge` at most."""
        self.change(number, deleted=0.0 if permanently else time())

    def restore(self, number: int) -> None:
        """Restore a deleted conversation."""
        self.change(number, deleted=None)

    def purge(self, older_than: float = UNDO_SECONDS) -> None:
        """Permanently remove what was deleted at least `older_than` seconds ago, and old steps."""
        before = time() - older_than
        with self.transaction() as database:
            last = last_numbers(database)
            removed = [
                database.execute("DELETE FROM message WHERE deleted <= ?", (before,)).rowcount,
                database.execute("DELETE FROM conversation WHERE deleted <= ?", (before,)).rowcount,
            ]
            if any(removed):
                keep_numbers(database, last)
            database.execute(REMOVE_OLD_STEPS, (MAX_TOTAL_BYTES,))
            database.execute(REMOVE_UNSHOWN)
        if any(removed):
            delete_memories()  # they hold what models read of these messages

    # --- messages

    def tree(self, conversation: int) -> Tree:
        """Return all messages of a conversation; the bytes of their images are read when wanted."""
        of_conversation = " WHERE conversation = ? AND deleted IS NULL"
        images = self.images.by_message(conversation)
        rows = self.rows(MESSAGES + of_conversation, (conversation,))
        return Tree(message_of(row, images.get(row[0], ())) for row in rows)

    def add(
        self,
        conversation: int,
        role: Role,
        text: str,
        parent: int | None = None,
        attachments: Sequence[Attachment] = (),
        *,
        reasoning: str = "",
        tool_calls: Sequence[ToolCall] = (),
        mark: Mark = "",
        schema: str = "",
        images: Sequence[Image] = (),
    ) -> Message:
        """Add a message below its parent and make it the end of the current branch.

        That restores a conversation which another program deleted but a moment ago.
        """
        now, text, reasoning = time(), storable(text), storable(reasoning)
        calls, schema = storable_calls(tool_calls), storable(schema)
        files = [
            Attachment(storable(attachment.name), storable(attachment.content))
            for attachment in attachments
        ]
        kept = json.dumps([asdict(file) for file in files]) if files else None
        values = conversation, parent, role, text, now, kept, reasoning, calls_column(calls)
        with self.transaction() as database:
            row = int(database.execute(ADD_MESSAGE, (*values, mark, schema)).lastrowid or 0)
            add_images(database, row, images)
            database.execute(
                "UPDATE conversation SET leaf = ?, changed = ?, deleted = NULL,"
                " title = CASE title WHEN '' THEN ? ELSE title END WHERE id = ?",
                (row, now, title_of(text), conversation),
            )
        return Message(
            row,
            parent,
            role,
            text,
            now,
            attachments=tuple(files),
            reasoning=reasoning,
            tool_calls=calls,
            mark=mark,
            schema=schema,
            images=tuple(images),
        )

    def _waits_for_thread(self) -> bool:
        return self.images.wait()

    def mark(self, message: int, mark: Mark) -> None:
        """Mark a message, or take its mark away."""
        self.run("UPDATE message SET mark = ? WHERE id = ?", (mark, message))

    def write(
        self,
        message: int,
        text: str,
        *,
        reasoning: str = "",
        tool_calls: Sequence[ToolCall] = (),
        finish: str | None = None,
        statistics: Mapping[str, Any] | None = None,
        pieces: Sequence[Piece] = (),
        steps: StoredSteps | None = None,
    ) -> None:
        """Write all parts of an answer decoded so far; `finish` is set once it is complete.

        Until then, its statistics hold only the time of the last write, for other programs, and no
        steps are stored. With `steps` None, those stored before stay. Raises AnswerGone if the
        answer was removed for good, or lost.
        """
        kept = statistics if finish else {"written": time()}
        record = json.dumps(kept) if kept else None
        calls = calls_column(storable_calls(tool_calls))
        columns = storable(text), storable(reasoning), calls, finish, record, pieces_column(pieces)
        with self.transaction() as database:
            written = database.execute(
                "UPDATE message SET text = ?, reasoning = ?, tool_calls = ?, finish = ?,"
                " statistics = ?, pieces = ? WHERE id = ?",
                (*columns, message),
            )
            if not written.rowcount:
                raise AnswerGone("the answer is no longer in the history")
            if steps is not None or not finish:
                database.execute("DELETE FROM steps WHERE message = ?", (message,))
            if steps is not None and (data := steps_column(steps.steps)):
                row = storable(steps.target), data, message
                database.execute(ADD_STEPS, row)

    def steps(self, message: int) -> StoredSteps | None:
        """Return the steps of an answer; None if none are stored."""
        rows = self.rows("SELECT target, data FROM steps WHERE message = ?", (message,))
        for target, data in rows:
            if steps := steps_of(data):
                return StoredSteps(target, steps)
        return None

    def questions(self, limit: int) -> list[str]:
        """Return the latest questions of all conversations, oldest first, except very long ones."""
        rows = self.rows(
            "SELECT message.text FROM message"
            " JOIN conversation ON conversation.id = message.conversation"
            " WHERE role = 'user' AND message.deleted IS NULL AND conversation.deleted IS NULL"
            " AND mark <> 'summary' AND length(message.text) <= ? ORDER BY message.id DESC LIMIT ?",
            (MAX_RECALLED_LENGTH, limit),
        )
        return [text for (text,) in reversed(rows)]

    def statistics(self, limit: int) -> list[dict[str, Any]]:
        """Return the statistics of the latest answers of all conversations, the newest first."""
        rows = self.rows(
            "SELECT statistics FROM message WHERE role = 'assistant' AND json_valid(statistics)"
            " AND json_extract(statistics, '$.generated_tokens') > 0 ORDER BY id DESC LIMIT ?",
            (limit,),
        )
        return [json.loads(record) for (record,) in rows]

    def saved_seconds(self) -> tuple[float, float]:
        """Return the seconds that speculation saved in all answers, today and ever."""
        # a zone would keep its offset of now, which may be another one at midnight
        midnight = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)  # noqa: DTZ005
        ((today, ever),) = self.rows(
            "SELECT TOTAL(saved * (created >= ?)), TOTAL(saved) FROM ("
            " SELECT created, json_extract(statistics, '$.saved_s') AS saved FROM message"
            " WHERE role = 'assistant' AND json_valid(statistics))",
            (midnight.timestamp(),),
        )
        return float(today), float(ever)

    def delete_messages(self, messages: Sequence[int], *, undo: bool = False) -> None:
        """Delete messages; with `undo`, restore them, which is possible for a day."""
        rows = [(None if undo else time(), message) for message in messages]
        with self.transaction() as database:
            database.executemany("UPDATE message SET deleted = ? WHERE id = ?", rows)

    # --- presets

    def presets(self) -> list[Preset]:
        """Return all presets by name."""
        return [preset_of(row) for row in self.rows(PRESETS + " ORDER BY name", ())]

    def save_preset(self, preset: Preset) -> None:
        """Save a preset, replacing any with the same name."""
        texts = preset.name, preset.system_prompt, json.dumps(preset.sampling), preset.schema
        self.run(ADD_PRESET, [storable(text) for text in texts])

    def delete_preset(self, name: str) -> None:
        """Delete a preset."""
        self.run("DELETE FROM preset WHERE name = ?", (name,))
