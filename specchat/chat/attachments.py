"""Files attached to a question, and the text that a model gets for both."""

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text file with the name it was attached by, as it was when the question was asked."""

    name: str
    content: str


def with_attachments(text: str, attachments: Iterable[Attachment]) -> str:
    """Return a question followed by the contents of its files, each in a code fence."""
    return "\n\n".join([text, *(f"{each.name}:\n{_fenced(each.content)}" for each in attachments)])


def _fenced(content: str) -> str:
    """Return a text in a code fence longer than any fence inside it."""
    longest = max((len(run) for run in re.findall(r"`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{content.rstrip()}\n{fence}"
