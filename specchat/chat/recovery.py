"""Copies what can be read of a damaged history."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

from specchat.chat.tables import FROM_VERSION_1

MOST_TRIES = 100_000
"""Ranges of a damaged table that are divided: row numbers may be damaged and far apart, too."""
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""The exceptions that reading a damaged file raises."""
MOST_NUMBER = 1 << 62
"""Numbers of rows are smaller, unless they are damaged; those that follow it would be no integers.
"""
REMOVE_DAMAGED_NUMBERS = tuple(
    f"DELETE FROM {table} WHERE typeof({column}) <> 'integer' OR {column} >= {MOST_NUMBER}"  # noqa: S608 -- ours
    for table, column in (("conversation", "id"), ("message", "id"), ("message", "conversation"))
)
ADD_CONVERSATIONS = (
    "INSERT INTO conversation (id, title, created, changed, leaf)"
    " SELECT conversation, 'Recovered', min(created), max(created), max(id) FROM message"
    " WHERE conversation NOT IN (SELECT id FROM conversation) GROUP BY conversation"
)
"""Recreates lost conversations whose messages are still there."""
CLOSE_GAPS = (
    "UPDATE message SET parent = (SELECT max(before.id) FROM message AS before"
    " WHERE before.conversation = message.conversation AND before.id < message.id)"
    " WHERE parent >= id OR parent NOT IN (SELECT id FROM message)"
)
"""Attaches the messages below a lost one to the message before it."""
END_BRANCHES = (
    "UPDATE conversation SET leaf ="
    " (SELECT max(id) FROM message WHERE message.conversation = conversation.id)"
    " WHERE leaf NOT IN (SELECT id FROM message)"
)
"""Ends a branch whose last message is lost with the newest one of its conversation."""
LOST_NUMBERS = 1000
"""The numbers left out after damage: rows that cannot be read any more may have had them."""
ALL_NUMBERS = {
    "conversation": "SELECT conversation AS id FROM used UNION SELECT id FROM conversation",
    "message": "SELECT message AS id FROM used UNION SELECT id FROM message"
    " UNION SELECT leaf FROM conversation UNION SELECT message FROM steps"
    " UNION SELECT message FROM shown",
}
"""The numbers that rows have, or had before they were removed or lost."""
KEEP_ALL_NUMBERS = tuple(
    f"UPDATE used SET {table} = {LOST_NUMBERS} + (SELECT max(id) FROM ({numbers})"  # noqa: S608 -- ours
    f" WHERE typeof(id) = 'integer' AND id < {MOST_NUMBER})"
    for table, numbers in ALL_NUMBERS.items()
)
"""Leaves these out: other programs may still have a lost row open, and write to it."""
KEEP_ONE_ROW = "DELETE FROM used WHERE rowid > 1"

REMOVE_ORPHANS = (
    "DELETE FROM steps WHERE message NOT IN (SELECT id FROM message)",
    "DELETE FROM shown WHERE message NOT IN (SELECT id FROM message)",
    "DELETE FROM shown WHERE digest NOT IN (SELECT digest FROM image)",
)
"""Removes what belonged to lost messages, and the names of lost images."""


def address_of(path: Path, mode: str) -> str:
    """Return the URI that opens a file in a mode of SQLite's."""
    # all of it quoted, as SQLite takes a UNC path's server for an authority
    return f"file:{quote(str(path.resolve()), safe='')}?mode={mode}"


def recover(damaged: Path, fresh: Path) -> tuple[int, int]:
    """Copy all readable rows into an empty store; return how many conversations and messages.

    Raises sqlite3.Error if the new file cannot be written.
    """
    reading = sqlite3.connect(address_of(damaged, "ro"), uri=True)
    reading.text_factory = partial(str, encoding="utf-8", errors="replace")
    with closing(reading) as source, closing(sqlite3.connect(fresh)) as target, target:
        for table in ("conversation", "message", "steps", "image", "shown", "used", "preset"):
            _copy(table, source, target)
        for statement in (
            *REMOVE_DAMAGED_NUMBERS,
            ADD_CONVERSATIONS,
            CLOSE_GAPS,
            *KEEP_ALL_NUMBERS,
            KEEP_ONE_ROW,
            END_BRANCHES,
            *REMOVE_ORPHANS,
            FROM_VERSION_1,
        ):
            target.execute(statement)
        counts = [
            target.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
            for table in ("conversation", "message")
        ]
    return counts[0], counts[1]


def _copy(table: str, source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    wanted, found = (_columns(table, each) for each in (target, source))
    columns = ", ".join(wanted & found)
    reading = "SELECT {} FROM {} WHERE rowid BETWEEN ? AND ?"
    ranges, tries = [(1, _last_row(source, table))], iter(range(MOST_TRIES))
    if table == "image":  # they are large: one at a time is in memory
        numbers = _readable(source, reading.format("rowid", table), *ranges[0], tries)
        ranges = [(number, number) for (number,) in numbers]
    reading = reading.format(columns, table)
    for row in chain.from_iterable(_readable(source, reading, *each, tries) for each in ranges):
        marks = ", ".join("?" * len(row))
        with suppress(sqlite3.IntegrityError):  # parts of the row are lost
            target.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", row)  # noqa: S608


def _columns(table: str, database: sqlite3.Connection) -> set[str]:
    """Return the names of a table's columns; none if the schema is lost."""
    with suppress(*UNREADABLE):
        return {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
    return set()


def _last_row(source: sqlite3.Connection, table: str) -> int:
    """Return the largest row number that can be read, starting from either end of a table."""
    last = 0
    for order in ("DESC LIMIT 1", "ASC"):
        with suppress(*UNREADABLE):
            for (row,) in source.execute(f"SELECT rowid FROM {table} ORDER BY rowid {order}"):  # noqa: S608
                last = max(last, row)
    return last


def _readable(
    source: sqlite3.Connection, reading: str, first: int, last: int, tries: Iterator[int]
) -> Iterator[tuple[Any, ...]]:
    """Yield the readable rows of a range, bisecting it to skip unreadable rows, in some tries."""
    try:
        yield from source.execute(reading, (first, last)).fetchall()
    except UNREADABLE:
        if first < last and next(tries, None) is not None:
            middle = (first + last) // 2
            yield from _readable(source, reading, first, middle, tries)
            yield from _readable(source, reading, middle + 1, last, tries)
