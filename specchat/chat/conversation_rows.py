"""Conversations as rows of the store."""

import json
from dataclasses import asdict, fields
from typing import Any

from specchat.chat.conversation import ChatSchema, Conversation
from specchat.chat.message_rows import parsed_column, storable

COLUMNS = [field.name for field in fields(Conversation)]
CONVERSATIONS = f"SELECT {', '.join(COLUMNS)} FROM conversation"  # noqa: S608 -- ours


def conversation_of(row: tuple[Any, ...]) -> Conversation:
    """Return the conversation in a row of the query `CONVERSATIONS`."""
    found = dict(zip(COLUMNS, row, strict=True))
    return Conversation(**{**found, "schema": _schema_of(found["schema"])})


def schema_column(schema: ChatSchema | None) -> str | None:
    """Return a schema as JSON; None for none."""
    return storable(json.dumps(asdict(schema))) if schema else None


def _schema_of(column: str | None) -> ChatSchema | None:
    """Return the schema in a column; None if it is empty or damaged."""
    match parsed_column(column, None):
        case {"typed": str(typed), "source": str(source)}:
            return ChatSchema(typed, source)
    return None
