"""Messages as rows of the store: text that can be stored, and the columns that hold JSON."""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from typing import Any

from specchat import drafter_registry
from specchat.chat.conversation import Attachment, Message, Piece
from specchat.chat.safe_text import harmless

COLUMNS = [each.name for each in fields(Message)]
MESSAGES = f"SELECT {', '.join(COLUMNS)} FROM message"  # noqa: S608 -- ours
MAX_TITLE_LENGTH = 60
TITLE_SOURCE_LENGTH = 5000
"""Characters of a question that its title is taken from."""


def message_of(row: tuple[Any, ...]) -> Message:
    """Return the message in a row of the query `MESSAGES`."""
    found = dict(zip(COLUMNS, row, strict=True))
    found["statistics"] = _parsed(found["statistics"], {})
    found["pieces"] = tuple(
        (text, drafter_registry.origin_of_letter(letter).name)
        for text, letter in _parsed(found["pieces"], [])
    )
    attachments = _parsed(found["attachments"], [])
    found["attachments"] = tuple(Attachment(**each) for each in attachments)
    return Message(**found)


def _parsed(column: str | None, default: Any) -> Any:
    """Return the value of a JSON column; the default if it is empty or damaged."""
    with suppress(ValueError):
        return json.loads(column) if column else default
    return default


def pieces_column(pieces: Iterable[Piece]) -> str | None:
    """Return an answer's tokens as JSON, each with the letter of its origin; None without any."""
    rows = [[storable(text), drafter_registry.origin(origin).letter] for text, origin in pieces]
    return json.dumps(rows, separators=(",", ":")) if rows else None


def storable(text: str) -> str:
    """Return a text that SQLite can store: without lone surrogates and zero bytes."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


def title_of(text: str) -> str:
    """Return the beginning of a text on one line, without control characters."""
    line = re.sub(r"\s+", " ", harmless(text[:TITLE_SOURCE_LENGTH])).strip()
    is_short = len(line) <= MAX_TITLE_LENGTH
    return line if is_short else line[: MAX_TITLE_LENGTH - 1].rstrip() + "…"
