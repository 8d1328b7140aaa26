"""The store's SQLite file: opened, migrated, set aside if damaged, with one writer at a time."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep, strftime
from typing import Any

from specchat.errors import StoreBusy, StoreFailed
from specchat.private_files import make_private

MIGRATIONS = Path(__file__).with_name("schema.sql").read_text("utf-8").split("-- next version\n")
"""The scripts that bring the file from each version to the next."""

BUSY_TIMEOUT = 10.0
"""How long to wait, by default, while another program writes."""
RETRY_SECONDS = 0.02
"""How long to wait before opening the file again while other programs open it."""

BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class Database:
    """A private SQLite file, or a database in memory if `path` is None. For use in one thread.

    Raises StoreFailed if the disk is full or the file cannot be used, and StoreBusy while another
    program is writing.
    """

    def __init__(self, path: Path | None) -> None:
        """Open or create the file; a damaged one is set aside and `notice` reports it."""
        self.notice = ""
        self._path = path
        try:
            self._open()
        except OSError as error:
            raise self._failed(error) from None
        except sqlite3.DatabaseError as error:
            if path is None or not _is_damage(error):
                raise self._failed(error) from None
            self.notice = _set_aside(path)
            self._open()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def set_busy_timeout(self, seconds: float = BUSY_TIMEOUT) -> None:
        """Set how long to wait, from now on, while another program writes."""
        self._connection.execute(f"PRAGMA busy_timeout = {round(1000 * seconds)}")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run several statements, all of them or none."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def run(self, statement: str, values: Sequence[object]) -> int:
        """Run one statement; return the id of the row it added."""
        with self.transaction() as database:
            return int(database.execute(statement, values).lastrowid or 0)

    def rows(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def _open(self) -> None:
        """Open the file, retrying: SQLite does not wait while others create the same file.

        It is created readable by the user alone, before anything is written to it.
        """
        if self._path is not None:
            make_private(self._path.parent)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        deadline = monotonic() + BUSY_TIMEOUT
        while True:
            try:
                self._connect()
                break
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or monotonic() > deadline:
                    raise
            sleep(RETRY_SECONDS)
        self.set_busy_timeout(BUSY_TIMEOUT)

    def _connect(self) -> None:
        where = str(self._path) if self._path else ":memory:"
        self._connection = sqlite3.connect(where, timeout=0, isolation_level=None)
        try:
            for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
                self._connection.execute(f"PRAGMA {pragma}")
            self._migrate()
            self._connection.execute("SELECT count(*) FROM conversation").fetchone()
        except BaseException:
            self._connection.close()
            raise

    def _migrate(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise StoreFailed(
                f"{self._path} was written by a newer specchat: update specchat, or use"
                " --no-history"
            )
        for number in range(version, len(MIGRATIONS)):
            script = f"BEGIN IMMEDIATE; {MIGRATIONS[number]} PRAGMA user_version = {number + 1};"
            try:
                self._connection.executescript(f"{script} COMMIT;")
            except sqlite3.OperationalError:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                (now,) = self._connection.execute("PRAGMA user_version").fetchone()
                if now <= number:  # no other program has migrated it meanwhile
                    raise

    def _failed(self, error: sqlite3.Error | OSError) -> StoreFailed:
        if _is_busy(error):
            return StoreBusy("another program is writing to the history: try again")
        reason = error.strerror if isinstance(error, OSError) else error
        return StoreFailed(
            f"cannot store conversations in {self._path} ({reason}): check the disk and the file's"
            " permissions, or use --no-history"
        )


def _is_busy(error: Exception) -> bool:
    """Return True if another program holds the file."""
    # the lower byte is the kind of error; errors raised by Python itself have no code
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in BUSY


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Return True if the file itself is damaged, rather than the disk full or the file busy."""
    message = str(error)
    return any(sign in message for sign in ("not a database", "malformed", "no such table"))


def _set_aside(path: Path) -> str:
    """Rename a damaged file and return a notice about it."""
    aside = path.with_name(f"{path.stem}.damaged-{strftime('%Y%m%d-%H%M%S')}{path.suffix}")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.replace(aside.with_name(aside.name + suffix))
    return f"the history was damaged: it was renamed to {aside}, and a new one was created"
