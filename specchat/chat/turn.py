"""One turn of a conversation, as a model is told it."""

from __future__ import annotations

from typing import Literal, TypedDict

__all__ = ["Turn"]


class Turn(TypedDict):
    """Who says what."""

    role: Literal["system", "user", "assistant"]
    content: str
