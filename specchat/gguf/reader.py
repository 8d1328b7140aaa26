"""A reader of GGUF headers, for files that may be damaged, foreign or malicious."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specchat.errors import ModelNotFound, ModelWontLoad
from specchat.gguf.cursor import LARGEST_HEADER, UINT64, Cursor, CutShort, Damaged
from specchat.gguf.foreign_file import describe, describe_folder, describe_version
from specchat.gguf.header import Header, LongArray, Tensor, Value
from specchat.gguf.split_files import parts_of, require_one_model
from specchat.gguf.tensor_types import STORED_TYPES
from specchat.gguf.unfinished_file import AGAIN, describe_cut

MAGIC = b"GGUF"
VERSIONS = frozenset({2, 3})
TOKENIZER = "tokenizer."
MOST_KEYS = MOST_TENSORS = 2**16
LONGEST_KEY = 2**16 - 1
LONGEST_NAME = 63
LONGEST_TEXT = 2**20
"""In bytes; longer strings stay in the file. The longest chat templates have about 2**15."""
MOST_NUMBERS_KEPT = 2**12
"""In one array; per-layer arrays have a few hundred."""
MOST_TEXTS_KEPT = 64
LARGEST_BEGINNING = 2**24
"""Bytes before the tokenizer; real files have a few kilobytes."""
MOST_DIMENSIONS = 4
LARGEST_SIZE = 2**63 - 1
DEFAULT_ALIGNMENT = 32

UINT32 = struct.Struct("<I")
TEXT, ARRAY = 8, 9
NUMBERS = {
    0: ("uint8", struct.Struct("<B")),
    1: ("int8", struct.Struct("<b")),
    2: ("uint16", struct.Struct("<H")),
    3: ("int16", struct.Struct("<h")),
    4: ("uint32", UINT32),
    5: ("int32", struct.Struct("<i")),
    6: ("float32", struct.Struct("<f")),
    7: ("bool", struct.Struct("<?")),
    10: ("uint64", UINT64),
    11: ("int64", struct.Struct("<q")),
    12: ("float64", struct.Struct("<d")),
}
"""The types of values, by GGUF's number."""


class OtherVersion(Exception):  # `opened` turns it into one of errors.py
    """The file has a GGUF version that llama.cpp does not read."""

    def __init__(self, version: int) -> None:
        self.version = version


def read_header(path: Path) -> Header:
    """Return a model's header, read from all its files if it is split.

    Raises ModelNotFound for a missing file, and ModelWontLoad for one that llama.cpp cannot load:
    not GGUF, damaged, incomplete, or not the first part of a split model.
    """
    first = read_part(path)
    parts = parts_of(path, first.metadata)
    every = [first, *map(read_part, parts[1:])]
    if len(parts) > 1:
        require_one_model(every)
    return Header(
        parts=parts,
        metadata=first.metadata,
        tensors={name: tensor for header in every for name, tensor in header.tensors.items()},
        file_bytes=sum(header.file_bytes for header in every),
    )


def read_beginning(path: Path) -> Header:
    """Return the first file's header up to the tokenizer, whose vocabulary is long.

    By convention it has the model's kind, name and sizes. Raises as `read_header` does.
    """
    with opened(path, largest=LARGEST_BEGINNING) as cursor:
        _, metadata = _read_metadata(cursor, end=TOKENIZER)
        return Header((path,), metadata, {}, path.stat().st_size, is_whole=False)


def raw_metadata(path: Path, prefix: str) -> list[bytes]:
    """Return the metadata entries whose keys have a prefix, as raw bytes of the first file.

    Raises as `read_header` does.
    """
    entries: list[bytes] = []
    with opened(path) as cursor:
        cursor.take(UINT32.size + UINT64.size)  # version, number of tensors
        for _ in range(cursor.count(UINT64, MOST_KEYS, "keys")):
            start = cursor.position
            key = cursor.text(LONGEST_KEY, "a key")
            _read_value(cursor)
            if key.startswith(prefix):
                entries.append(cursor.again(start))
    return entries


@contextmanager
def opened(
    path: Path, position: int = len(MAGIC), largest: int = LARGEST_HEADER
) -> Iterator[Cursor]:
    """Yield a cursor at byte `position` of a GGUF file that reads at most `largest` bytes.

    Raises ModelNotFound for a file that cannot be read, and ModelWontLoad for one that is not GGUF
    or turns out to be damaged.
    """
    try:
        if path.is_dir():
            raise ModelNotFound(describe_folder(path))
        if path.exists() and not path.is_file():  # a pipe would block
            raise ModelNotFound(f"{path} is not a file: name a .gguf file")
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ModelWontLoad(describe(path, file))
            yield Cursor(file, position, largest)
    except FileNotFoundError:
        raise ModelNotFound(
            f"{path}: no such file; check the path, or try the demo with --pair demo"
        ) from None
    except OSError as error:
        raise ModelNotFound(f"{path} cannot be read: {error.strerror}") from None
    except OtherVersion as other:
        raise ModelWontLoad(describe_version(path, other.version)) from None
    except CutShort as cut:
        what = describe_cut(path, cut.num_needed, path.stat().st_size)
        raise ModelWontLoad(f"{path} {what}") from None
    except Damaged as reason:
        raise ModelWontLoad(f"{path} is damaged ({reason}): {AGAIN}") from None


def _read_metadata(cursor: Cursor, end: str | None = None) -> tuple[int, dict[str, Value]]:
    """Return the number of tensors, and the metadata before the first key with prefix `end`."""
    version = int(cursor.number(UINT32))
    if version not in VERSIONS:
        raise OtherVersion(version)
    num_tensors = cursor.count(UINT64, MOST_TENSORS, "tensors")
    metadata: dict[str, Value] = {}
    for _ in range(cursor.count(UINT64, MOST_KEYS, "keys")):
        key = cursor.text(LONGEST_KEY, "a key")
        if end and key.startswith(end):
            break
        if key in metadata:
            raise Damaged(f"duplicate key {_shown(key)}")
        metadata[key] = _read_value(cursor)
    return num_tensors, metadata


def read_part(path: Path) -> Header:
    """Return the header of one file, which may be a part of a split model. Raises as above."""
    tensors: dict[str, Tensor] = {}
    with opened(path) as cursor:
        num_bytes = path.stat().st_size
        num_tensors, metadata = _read_metadata(cursor)
        alignment, end = metadata.get("general.alignment", DEFAULT_ALIGNMENT), 0
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise Damaged(f"invalid alignment {_shown(str(alignment))}")
        for _ in range(num_tensors):
            tensor = _read_tensor(cursor, alignment)
            if tensor.name in tensors:
                raise Damaged(f"duplicate tensor {_shown(tensor.name)}")
            tensors[tensor.name] = tensor
            end = max(end, tensor.offset + tensor.num_bytes)
        start = -(-cursor.position // alignment) * alignment
        if tensors and start + end > num_bytes:
            raise CutShort(start + end)
        return Header((path,), metadata, tensors, num_bytes, data_position=start)


def _read_value(cursor: Cursor) -> Value:
    kind = int(cursor.number(UINT32))
    if kind == ARRAY:
        return _read_array(cursor)
    if kind != TEXT:
        return cursor.number(_number_kind(kind)[1])
    length, position = int(cursor.number(UINT64)), cursor.position
    if length > LONGEST_TEXT:
        cursor.take(length)
        return LongArray("text", length, position)
    return cursor.take(length).decode("utf-8", "replace")


def _read_array(cursor: Cursor) -> Value:
    kind = int(cursor.number(UINT32))
    length, position = int(cursor.number(UINT64)), cursor.position
    if kind == TEXT:
        if length <= MOST_TEXTS_KEPT and cursor.keeps(length):
            return tuple(cursor.text(LONGEST_TEXT, "a text") for _ in range(length))
        cursor.raw_texts(length)
        return LongArray("texts", length, position)
    name, number = _number_kind(kind)
    if length <= MOST_NUMBERS_KEPT and cursor.keeps(length):
        return cursor.numbers(number, length)
    cursor.take(length * number.size)
    return LongArray(name, length, position)


def _number_kind(kind: int) -> tuple[str, struct.Struct]:
    if kind not in NUMBERS:
        raise Damaged(f"unknown value type {kind}")
    return NUMBERS[kind]


def _read_tensor(cursor: Cursor, alignment: int) -> Tensor:
    name = cursor.text(LONGEST_NAME, "a tensor's name")
    num_dimensions = cursor.count(UINT32, MOST_DIMENSIONS, "dimensions")
    shape = tuple(int(size) for size in cursor.numbers(UINT64, num_dimensions))
    stored = int(cursor.number(UINT32))
    offset = int(cursor.number(UINT64))
    if stored not in STORED_TYPES:
        raise Damaged(f"tensor {_shown(name)} has the unknown type {stored}")
    tensor = Tensor(name, shape, stored, offset)
    if not all(shape) or tensor.num_values > LARGEST_SIZE:
        raise Damaged(f"tensor {_shown(name)} has the invalid shape {shape}")
    if shape and shape[0] % STORED_TYPES[stored].num_values:
        raise Damaged(f"tensor {_shown(name)} has a row length not divisible by its block size")
    if offset % alignment:
        raise Damaged(f"tensor {_shown(name)} is not aligned")
    return tensor


def _shown(text: str) -> str:
    """Return a string of the file, safe for a message."""
    return ascii(text[:60])
