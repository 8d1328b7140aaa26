"""One message of a conversation, as chat templates take it."""

from __future__ import annotations

from typing import Literal, TypedDict

__all__ = ["ChatMessage"]


class ChatMessage(TypedDict):
    """The role and text of a message."""

    role: Literal["system", "user", "assistant"]
    content: str
