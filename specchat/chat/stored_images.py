"""Images in the store, each kept once: their bytes are read when they are wanted, in any thread."""

import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from specchat.chat.database import BUSY_TIMEOUT, Database
from specchat.chat.message_rows import storable
from specchat.chat.recovery import UNREADABLE, address_of
from specchat.errors import StoreFailed
from specchat.images.image import DistantImage, Image

IMAGES = (
    "SELECT shown.message, shown.name, digest, LENGTH(image.data) FROM shown"
    " JOIN message ON message.id = shown.message JOIN image USING (digest)"
    " WHERE conversation = ? AND deleted IS NULL ORDER BY message, place"
)
"""The images of a conversation, with their messages; SQLite reads no bytes for a length."""
HAS_IMAGE = "SELECT 1 FROM image WHERE digest = ?"
ADD_IMAGE = "INSERT OR IGNORE INTO image VALUES (?, ?)"
READ_IMAGE = "SELECT CAST(data AS BLOB) FROM image WHERE digest = ?"
SHOW_IMAGE = "INSERT INTO shown VALUES (?, ?, ?, ?)"
REMOVE_UNSHOWN = "DELETE FROM image WHERE digest NOT IN (SELECT digest FROM shown)"
"""Removes the images that no message shows any more."""


def add_images(database: sqlite3.Connection, message: int, images: Iterable[Image]) -> None:
    """Show images with a message, within the transaction that adds it."""
    for place, image in enumerate(images):
        digest = image.digest.hex()
        if not database.execute(HAS_IMAGE, (digest,)).fetchone():
            database.execute(ADD_IMAGE, (digest, image.data))
        database.execute(SHOW_IMAGE, (message, place, storable(image.name), digest))


class StoredImages:
    """The images of a store; in memory, without a path, their bytes are read at once."""

    def __init__(self, store: Database, path: Path | None) -> None:
        self._store = store
        self._files = ImageFiles(path, store.note_damage) if path else None

    def by_message(self, conversation: int) -> dict[int, list[Image]]:
        """Return the images of a conversation's messages, by the messages' numbers."""
        found = dict[int, list[Image]]()
        for message, *image in self._store.rows(IMAGES, (conversation,)):
            found.setdefault(message, []).append(self._image(*image))
        return found

    def keep(self, image: Image) -> None:
        """Write an image's bytes ahead of the message that shows it; in any thread.

        This takes 0.4 s for 20 MiB, which adding the message then does not. What no message shows
        is removed the next time that a program opens the file.
        """
        if self._files:
            self._files.write(image)

    def wait(self) -> bool:
        """Wait while an image is being copied; return False if none was."""
        return self._files is not None and self._files.wait()

    def _image(self, name: str, digest: str, num_bytes: int) -> Image:
        if self._files:
            read = partial(self._files.read, name)
            return DistantImage(read, name, bytes.fromhex(digest), num_bytes)
        ((data,),) = self._store.rows(READ_IMAGE, (digest,))
        return Image(data, name)


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
