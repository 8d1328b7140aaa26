"""Files that go with a question, kept apart from its words, and how a model is told of both."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Attachment", "with_attachments"]


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text file as it was when the question was asked, by the name it was given there."""

    name: str
    content: str


def with_attachments(text: str, attachments: Iterable[Attachment]) -> str:
    """Return a question with the contents of its files below it, each in a fence."""
    return "\n\n".join([text, *(f"{each.name}:\n{_fenced(each.content)}" for each in attachments)])


def _fenced(content: str) -> str:
    """Put a text into a fence that nothing in it can end."""
    longest = max((len(run) for run in re.findall(r"`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{content.rstrip()}\n{fence}"
