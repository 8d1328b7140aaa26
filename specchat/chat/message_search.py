"""Searching the messages of the store."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from specchat.chat.conversation import Role
from specchat.chat.database import Database
from specchat.chat.message_rows import storable

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


def search_messages(
    store: Database, words: str, limit: int = 50, conversation: int | None = None
) -> list[SearchResult]:
    """Return the messages that contain all words, newest first; the last word may be a prefix.

    The reasoning of an answer is searched too. In scripts without spaces between words, a word may
    be any part of the text. Raises as `Database` does.
    """
    wanted = storable(words).split()
    if any(re.search(UNSPACED, word) for word in wanted):
        return _search_parts(store, wanted, limit, conversation)
    quoted = ['"' + word.replace('"', '""') + '"' for word in wanted]
    if not quoted:
        return []
    rows = store.rows(
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
    store: Database, words: Sequence[str], limit: int, conversation: int | None
) -> list[SearchResult]:
    """Return the messages that contain all these texts, in capital or small letters.

    Reads all messages: the index knows words only as spaces separate them.
    """
    rows = store.rows(
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


def _around(text: str, word: str) -> str:
    """Return the part of a text around a word, on one line."""
    place = max(0, text.lower().find(word.lower()))
    start, end = max(0, place - AROUND), place + len(word) + AROUND
    ends = "…" * (start > 0), "…" * (end < len(text))
    return ends[0] + " ".join(text[start:end].split()) + ends[1]
