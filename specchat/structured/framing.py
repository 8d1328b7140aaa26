"""Structures between fixed texts, as calls of tools are written."""

from dataclasses import dataclass

from specchat.structured.structure import Structure


@dataclass(frozen=True, slots=True)
class Framed:
    """A structure between two fixed texts, which may name special tokens: `<tool_call>`."""

    structure: Structure
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class Framing:
    """One of several framed structures, or several in a row, between two fixed texts.

    `most` is how many may follow each other, None for any number; between two of them is the
    separator.
    """

    options: tuple[Framed, ...]
    before: str = ""
    after: str = ""
    separator: str = ""
    most: int | None = 1
