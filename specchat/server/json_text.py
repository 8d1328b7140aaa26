"""JSON as clients send it: how much of it there is, and what it says."""

import re
from codecs import BOM_UTF8
from typing import Any, NamedTuple

import msgspec
import numpy as np

AT_ONCE = 2**20
"""Bytes that are looked at in one go, during which no other thread runs."""
MARKS = b"[]{},"
NO_MARKS = bytes(set(range(256)) - set(MARKS))
LEVELS = np.zeros(256, np.int64)
"""By how many levels a byte goes deeper."""
LEVELS[list(b"[{")], LEVELS[list(b"]}")] = 1, -1
HALF = re.compile(
    rb"\\ud(?:[89abAB][0-9a-fA-F]{2}(?!\\ud[c-fC-F][0-9a-fA-F]{2})"
    rb"|[c-fC-F][0-9a-fA-F]{2}(?<!\\ud[89abAB][0-9a-fA-F]{2}\\ud[c-fC-F][0-9a-fA-F]{2}))"
)
"""An escape that is half of a character, without the other half. It begins with a fixed text, which
is searched for quickly."""
MOST_HALVES = 400_000
BACKSLASH, STAND_IN = rb"\\", b"\\\0"
"""An escaped backslash, and what stands for it: no JSON has it."""


class Extent(NamedTuple):
    """How deep the lists and objects of JSON are nested, and how many values they hold about."""

    depth: int
    num_values: int


def extent_of(data: bytes | bytearray, most_values: int) -> Extent:
    """Return the extent of JSON; of one with too many values it may be that of a part."""
    level = depth = num_values = num_quotes = 0
    is_quoted, cut = False, b""
    for begin in range(0, len(data), AT_ONCE):
        bare = (cut + data[begin : begin + AT_ONCE]).replace(BACKSLASH, b"")
        cut = b"\\" if bare.endswith(b"\\") else b""  # goes on in the next part
        bare = bare.removesuffix(cut).replace(rb"\"", b"")
        parts = bare.split(b'"')
        marks = b"".join(parts[is_quoted::2]).translate(None, NO_MARKS)
        is_quoted ^= len(parts) % 2 == 0
        if marks:
            levels = level + LEVELS[np.frombuffer(marks, np.uint8)].cumsum()
            level, depth = int(levels[-1]), max(depth, int(levels.max()))
            num_values += sum(map(marks.count, (b",", b"[", b"{")))
        num_quotes += len(parts) - 1
        num_values = max(num_values, num_quotes // 4)  # a value has at most a name and a text
        if num_values > most_values:
            break
    return Extent(depth, num_values)


def decoded(data: bytes | bytearray) -> Any:
    """Return what JSON says, also of a text that was cut within a character, as JavaScript cuts it.

    Raises DecodeError or UnicodeDecodeError.
    """
    data = data.removeprefix(BOM_UTF8)
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        whole = data.replace(BACKSLASH, STAND_IN).replace(rb"\uD", rb"\ud")
        if not 0 < whole.count(rb"\ud") <= MOST_HALVES:
            raise
        whole = HALF.sub(rb"\\ufffd", whole).replace(STAND_IN, BACKSLASH)
        return msgspec.json.decode(whole)
