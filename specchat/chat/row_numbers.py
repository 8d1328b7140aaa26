"""The numbers of conversations and messages: none is given twice, even after its row was removed.

Other programs may still have that conversation open.
"""

import sqlite3

NEXT = "(SELECT 1 + max(used.{0}, coalesce((SELECT max(id) FROM {0}), 0)) FROM used)"
LAST = (
    "SELECT coalesce((SELECT max(id) FROM conversation), 0),"
    " coalesce((SELECT max(id) FROM message), 0)"
)
KEEP = "UPDATE used SET conversation = max(conversation, ?), message = max(message, ?)"


def next_number(table: str) -> str:
    """Return the SQL for the number of a new row, which none in the table had before."""
    return NEXT.format(table)


def last_numbers(database: sqlite3.Connection) -> tuple[int, int]:
    """Return the largest numbers of a conversation and of a message, before rows are removed."""
    conversation, message = database.execute(LAST).fetchone()
    return conversation, message


def keep_numbers(database: sqlite3.Connection, last: tuple[int, int]) -> None:
    """Give no number again up to these."""
    database.execute(KEEP, last)
