"""The file of the store: opened, migrated, set aside where it is damaged; one writer at a time."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep, strftime
from typing import Any

from specchat.chat.migrations import MIGRATIONS
from specchat.errors import StoreBusy, StoreFailed
from specchat.private_files import make_private

__all__ = ["BUSY_SECONDS", "Database"]

IN_MEMORY = ":memory:"
BUSY_SECONDS = 10.0
"""For how long another program's writing is waited for, unless somebody is less patient."""
BUSY_PAUSE = 0.02
"""Seconds between two attempts to open a file that others are opening."""

BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class Database:
    """An SQLite file of the user's alone, or one in memory where `path` is None. For one thread.

    Raises StoreFailed, with what to do, where the disk is full or the file cannot be used, and
    StoreBusy where another program is writing.
    """

    def __init__(self, path: Path | None) -> None:
        """Open the file, or begin one; a damaged one is set aside, as `notice` then says."""
        self.notice = ""
        self._path = path
        if path is not None:
            _make_private(path)
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            if path is None or not _is_damage(error):
                raise self._failed(error) from None
            self.notice = _set_aside(path)
            _make_private(path)
            self._open()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def wait_at_most(self, seconds: float) -> None:
        """Choose for how long another program's writing is waited for."""
        self._database.execute(f"PRAGMA busy_timeout = {round(1000 * seconds)}")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write several things, all of them or none."""
        try:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def write(self, statement: str, values: Sequence[object]) -> int:
        """Run one statement; return the number of the row it added."""
        with self.transaction() as database:
            return int(database.execute(statement, values).lastrowid or 0)

    def read(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Return what a question finds."""
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def _open(self) -> None:
        """Open the file, again and again: SQLite does not wait while others begin the same one."""
        deadline = monotonic() + BUSY_SECONDS
        while True:
            try:
                self._try_to_open()
                break
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or monotonic() > deadline:
                    raise
            sleep(BUSY_PAUSE)
        self.wait_at_most(BUSY_SECONDS)

    def _try_to_open(self) -> None:
        where = str(self._path) if self._path else IN_MEMORY
        self._database = sqlite3.connect(where, timeout=0, isolation_level=None)
        try:
            for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
                self._database.execute(f"PRAGMA {pragma}")
            self._migrate()
            self._database.execute("SELECT count(*) FROM conversation").fetchone()
        except BaseException:
            self._database.close()
            raise

    def _migrate(self) -> None:
        """Bring the tables to this version."""
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise StoreFailed(
                f"{self._path} was written by a newer specchat: update this one, or use"
                " --no-history"
            )
        for number in range(version, len(MIGRATIONS)):
            script = f"BEGIN IMMEDIATE; {MIGRATIONS[number]}; PRAGMA user_version = {number + 1};"
            try:
                self._database.executescript(f"{script} COMMIT;")
            except sqlite3.OperationalError:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                (now,) = self._database.execute("PRAGMA user_version").fetchone()
                if now <= number:  # nobody else has done it meanwhile
                    raise

    def _failed(self, error: sqlite3.Error) -> StoreFailed:
        if _is_busy(error):
            return StoreBusy("another program is writing to the history: try again in a moment")
        return StoreFailed(
            f"conversations cannot be kept in {self._path} ({error}): see to the disk and the"
            " file's permissions, or use --no-history"
        )


def _is_busy(error: sqlite3.Error) -> bool:
    """Say whether another program is in the way."""
    # the lower byte is the kind of error; damage found by Python itself has no code
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in BUSY


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Say whether the file, and not the disk or another program, is what is wrong."""
    words = str(error)
    return any(sign in words for sign in ("not a database", "malformed", "no such table"))


def _set_aside(path: Path) -> str:
    """Rename a damaged file, and say so."""
    aside = path.with_name(f"{path.stem}.damaged-{strftime('%Y%m%d-%H%M%S')}{path.suffix}")
    for ending in ("", "-wal", "-shm"):
        part = path.with_name(path.name + ending)
        if part.exists():
            part.replace(aside.with_name(aside.name + ending))
    return f"the history was damaged: it is kept as {aside}, and a new one has begun"


def _make_private(path: Path) -> None:
    """Have a file that nobody else can read, before anything is in it."""
    try:
        make_private(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StoreFailed(
            f"conversations cannot be kept in {path} ({error.strerror}): mend that, or use"
            " --no-history"
        ) from None
