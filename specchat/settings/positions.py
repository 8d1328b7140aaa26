"""The lines of a TOML file's values, which tomllib does not report.

A TOML file is a sequence of statements: the header of a table, a key with its value, a comment.
Each is a TOML file of its own, and no beginning of one is: so tomllib can find where it ends.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

Place: TypeAlias = tuple[str, ...]
"""The path of a value: the names of its tables, then its own."""

CLOSING = ('"""', "'''", "]", "}")
"""A value of several lines ends on a line with one of these."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, the line it begins on, its table, and the values it sets.

    `content` is None for text that is not TOML, which reaches to the end of the file.
    """

    line: int
    text: str
    table: Place
    content: dict[str, Any] | None
    is_header: bool


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a file, including comments and empty lines."""
    table: Place = ()
    pending, first = "", 1
    for number, line in enumerate(text.split("\n"), 1):
        first = first if pending else number
        may_end = not pending or any(mark in line for mark in CLOSING)
        pending += f"{line}\n"
        content = _parsed(pending) if may_end else None
        if content is None:
            continue
        is_header = pending.lstrip(" \t").startswith("[")
        table = _header(content) if is_header else table
        yield Statement(first, pending, table, content, is_header)
        pending = ""
    if pending:
        yield Statement(first, pending, table, None, is_header=False)


def find_lines(text: str) -> dict[Place, int]:
    """Return the line on which each value and each table first appears."""
    found: dict[Place, int] = {}
    for statement in statements(text):
        if statement.is_header:
            places = [statement.table[: end + 1] for end in range(len(statement.table))]
        else:
            places = list(_places(statement.table, statement.content or {}))
        for place in places:
            found.setdefault(place, statement.line)
    return found


def unfinished_line(text: str) -> int:
    """Return the line of the first statement that is not TOML: where an open value begins."""
    for statement in statements(text):
        if statement.content is None:
            return statement.line
    return text.count("\n") + 1


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return None


def _header(content: dict[str, Any]) -> Place:
    """Return the names in a table's header."""
    place: Place = ()
    while content:
        name, inner = next(iter(content.items()))
        place = (*place, name)
        content = inner if isinstance(inner, dict) else {}
    return place


def _places(table: Place, content: dict[str, Any]) -> Iterator[Place]:
    """Yield the place of each value that a statement sets."""
    for name, value in content.items():
        yield (*table, name)
        if isinstance(value, dict):
            yield from _places((*table, name), value)
