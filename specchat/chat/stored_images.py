"""Images in the store's file: their bytes are read when they are wanted, in any thread."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from specchat.chat.database import BUSY_TIMEOUT, UNREADABLE, address_of
from specchat.errors import StoreFailed
from specchat.images.image import Image

IMAGES = (
    "SELECT shown.message, shown.name, digest, LENGTH(image.data) FROM shown"
    " JOIN message ON message.id = shown.message JOIN image USING (digest)"
)
"""The images of messages, each with the message's number; SQLite reads no bytes for a length."""
HAS_IMAGE = "SELECT 1 FROM image WHERE digest = ?"
ADD_IMAGE = "INSERT OR IGNORE INTO image VALUES (?, ?)"
READ_IMAGE = "SELECT CAST(data AS BLOB) FROM image WHERE digest = ?"


class ImageFiles:
    """The bytes of a store's images, for every thread, while the store itself is for one.

    `on_error` is called with what SQLite finds wrong with the file.
    """

    def __init__(self, path: Path, on_error: Callable[[Exception], object]) -> None:
        self._path, self._on_error = path, on_error
        self._is_copying = threading.Lock()

    def read(self, name: str, digest: bytes) -> bytes:
        """Return the bytes of an image, in any thread. Raises StoreFailed."""
        address = address_of(self._path, "ro")
        try:
            with closing(sqlite3.connect(address, timeout=BUSY_TIMEOUT, uri=True)) as file:
                rows: list[tuple[bytes]] = file.execute(READ_IMAGE, (digest.hex(),)).fetchall()
        except UNREADABLE as error:
            self._on_error(error)
            raise StoreFailed(
                f"{name} cannot be read from the history ({error}): try again"
            ) from None
        for (data,) in rows:
            return data
        raise StoreFailed(
            f"{name} is no longer in the history: open the conversation again without it"
        )

    def write(self, image: Image) -> None:
        """Write the bytes of an image to the disk, ahead of the message that shows it.

        What fails here fails again, and is reported, when the message is added with its images.
        """
        address = address_of(self._path, "rw")  # which makes no file, as that would not be private
        with (
            suppress(sqlite3.Error, StoreFailed),
            closing(
                sqlite3.connect(address, timeout=BUSY_TIMEOUT, isolation_level=None, uri=True)
            ) as file,
        ):
            # the lock is held while the bytes are copied, not while a disk writes them
            for pragma in ("synchronous = NORMAL", "wal_autocheckpoint = 0"):
                file.execute(f"PRAGMA {pragma}")
            digest = image.digest.hex()
            if not file.execute(HAS_IMAGE, (digest,)).fetchone():
                data = image.data
                file.execute("BEGIN IMMEDIATE")  # it may wait for another program
                with self._is_copying:
                    file.execute(ADD_IMAGE, (digest, data))
                    file.execute("COMMIT")
                file.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def wait(self) -> bool:
        """Wait while an image is being copied, which others cannot write meanwhile; else False."""
        was_copying = self._is_copying.locked()
        with self._is_copying:
            return was_copying
