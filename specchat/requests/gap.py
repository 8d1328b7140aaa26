"""Requests to fill in the middle of a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class ContextFile(NamedTuple):
    """Another text that says something about the gap."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Gap:
    """A text with a gap, for an answer of `max_tokens`.

    `files` are the context, the most relevant last. With `makes_room` only what is near the gap is
    read, and as many of the files as fit.
    """

    before: str
    after: str
    files: Sequence[ContextFile] = ()
    max_tokens: int | None = None
    makes_room: bool = False
