"""Recovery of a damaged store: what can still be read of it is copied into a new file."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged file raises."""
ADD_CONVERSATIONS = (
    "INSERT INTO conversation (id, title, created, changed, leaf)"
    " SELECT conversation, 'Recovered', min(created), max(created), max(id) FROM message"
    " WHERE conversation NOT IN (SELECT id FROM conversation) GROUP BY conversation"
)
"""Conversations of which only messages are left."""
CLOSE_GAPS = (
    "UPDATE message SET parent = (SELECT max(before.id) FROM message AS before"
    " WHERE before.conversation = message.conversation AND before.id < message.id)"
    " WHERE parent >= id OR parent NOT IN (SELECT id FROM message)"
)
"""What followed a lost message continues the one before it."""


def recover(damaged: Path, fresh: Path) -> tuple[int, int]:
    """Copy all readable rows into an empty store; return how many conversations and messages.

    Raises sqlite3.Error if the new file cannot be written.
    """
    reading = sqlite3.connect(f"{damaged.resolve().as_uri()}?mode=ro", uri=True)
    reading.text_factory = partial(str, encoding="utf-8", errors="replace")
    with closing(reading) as source, closing(sqlite3.connect(fresh)) as target, target:
        for table in ("conversation", "message", "preset"):
            _copy(table, source, target)
        target.execute(ADD_CONVERSATIONS)
        target.execute(CLOSE_GAPS)
        counts = [
            target.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
            for table in ("conversation", "message")
        ]
    return counts[0], counts[1]


def _copy(table: str, source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    wanted, found = (_columns(table, each) for each in (target, source))
    columns = ", ".join(wanted & found)
    reading = f"SELECT {columns} FROM {table} WHERE rowid BETWEEN ? AND ?"  # noqa: S608 -- ours
    for row in _readable(source, reading, 1, _last_row(source, table)):
        marks = ", ".join("?" * len(row))
        with suppress(sqlite3.IntegrityError):  # parts of the row are lost
            target.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", row)  # noqa: S608


def _columns(table: str, database: sqlite3.Connection) -> set[str]:
    """Return the names of a table's columns, none if the schema is lost."""
    with suppress(*UNREADABLE):
        return {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
    return set()


def _last_row(source: sqlite3.Connection, table: str) -> int:
    """Return the largest number of a row that is found from either end of a table."""
    last = 0
    for order in ("DESC LIMIT 1", "ASC"):
        with suppress(*UNREADABLE):
            for (row,) in source.execute(f"SELECT rowid FROM {table} ORDER BY rowid {order}"):  # noqa: S608
                last = max(last, row)
    return last


def _readable(
    source: sqlite3.Connection, reading: str, first: int, last: int
) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a range, halving it around what cannot be read."""
    try:
        yield from source.execute(reading, (first, last)).fetchall()
    except UNREADABLE:
        if first < last:
            middle = (first + last) // 2
            yield from _readable(source, reading, first, middle)
            yield from _readable(source, reading, middle + 1, last)
