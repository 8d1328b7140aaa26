"""Reading the numbers and texts of a GGUF header, never past its end and never without bound.

The file is read, not mapped: one that another program cuts short meanwhile must not kill us.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

__all__ = ["Cursor", "Damaged"]

LARGEST_HEADER = 2**26
"""Bytes; a vocabulary of 262 144 tokens with its merges takes about 2**24."""
MOST_KEPT = 2**17
"""Values of the arrays of one header; those of models with some hundred layers have some 2**12."""
MOST_TEXTS = 2**22
"""Texts in the arrays of one header; that vocabulary has about 2**20."""
FIRST_READ = 2**20
LENGTH = struct.Struct("<Q")


class Damaged(Exception):  # says what is wrong with the file, as errors.py does
    """The header is damaged, foreign or larger than any model's; says how."""


class Cursor:
    """A place in a GGUF header; every reading moves it on, and raises Damaged at the end."""

    def __init__(self, file: BinaryIO, place: int = 0, largest: int = LARGEST_HEADER) -> None:
        """Start at a place of a file, in bytes from its beginning, and read so many at most."""
        self._start = place
        self._place = 0
        self._file = file
        self._data = b""
        self._largest = largest
        self._num_texts = self._num_kept = 0
        file.seek(place)

    @property
    def place(self) -> int:
        """Where it is, in bytes from the beginning of the file."""
        return self._start + self._place

    def number(self, kind: struct.Struct) -> int | float | bool:
        """Read one number."""
        self._require(kind.size)
        (value,) = kind.unpack_from(self._data, self._place)
        self._place += kind.size
        return value  # type: ignore[no-any-return]  # what struct gives depends on the kind

    def count(self, kind: struct.Struct, most: int, of_what: str) -> int:
        """Read how many of something follow; Damaged for more than there can be."""
        value = int(self.number(kind))
        if value > most:
            raise Damaged(f"{value} {of_what}")
        return value

    def numbers(self, kind: struct.Struct, count: int) -> tuple[int | float | bool, ...]:
        """Read so many numbers."""
        data = self.take(count * kind.size)
        return tuple(value for (value,) in kind.iter_unpack(data))

    def keeps(self, count: int) -> bool:
        """Say whether so many values of an array may be kept, those before it being kept too."""
        self._num_kept += count
        return self._num_kept <= MOST_KEPT

    def text(self, most: int, of_what: str) -> str:
        """Read a text of at most so many bytes; what is no UTF-8 in it is replaced."""
        return self.take(self.count(LENGTH, most, f"bytes in {of_what}")).decode("utf-8", "replace")

    def take(self, count: int) -> bytes:
        """Read so many bytes."""
        self._require(count)
        self._place += count
        return bytes(self._data[self._place - count : self._place])

    def skip(self, count: int) -> None:
        """Leave so many bytes out."""
        self._require(count)
        self._place += count

    def skip_texts(self, count: int) -> None:
        """Leave so many texts out; this runs over whole vocabularies."""
        self._num_texts += count
        if self._num_texts > MOST_TEXTS:
            raise Damaged(f"{self._num_texts} texts")
        unpack, data, place = LENGTH.unpack_from, self._data, self._place
        for _ in range(count):
            try:
                (length,) = unpack(data, place)
            except (struct.error, OverflowError):
                self._place = place
                self._require(LENGTH.size)
                data = self._data
                (length,) = unpack(data, place)
            place += LENGTH.size + length
        self._place = place
        self._require(0)

    def raw_texts(self, count: int) -> bytes:
        """Read so many texts as they lie in the file, each after its length."""
        start = self._place
        self.skip_texts(count)
        return bytes(self._data[start : self._place])

    def _require(self, count: int) -> None:
        """Have so many bytes from here on at hand."""
        end = self._place + count
        if end <= len(self._data):
            return
        if end > self._largest:
            raise Damaged(f"a header of more than {self._largest >> 20} MiB")
        wanted = max(end, FIRST_READ, 2 * len(self._data)) - len(self._data)
        self._data += self._file.read(wanted)
        if end > len(self._data):
            raise Damaged("it ends within its header")
