"""One message of a conversation, as chat templates take it."""

from typing import Literal, TypedDict


class ChatMessage(TypedDict):
    """The role and text of a message."""

    role: Literal["system", "user", "assistant"]
    content: str
