"""llama.cpp's functions for hidden rows, which it exports but does not declare as its interface.

A build without them cannot run prediction heads, and all else works.
"""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from specchat.gguf.draft_kinds import Input, kind_of
from specchat.gguf.header import Header
from specchat.llama.library import api

Rows2D = NDArray[np.float32]
"""Hidden states, of shape (tokens, width)."""
ARGUMENTS: dict[str, Any] = {"b": ctypes.c_bool, "j": ctypes.c_uint32}
"""The types of arguments by their letters in the names that GCC and Clang give functions."""


class Listener(Protocol):
    """What follows a context's memory."""

    def after_pass(self, position: int, tokens: Sequence[int], *, is_prompt: bool) -> None:
        """Follow a pass over tokens from `position` on; none of a prompt's is ever rejected."""

    def after_rollback(self, length: int) -> None:
        """Follow a rollback to a length."""


class WaitingRows:
    """Rows of a text's tokens from one position on, until they are used.

    They are in one array, so that taking some of them is one copy.
    """

    def __init__(self, width: int, size: int) -> None:
        """Hold rows of this width, without growing up to `size` of them."""
        self.first = 0
        self._size = size
        self._array = np.empty((size, width), np.float32)
        self._begin = self._end = 0

    def __len__(self) -> int:
        return self._end - self._begin

    def append(self, rows: Rows2D) -> None:
        """Append a copy of the rows of the tokens that follow."""
        held, end = self._end - self._begin, self._end + len(rows)
        if end > len(self._array):
            size = max(self._size, held + len(rows))
            old, self._array = self._array, np.empty((size, rows.shape[1]), np.float32)
            self._array[:held] = old[self._begin : self._end]
            self._begin, end = 0, held + len(rows)
        self._array[end - len(rows) : end] = rows
        self._end = end

    def cut(self, position: int) -> None:
        """Drop the rows from a position on; what is appended next begins there if none is left."""
        self._end = self._begin + max(0, min(position - self.first, self._end - self._begin))
        if self._end == self._begin:
            self.first, self._begin, self._end = position, 0, 0

    def drop_before(self, position: int) -> None:
        """Drop the rows before a position, which were used."""
        num_used = max(0, min(position - self.first, self._end - self._begin))
        self._begin += num_used
        self.first += num_used

    def between(self, start: int, end: int) -> Rows2D:
        """Return the rows of the positions from `start` to before `end` that are there."""
        begin, shift = self._begin, self._begin - self.first
        return self._array[max(begin, start + shift) : max(begin, min(self._end, end + shift))]


def _find(name: str, others: str, others_on_windows: str, result: Any = None) -> Any:
    """Return a function of a context, None if this build does not export it.

    Compilers add the types of the arguments to its name, each in its own letters; `others` are
    those after the context.
    """
    of_gcc = f"_Z{len(name)}{name}P13llama_context{others}"
    returned = "PEAM" if result else "X"
    of_msvc = f"?{name}@@YA{returned}PEAUllama_context@@{others_on_windows}@Z"
    for exported in (name, of_gcc, of_msvc):
        if (found := getattr(api._lib, exported, None)) is not None:  # noqa: SLF001
            found.argtypes = [ctypes.c_void_p, *(ARGUMENTS[letter] for letter in others)]
            found.restype = result
            return found
    return None


_set_rows = _find("llama_set_embeddings_nextn", "bb", "_N1")
_get_rows = _find("llama_get_embeddings_nextn", "", "", ctypes.c_void_p)
_set_layer = _find("llama_set_embeddings_layer_inp", "jb", "I_N")
_get_layer = _find("llama_get_embeddings_layer_inp", "j", "I", ctypes.c_void_p)
NO_ROWS = "this build of llama.cpp cannot run prediction heads"
can_read_rows = bool(_set_rows and _get_rows)
can_read_layers = bool(_set_layer and _get_layer)


def why_not_runnable(draft: Header) -> str | None:
    """Return why this build cannot run what drafts for a target, None if it can."""
    can_read: dict[Input, bool] = {
        "hidden states": can_read_rows,
        "layer inputs": can_read_layers,
    }
    return None if all(can_read[each] for each in kind_of(draft).reads) else NO_ROWS


def keep_rows(context: object) -> None:
    """Let a context keep the row of every token of a pass, not only of those with logits."""
    _set_rows(context, True, False)


def rows_of(context: object, count: int, width: int) -> Rows2D:
    """Return the rows of the last pass, which had `count` tokens; valid until the next one."""
    return _view(_get_rows(context), count, width)  # waits for the pass to end


def keep_layers(context: object, layers: Sequence[int]) -> None:
    """Let a context keep what these layers read of every token of a pass."""
    for layer in layers:
        _set_layer(context, layer, True)


def layers_of(context: object, layers: Sequence[int], count: int, width: int) -> Rows2D:
    """Return what layers read in the last pass, side by side: (tokens, layers * width)."""
    return np.hstack([_view(_get_layer(context, layer), count, width) for layer in layers])


@lru_cache(256)
def _view(address: int, count: int, width: int) -> Rows2D:
    """Return llama.cpp's rows at an address, to be read only while it gives that address."""
    values: Any = (ctypes.c_float * (count * width)).from_address(address)
    return np.frombuffer(values, np.float32).reshape(count, width)
