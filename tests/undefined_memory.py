"""The memory that llama.cpp's encoder of images reads before anything has written to it."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import pytest

from specchat.llama.encoder_stop import EncoderStop

ZEROS, NAN = 0x00, 0xFF
"""Bytes that fill memory with zeros, or with NaN of any width."""
NEVER_WRITTEN, UNNAMED = 0, b"leaf_"
"""The operation and the name of a tensor that is no weight, no input and no result."""


class Tensor(ctypes.Structure):
    """The beginning of llama.cpp's ggml_tensor."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("shape", ctypes.c_int64 * 4),
        ("strides", ctypes.c_size_t * 4),
        ("operation", ctypes.c_int),
        ("parameters", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("sources", ctypes.c_void_p * 10),
        ("view_of", ctypes.c_void_p),
        ("view_offset", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("name", ctypes.c_char * 64),
    )


def fill_undefined(patch: pytest.MonkeyPatch, byte: int) -> list[int]:
    """Fill such memory with a byte in encoders made from now on; return the sizes that were.

    The last call counts. The encoders compute node by node: what is before a node in its memory
    may be in use until then.
    """
    look, sizes = EncoderStop._look, list[int]()

    def looked(stop: EncoderStop, node: int, is_question: bool, data: Any) -> bool:
        is_wanted = look(stop, node, is_question, data)
        for address in filter(None, Tensor.from_address(node).sources) if is_question else ():
            source = Tensor.from_address(address)
            if source.operation == NEVER_WRITTEN and source.name.startswith(UNNAMED):
                sizes.append(math.prod(source.shape) * source.strides[0])
                ctypes.memset(source.data, byte, sizes[-1])
        return is_question or is_wanted

    patch.setattr(EncoderStop, "_look", looked)
    return sizes
