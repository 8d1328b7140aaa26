"""Writes small GGUF files: metadata, another model's vocabulary, and quantized weights."""

import struct
from collections.abc import Collection, Iterable, Mapping
from io import BytesIO
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from specchat.gguf.reader import ARRAY, DEFAULT_ALIGNMENT, MAGIC, TEXT

VERSION = 3
UINT32, INT32, FLOAT32, BOOL = 4, 5, 6, 7
F32, Q4_0, Q8_0, I64 = 0, 2, 8, 27
BLOCK = 32
SCALES = np.linspace(0.8, 1.1, 13, dtype=np.float32)
"""The scales to try for a block, as factors of the one that fits its largest weight."""
ROWS_AT_ONCE = 4096

Weights = NDArray[np.float32]
Value: TypeAlias = str | int | float | tuple[int, ...]


def gguf_bytes(
    metadata: Mapping[str, Value],
    entries: Iterable[bytes],
    tensors: Mapping[str, Weights | NDArray[np.int64]],
    fine: Collection[str] = (),
) -> bytes:
    """Return the bytes of a GGUF file with metadata, raw entries of another file, and tensors.

    Matrices become q4_0, or q8_0 if their names are in `fine`; vectors stay f32 or i64.
    """
    values = [_entry(key, value) for key, value in metadata.items()] + list(entries)
    begin, data = BytesIO(), BytesIO()
    begin.write(MAGIC + struct.pack("<IQQ", VERSION, len(tensors), len(values)) + b"".join(values))
    for name, weights in tensors.items():
        kind, stored = _stored(weights, is_fine=name in fine)
        begin.write(_text(name) + struct.pack("<I", weights.ndim))
        begin.write(struct.pack(f"<{weights.ndim}Q", *reversed(weights.shape)))
        begin.write(struct.pack("<IQ", kind, data.tell()))
        data.write(stored)
        _pad(data)
    _pad(begin)
    return begin.getvalue() + data.getvalue()


def _stored(weights: Weights | NDArray[np.int64], *, is_fine: bool) -> tuple[int, bytes]:
    """Return the type of a tensor in a file, and its data."""
    if weights.dtype == np.int64:
        return I64, weights.astype("<i8").tobytes()
    if weights.ndim > 1:
        matrix = weights.astype(np.float32)
        return (Q8_0, quantized_well(matrix)) if is_fine else (Q4_0, quantized(matrix))
    return F32, weights.astype("<f4").tobytes()


def quantized(weights: Weights) -> bytes:
    """Return a matrix in q4_0, each block with the scale that changes its weights least."""
    blocks = np.ascontiguousarray(weights, np.float32).reshape(-1, BLOCK)
    parts = range(0, len(blocks), ROWS_AT_ONCE)
    return b"".join(_quantized(blocks[first : first + ROWS_AT_ONCE]) for first in parts)


def quantized_well(weights: Weights) -> bytes:
    """Return a matrix in q8_0: blocks of a half-precision scale and 32 numbers of 8 bits."""
    blocks = np.ascontiguousarray(weights, np.float32).reshape(-1, BLOCK)
    scales = (np.abs(blocks).max(axis=1, keepdims=True) / 127).astype("<f2")
    inverse = np.divide(1.0, scales, out=np.zeros(scales.shape, np.float32), where=scales != 0)
    numbers = np.clip(np.rint(blocks * inverse), -127, 127).astype(np.int8)
    return np.hstack([scales.view(np.uint8), numbers.view(np.uint8)]).tobytes()


def _quantized(blocks: Weights) -> bytes:
    """Return blocks in q4_0: a half-precision scale, then 32 numbers of 4 bits."""
    index = np.abs(blocks).argmax(axis=1, keepdims=True)
    largest = np.take_along_axis(blocks, index, axis=1)
    scales = (largest / -8.0 * SCALES).astype(np.float16).astype(np.float32)[:, :, None]
    inverse = np.divide(1.0, scales, out=np.zeros_like(scales), where=scales != 0)
    numbers = np.clip(np.rint(blocks[:, None] * inverse), -8, 7)
    errors = ((numbers * scales - blocks[:, None]) ** 2).sum(axis=2)
    best = errors.argmin(axis=1)[:, None, None]
    codes = (np.take_along_axis(numbers, best, axis=1)[:, 0] + 8).astype(np.uint8)
    written = np.empty((len(blocks), 2 + BLOCK // 2), np.uint8)
    chosen = np.take_along_axis(scales, best, axis=1)[:, 0].astype("<f2")
    written[:, :2] = chosen.view(np.uint8)
    written[:, 2:] = codes[:, : BLOCK // 2] | codes[:, BLOCK // 2 :] << 4
    return written.tobytes()


def _entry(key: str, value: Value) -> bytes:
    if isinstance(value, str):
        return _text(key) + struct.pack("<I", TEXT) + _text(value)
    if isinstance(value, tuple):
        numbers = struct.pack(f"<IIQ{len(value)}i", ARRAY, INT32, len(value), *value)
        return _text(key) + numbers
    if isinstance(value, bool):
        return _text(key) + struct.pack("<I?", BOOL, value)
    kind, layout = (UINT32, "<II") if isinstance(value, int) else (FLOAT32, "<If")
    return _text(key) + struct.pack(layout, kind, value)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _pad(file: BytesIO) -> None:
    file.write(bytes(-file.tell() % DEFAULT_ALIGNMENT))
