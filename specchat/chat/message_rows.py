"""Messages as rows of the store: text that SQLite can hold, and JSON columns."""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from itertools import starmap
from typing import Any

from specchat import drafter_registry
from specchat.chat.conversation import MARKS, Attachment, Message
from specchat.decoding.chunk import Kind, Piece, ToolCall
from specchat.images.image import Image
from specchat.safe_text import harmless

COLUMNS = [field.name for field in fields(Message) if field.name != "images"]
MESSAGES = f"SELECT {', '.join(COLUMNS)} FROM message"  # noqa: S608 -- ours
LETTERS: dict[Kind, str] = {"reasoning": "r", "call": "c"}
"""The letters for kinds of stored pieces; answer text has none."""
KINDS = {letter: kind for kind, letter in LETTERS.items()}
MAX_TITLE_LENGTH = 60
TITLE_SOURCE_LENGTH = 5000
"""How many characters of a question are considered for the title."""


def message_of(row: tuple[Any, ...], images: Iterable[Image] = ()) -> Message:
    """Return the message in a row of the query `MESSAGES`, with its images."""
    found = dict(zip(COLUMNS, row, strict=True))
    found["statistics"] = parsed_column(found["statistics"], {})
    found["pieces"] = tuple(_piece(*each) for each in parsed_column(found["pieces"], []))
    calls = parsed_column(found["tool_calls"], [])
    found["tool_calls"] = tuple(ToolCall(**call) for call in calls)
    attachments = parsed_column(found["attachments"], [])
    found["attachments"] = tuple(Attachment(**attachment) for attachment in attachments)
    found["mark"] = found["mark"] if found["mark"] in MARKS else ""
    return Message(**found, images=tuple(images))


def _piece(text: str, letter: str, kind: str = "") -> Piece:
    origin = drafter_registry.origin_of_letter(letter).name
    return Piece(text, origin, KINDS.get(kind, "answer"))


def parsed_column(column: str | None, default: Any) -> Any:
    """Return the value of a JSON column; the default if it is empty or damaged."""
    with suppress(ValueError, RecursionError):
        return json.loads(column) if column else default
    return default


def pieces_column(pieces: Iterable[Piece]) -> str | None:
    """Return an answer's tokens as JSON; None if there are none.

    Each has the letter of its origin and, unless it is answer text, the letter of its kind.
    """
    rows = [
        [
            storable(each.text),
            drafter_registry.origin(each.origin).letter,
            *LETTERS.get(each.kind, ""),
        ]
        for each in starmap(Piece, pieces)
    ]
    return json.dumps(rows, separators=(",", ":")) if rows else None


def calls_column(calls: Iterable[ToolCall]) -> str | None:
    """Return an answer's tool calls as JSON; None if there are none."""
    rows = [call._asdict() for call in calls]
    return json.dumps(rows) if rows else None


def storable_calls(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    """Return tool calls with text that SQLite can store."""
    return tuple(ToolCall(*map(storable, call)) for call in calls)


def storable(text: str) -> str:
    """Return a text that SQLite can store, without lone surrogates and null characters."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


def title_of(text: str) -> str:
    """Return the beginning of a text on one line, without control characters."""
    line = re.sub(r"\s+", " ", harmless(text[:TITLE_SOURCE_LENGTH])).strip()
    is_short = len(line) <= MAX_TITLE_LENGTH
    return line if is_short else line[: MAX_TITLE_LENGTH - 1].rstrip() + "…"
