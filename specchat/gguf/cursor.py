"""A cursor over a GGUF header that reads numbers and strings within bounds.

The file is read, not mapped: truncating a mapped file would kill the process.
"""

import struct
from contextlib import suppress
from typing import BinaryIO

LARGEST_HEADER = 2**26
"""Bytes of the largest header; a vocabulary of 262,144 tokens with its merges takes about 2**24."""
MOST_KEPT = 2**17
"""The most array values kept from one header; models with hundreds of layers have about 2**12."""
MOST_TEXTS = 2**22
"""The most strings in the arrays of one header; that vocabulary has about 2**20."""
UINT64 = struct.Struct("<Q")


class Damaged(Exception):  # read_header turns it into one of errors.py
    """The header is damaged, not GGUF or too large, as the message says."""


class CutShort(Damaged):
    """The file ends too early: it should have `num_needed` bytes, 0 if its header says no more."""

    def __init__(self, num_needed: int = 0) -> None:
        super().__init__("the file ends too early")
        self.num_needed = num_needed


class Cursor:
    """A position in a GGUF header; reading moves it, and raises Damaged past the end."""

    def __init__(self, file: BinaryIO, position: int = 0, largest: int = LARGEST_HEADER) -> None:
        """Start at byte `position` of a file and read at most `largest` bytes."""
        self._file = file
        self._largest = self._num_left = largest
        self._num_texts = self._num_kept = 0
        file.seek(position)

    @property
    def position(self) -> int:
        """The position, in bytes from the beginning of the file."""
        return self._file.tell()

    def number(self, kind: struct.Struct) -> int | float | bool:
        """Read one number."""
        return self.numbers(kind, 1)[0]

    def count(self, kind: struct.Struct, most: int, of_what: str) -> int:
        """Read a count. Raises Damaged if it exceeds `most`."""
        value = int(self.number(kind))
        if value > most:
            raise Damaged(f"too many {of_what}: {value}")
        return value

    def numbers(self, kind: struct.Struct, count: int) -> tuple[int | float | bool, ...]:
        """Read `count` numbers."""
        data = self.take(count * kind.size)
        return tuple(value for (value,) in kind.iter_unpack(data))

    def keeps(self, count: int) -> bool:
        """Return True, and count them, if `count` more array values may be kept."""
        self._num_kept += count
        return self._num_kept <= MOST_KEPT

    def text(self, most: int, of_what: str) -> str:
        """Read a string of at most `most` bytes; invalid UTF-8 is replaced."""
        return self.take(self.count(UINT64, most, f"bytes in {of_what}")).decode("utf-8", "replace")

    def take(self, count: int) -> bytes:
        """Read `count` bytes."""
        self._num_left -= count
        if self._num_left < 0:
            raise Damaged(f"the header exceeds {self._largest >> 20} MiB")
        data = self._file.read(count)
        if len(data) < count:
            raise CutShort
        return data

    def again(self, position: int) -> bytes:
        """Return the bytes from an earlier position up to here."""
        end = self.position
        self._file.seek(position)
        return self._file.read(end - position)

    def raw_texts(self, count: int) -> bytes:
        """Read `count` strings as they are in the file, each after its length.

        Whole vocabularies are read like this, so their size is found first, without the cost of
        `take`.
        """
        self._num_texts += count
        if self._num_texts > MOST_TEXTS:
            raise Damaged(f"too many strings: {self._num_texts}")
        start, size, left = self.position, 0, self._num_left
        read, unpack = self._file.read, UINT64.unpack
        with suppress(struct.error):  # the file ends here, which `take` reports
            for _ in range(count):
                size += 8
                (length,) = unpack(read(8))
                size += length
                if size > left:
                    break
                read(length)
        self._file.seek(start)
        return self.take(size)
