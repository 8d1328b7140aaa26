"""The store's SQLite file: opening, replacing a damaged one, one writer at a time."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep, strftime
from typing import Any

from specchat.chat.recovery import UNREADABLE, recover
from specchat.chat.tables import SCHEMA, TABLES, UPDATES, VERSION
from specchat.errors import StoreBusy, StoreFailed
from specchat.system.private_files import make_private

BUSY_TIMEOUT = 10.0
"""Default seconds to wait while another program writes."""
COPY_AGAIN_SECONDS = 10.0
"""Seconds without another attempt to copy a damaged file: each takes seconds for a large one."""
RETRY_SECONDS = 0.02
"""Seconds between attempts to open the file while other programs are opening it."""

BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_SCHEMA})
"""Transient errors; SQLITE_SCHEMA means that another program has just created the tables."""
DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_MISMATCH})
"""Errors of damage; SQLITE_MISMATCH means that a row's number is so large that none can follow."""
WITHOUT_SCHEMA = sqlite3.SQLITE_ERROR
"""The error of a statement that does not match the schema, which must then be damaged."""
DELETED = "another program deleted this conversation: start a new one"


class Database:
    """A private SQLite file, or a database in memory if `path` is None. For use in one thread.

    Raises StoreFailed if the disk is full, the file cannot be used, or another one is in its place,
    and StoreBusy while another program is writing. A damaged file is set aside and replaced by one
    with its readable rows, as `notice` then reports. If the damage shows only after opening,
    StoreBusy reports it.
    """

    def __init__(self, path: Path | None, busy_timeout: float = BUSY_TIMEOUT) -> None:
        self.notice = ""
        self._path = path
        self._damage: Exception | None = None
        self._copy_failed = ""
        self._copy_again_at = 0.0
        self._is_open = False
        self._busy_timeout = busy_timeout
        try:
            self._open()
        except (OSError, *UNREADABLE) as error:
            if not self._recovers_from(error, WITHOUT_SCHEMA):
                raise self._failed(error) from None

    def close(self) -> None:
        """Close the file; if it was found damaged, it is replaced first, as `notice` reports."""
        if damage := self._damage:
            self._copy_failed = ""
            with suppress(StoreFailed, OSError, *UNREADABLE):
                self._recovers_from(damage)
        self._connection.close()

    def note_damage(self, error: Exception) -> None:
        """Have the file replaced at its next use, if an error that another thread had is damage."""
        if _is_damage(error):
            self._damage = error

    def set_busy_timeout(self, seconds: float = BUSY_TIMEOUT) -> None:
        """Set how long to wait from now on while another program writes."""
        self._busy_timeout = seconds
        if self._is_open:
            self._connection.execute(f"PRAGMA busy_timeout = {round(1000 * seconds)}")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run several statements as one transaction: all of them or none."""
        self._require_whole()
        try:
            self._begin()
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have ended the transaction
                    self._connection.execute("ROLLBACK")
                raise
        except UNREADABLE as error:
            raise self._failed(error) from None

    def _begin(self) -> None:
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or not self._waits_for_thread():
                    raise

    def _waits_for_thread(self) -> bool:
        """Wait while a thread of this program writes; return False if none does."""
        return False

    def run(self, statement: str, values: Sequence[object]) -> int:
        """Run one statement; return the id of the row it added."""
        with self.transaction() as database:
            return int(database.execute(statement, values).lastrowid or 0)

    def rows(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        self._require_whole()
        try:
            return self._connection.execute(statement, values).fetchall()
        except UNREADABLE as error:
            raise self._failed(error) from None

    def _open(self) -> None:
        """Open the file, retrying because SQLite does not wait while others create the same file.

        It is created empty first, so that only the user can ever read it.
        """
        if self._path is not None:
            make_private(self._path.parent)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            self._identity = _identity(self._path)
        deadline = monotonic() + BUSY_TIMEOUT
        while True:
            try:
                self._connect()
                break
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or monotonic() > deadline:
                    raise
            sleep(RETRY_SECONDS)
        self._is_open = True
        self.set_busy_timeout(self._busy_timeout)

    def _reopen(self, path: Path) -> None:
        """Open the file, or that with its readable rows; if this fails, the next use tries again.

        The numbers of another file's rows say nothing in this one, nor may it be written.
        """
        self._is_open = False
        self._connection.close()
        found = _identity(path)
        if found != self._identity and (
            found is None or all(_identity(each) != self._identity for each in _set_aside(path))
        ):
            raise StoreFailed(
                f"{path} was moved, deleted or replaced: move it back, or export this chat and"
                " start specchat again"
            )
        try:
            self._open()
        except (OSError, *UNREADABLE) as error:
            self.note_damage(error)
            raise self._unusable(error) from None

    def _connect(self) -> None:
        where = str(self._path) if self._path else ":memory:"
        self._connection = sqlite3.connect(where, timeout=0, isolation_level=None)
        self._connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        try:
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
                self._connection.execute(f"PRAGMA {pragma}")
            self._make_tables()
            for table, columns in SCHEMA.items():
                for statement in (f"SELECT {columns} FROM {table}", f"DELETE FROM {table}"):  # noqa: S608
                    self._connection.execute(f"EXPLAIN {statement}")
        except BaseException:
            self._connection.close()
            raise

    def _make_tables(self) -> None:
        version = self._version()
        if version < 0:
            damage = sqlite3.DatabaseError(f"its version is {version}")
            damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise damage
        if version > VERSION:
            raise StoreFailed(
                f"{self._path} was written by another version of specchat: update specchat, move"
                " the file away, or use --no-history"
            )
        if version == VERSION:
            return
        updates = " ".join(UPDATES[each] for each in range(version, VERSION)) if version else TABLES
        try:
            self._connection.executescript(
                f"BEGIN IMMEDIATE; {updates} PRAGMA user_version = {VERSION}; COMMIT;"
            )
        except sqlite3.OperationalError:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if self._version() != VERSION:  # else another program made them in the meantime
                raise

    def _version(self) -> int:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        return int(version)

    def _require_whole(self) -> None:
        if damage := self._damage:
            raise self._failed(damage)
        if self._path and not (self._is_open and _identity(self._path) == self._identity):
            self._reopen(self._path)

    def _failed(self, error: Exception) -> StoreFailed:
        if self._recovers_from(error):
            return StoreBusy(f"{self.notice or 'another program recovered the history'}: try again")
        return self._unusable(error)

    def _unusable(self, error: Exception) -> StoreFailed:
        if _is_busy(error):
            return StoreBusy("another program is writing to the history: try again")
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
            return StoreFailed(DELETED)
        reason = error.strerror if isinstance(error, OSError) else error
        return StoreFailed(
            f"cannot store conversations in {self._path} ({reason}): check the disk and the file's"
            " permissions, or use --no-history"
        )

    def _recovers_from(self, error: Exception, *also: int) -> bool:
        """If it is damage, replace the file by one with its readable rows; else return False."""
        if self._path is None or not _is_damage(error, *also):
            return False
        self._damage = error
        self._is_open = False
        self._connection.close()
        if self._identity == _identity(self._path):  # else another program recovered it
            if self._copy_failed and monotonic() < self._copy_again_at:
                raise StoreFailed(self._copy_failed)
            try:
                self.notice = _replace_damaged(self._path)
            except (OSError, sqlite3.Error) as failure:
                self._copy_again_at = monotonic() + COPY_AGAIN_SECONDS
                self._copy_failed = (
                    f"{self._path} is damaged, and its readable part cannot be copied"
                    f" ({failure}): free some space there, or use --no-history"
                )
                raise StoreFailed(self._copy_failed) from None
        self._damage = None
        self._reopen(self._path)
        return True


def _is_damage(error: Exception, *also: int) -> bool:
    """Return True if an error says that the file is damaged, or has another one of these codes."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, UnicodeDecodeError) or code in {*DAMAGED, *also}


def _is_busy(error: Exception) -> bool:
    """Return True if another program has locked the file."""
    # the lower byte is the kind of error; errors raised by Python itself have no code
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in BUSY


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what a file is known by, whatever its name; None if it cannot be found."""
    with suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


def _set_aside(path: Path) -> Iterator[Path]:
    """Yield the damaged files that were replaced by one with their readable rows."""
    return path.parent.glob(f"{path.stem}.damaged-*{path.suffix}")


def _replace_damaged(path: Path) -> str:
    """Replace a file by one with its readable rows; return a notice."""
    aside = path.with_name(f"{path.stem}.damaged-{strftime('%Y%m%d-%H%M%S')}{path.suffix}")
    with TemporaryDirectory(dir=path.parent) as folder:
        fresh = Path(folder, path.name)
        Database(fresh).close()
        num_conversations, num_messages = recover(path, fresh)
        for suffix in ("", "-wal", "-shm"):
            part = path.with_name(path.name + suffix)
            if part.exists():
                part.replace(aside.with_name(aside.name + suffix))
        fresh.replace(path)
    return (
        f"the history was damaged: {num_conversations} conversations with {num_messages} messages"
        f" were recovered; the damaged file is kept as {aside}"
    )
