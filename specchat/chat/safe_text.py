"""Text that others wrote, made harmless for a terminal."""

from __future__ import annotations

import re

__all__ = ["harmless", "in_one_line"]

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and newline, those that reorder what is on the line, and halves of
characters, which no terminal can be sent."""


def harmless(text: str) -> str:
    """Replace control characters, which could command the terminal, by U+FFFD."""
    return CONTROL.sub("\ufffd", text)


def in_one_line(text: str) -> str:
    """Make a text harmless whose place is within one line of others."""
    return harmless(text.replace("\n", " ").replace("\t", " "))
