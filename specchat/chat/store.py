"""The store: conversations, their messages and presets in one SQLite file, private to the user."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
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
from specchat.chat.stored_images import ADD_IMAGE, HAS_IMAGE, IMAGES, READ_IMAGE, ImageFiles
from specchat.chat.stored_steps import MAX_TOTAL_BYTES, StoredSteps, steps_column, steps_of
from specchat.decoding.chunk import Piece, ToolCall
from specchat.errors import ConversationNotFound, StoreBusy
from specchat.images.image import DistantImage, Image
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

REMOVE_IMAGES = "DELETE FROM image WHERE digest NOT IN (SELECT digest FROM shown)"
"""Removes the images that no message shows any more."""

LAST_NUMBERS = (
    "SELECT coalesce((SELECT max(id) FROM conversation), 0),"
    " coalesce((SELECT max(id) FROM message), 0)"
)
KEEP_NUMBERS = "UPDATE used SET conversation = max(conversation, ?), message = max(message, ?)"
NEXT_NUMBER = "(SELECT 1 + max(used.{0}, coalesce((SELECT max(id) FROM {0}), 0)) FROM used)"
"""The number of a new row, which none had before: other programs may still have that one open."""
ADD_CONVERSATION = (
    "INSERT INTO conversation"  # noqa: S608 -- ours
    " (id, title, created, changed, system_prompt, pair, preset, schema)"
    f" VALUES ({NEXT_NUMBER.format('conversation')}, '', ?, ?, ?, ?, ?, ?)"
)
ADD_MESSAGE = (
    "INSERT INTO message"  # noqa: S608 -- ours
    " (id, conversation, parent, role, text, created, attachments, reasoning, tool_calls, mark,"
    f" schema) VALUES ({NEXT_NUMBER.format('message')}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

ADD_STEPS = "INSERT INTO steps (message, target, data) SELECT id, ?, ? FROM message WHERE id = ?"


def default_path() -> Path:
    """Return the path of the user's store."""
    return FOLDERS.user_data_path / "history.db"


UNSPACED = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Characters of scripts that write words without spaces, or with endings attached; compiled only
for a search, as that takes 4 ms."""
AROUND = 30
"""Characters shown on each side of what was found."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A message that matches a search, with an excerpt around the match on one line.

    `in_reasoning` is true if the match is in the reasoning of an answer, not in the answer.
    """

    conversation: int
    message: int
    title: str
    snippet: str
    role: Role
    created: float
    in_reasoning: bool = False


class Store(Database, AbstractContextManager["Store"]):
    """Conversations on disk, or only in memory if `path` is None. For use in one thread.

    Several programs may share a file. Every method raises StoreBusy if another program has been
    writing for longer than `busy_timeout` seconds, and StoreFailed if the disk is full or the file
    cannot be used.
    """

    def __init__(self, path: Path | None, busy_timeout: float = BUSY_TIMEOUT) -> None:
        """Open or create the file; a damaged one is set aside and `notice` reports it."""
        super().__init__(path, busy_timeout)
        self._image_files = ImageFiles(path, self.note_damage) if path else None
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
        """Change the `system_prompt`, `preset` or `leaf` of a conversation.

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
            last = database.execute(LAST_NUMBERS).fetchone()
            removed = [
                database.execute("DELETE FROM message WHERE deleted <= ?", (before,)).rowcount,
                database.execute("DELETE FROM conversation WHERE deleted <= ?", (before,)).rowcount,
            ]
            if any(removed):
                database.execute(KEEP_NUMBERS, last)
            database.execute(REMOVE_OLD_STEPS, (MAX_TOTAL_BYTES,))
            database.execute(REMOVE_IMAGES)
        if any(removed):
            delete_memories()  # they hold what models read of these messages

    # --- messages

    def tree(self, conversation: int) -> Tree:
        """Return all messages of a conversation; the bytes of their images are read when wanted."""
        of_conversation = " WHERE conversation = ? AND deleted IS NULL"
        images = dict[int, list[Image]]()
        query = f"{IMAGES}{of_conversation} ORDER BY message, place"
        for message, *image in self.rows(query, (conversation,)):
            images.setdefault(message, []).append(self._image(*image))
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
            row = database.execute(ADD_MESSAGE, (*values, mark, schema)).lastrowid
            for place, image in enumerate(images):
                digest, name = image.digest.hex(), storable(image.name)
                if not database.execute(HAS_IMAGE, (digest,)).fetchone():
                    database.execute(ADD_IMAGE, (digest, image.data))
                database.execute(
                    "INSERT INTO shown VALUES (?, ?, ?, ?)", (row, place, name, digest)
                )
            database.execute(
                "UPDATE conversation SET leaf = ?, changed = ?, deleted = NULL,"
                " title = CASE title WHEN '' THEN ? ELSE title END WHERE id = ?",
                (row, now, title_of(text), conversation),
            )
        return Message(
            int(row or 0),
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

    def keep_image(self, image: Image) -> None:
        """Write an image's bytes ahead of the message that shows it; in any thread.

        This takes 0.4 s for 20 MiB, which adding the message then does not. What no message shows
        is removed the next time that a program opens the file.
        """
        if self._image_files:
            self._image_files.write(image)

    def _waits_for_thread(self) -> bool:
        return self._image_files is not None and self._image_files.wait()

    def _image(self, name: str, digest: str, num_bytes: int) -> Image:
        if self._image_files:
            read = partial(self._image_files.read, name)
            return DistantImage(read, name, bytes.fromhex(digest), num_bytes)
        ((data,),) = self.rows(READ_IMAGE, (digest,))
        return Image(data, name)

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
        steps are stored. With `steps` None, those stored before stay.
        """
        kept = statistics if finish else {"written": time()}
        record = json.dumps(kept) if kept else None
        calls = calls_column(storable_calls(tool_calls))
        columns = storable(text), storable(reasoning), calls, finish, record, pieces_column(pieces)
        with self.transaction() as database:
            database.execute(
                "UPDATE message SET text = ?, reasoning = ?, tool_calls = ?, finish = ?,"
                " statistics = ?, pieces = ? WHERE id = ?",
                (*columns, message),
            )
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

    def search(
        self, words: str, limit: int = 50, conversation: int | None = None
    ) -> list[SearchResult]:
        """Return the messages that contain all words; the last word may be a prefix.

        The reasoning of an answer is searched too. In scripts without spaces between words, a word
        may be any part of the text.
        """
        wanted = storable(words).split()
        if any(re.search(UNSPACED, word) for word in wanted):
            return self._search_parts(wanted, limit, conversation)
        quoted = ['"' + word.replace('"', '""') + '"' for word in wanted]
        if not quoted:
            return []
        rows = self.rows(
            "SELECT message.conversation, message.id, conversation.title,"
            " snippet(found, -1, '', '', '…', 16), message.role, message.created,"
            " instr(highlight(found, 0, char(1), ''), char(1)) = 0 FROM found"
            " JOIN message ON message.id = found.rowid"
            " JOIN conversation ON conversation.id = message.conversation"
            " WHERE found MATCH ? AND message.deleted IS NULL AND conversation.deleted IS NULL"
            " AND (? IS NULL OR message.conversation = ?) ORDER BY message.id DESC LIMIT ?",
            (" ".join(quoted) + "*", conversation, conversation, limit),
        )
        return [
            SearchResult(number, message, title, " ".join(text.split()), role, created, bool(apart))
            for number, message, title, text, role, created, apart in rows
        ]

    def _search_parts(
        self, words: Sequence[str], limit: int, conversation: int | None
    ) -> list[SearchResult]:
        """Return the messages that contain all these texts, in capital or small letters.

        Reads all messages: the index knows words only as spaces separate them.
        """
        rows = self.rows(
            "SELECT message.conversation, message.id, conversation.title, message.text,"
            " message.reasoning, message.role, message.created FROM message"
            " JOIN conversation ON conversation.id = message.conversation"
            " WHERE message.deleted IS NULL AND conversation.deleted IS NULL"
            " AND (? IS NULL OR message.conversation = ?)"
            " AND NOT EXISTS (SELECT 1 FROM json_each(?) WHERE"
            " instr(lower(message.text || ' ' || message.reasoning), lower(json_each.value)) = 0)"
            " ORDER BY message.id DESC LIMIT ?",
            (conversation, conversation, json.dumps(words), limit),
        )
        results = []
        for number, message, title, text, reasoning, role, created in rows:
            apart = words[0].lower() not in text.lower()
            snippet = _around(reasoning if apart else text, words[0])
            results.append(SearchResult(number, message, title, snippet, role, created, apart))
        return results

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


def _around(text: str, word: str) -> str:
    """Return the part of a text around a word, on one line."""
    place = max(0, text.lower().find(word.lower()))
    start, end = max(0, place - AROUND), place + len(word) + AROUND
    ends = "…" * (start > 0), "…" * (end < len(text))
    return ends[0] + " ".join(text[start:end].split()) + ends[1]
