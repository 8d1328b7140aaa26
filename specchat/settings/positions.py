"""The lines of a TOML file's values, which tomllib does not report.

A TOML file is a sequence of statements: a table header, a key with its value, a comment. Each
statement is valid TOML by itself and no prefix of it is, so tomllib can find where it ends.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

KeyPath: TypeAlias = tuple[str, ...]
"""The path of a value: the names of its tables, then its key."""

CLOSING = ('"""', "'''", "]", "}")
"""A value of several lines ends on a line with one of these."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, the line it begins on, its table, and the values it sets.

    `content` is None for text that is not TOML; such text extends to the end of the file.
    """

    line: int
    text: str
    table: KeyPath
    content: dict[str, Any] | None
    is_header: bool


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a file, including comments and empty lines."""
    table: KeyPath = ()
    pending, first = "", 1
    for number, line in enumerate(text.split("\n"), 1):
        first = first if pending else number
        may_end = not pending or any(mark in line for mark in CLOSING)
        pending += f"{line}\n"
        content = parsed(pending) if may_end else None
        if content is None:
            continue
        is_header = pending.lstrip(" \t").startswith("[")
        if is_header:
            *_, table = _key_paths((), content)
        yield Statement(first, pending, table, content, is_header)
        pending = ""
    if pending:
        yield Statement(first, pending, table, None, is_header=False)


def find_lines(text: str) -> dict[KeyPath, int]:
    """Return the line on which each value and each table first appears."""
    lines: dict[KeyPath, int] = {}
    for statement in statements(text):
        above = () if statement.is_header else statement.table
        for key_path in _key_paths(above, statement.content or {}):
            lines.setdefault(key_path, statement.line)
    return lines


def unfinished_line(text: str) -> int:
    """Return the line of the first statement that is not TOML, such as a value left open."""
    open_lines = (statement.line for statement in statements(text) if statement.content is None)
    return next(open_lines, text.count("\n") + 1)


def parsed(text: str) -> dict[str, Any] | None:
    """Return the content of a TOML text, None if it is not valid."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return None


def _key_paths(table: KeyPath, content: dict[str, Any]) -> Iterator[KeyPath]:
    """Yield the path of each table and value that a statement sets, outer ones first."""
    entries = [((*table, name), value) for name, value in content.items()]
    for key_path, value in entries:  # grows meanwhile
        yield key_path
        if isinstance(value, dict):
            entries += [((*key_path, name), inner) for name, inner in value.items()]
