"""llama.cpp's functions for hidden rows, which it exports but does not declare as its interface.

A build without them cannot run prediction heads, and all else works.
"""

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from specchat.llama.library import api

Rows2D = NDArray[np.float32]
"""Hidden states, of shape (tokens, width)."""


class Listener(Protocol):
    """What follows a context's memory."""

    def after_pass(self, position: int, tokens: Sequence[int], *, is_prompt: bool) -> None:
        """Follow a pass over tokens from `position` on; none of a prompt's is ever rejected."""

    def after_rollback(self, length: int) -> None:
        """Follow a rollback to a length."""


def _find(names: tuple[str, ...], arguments: list[Any], result: Any) -> Any:
    """Return the function under the first name that this build exports, None for none."""
    for name in names:
        if (found := getattr(api._lib, name, None)) is not None:  # noqa: SLF001
            found.argtypes, found.restype = arguments, result
            return found
    return None


_set_rows = _find(
    (
        "llama_set_embeddings_nextn",
        "_Z26llama_set_embeddings_nextnP13llama_contextbb",
        "?llama_set_embeddings_nextn@@YAXPEAUllama_context@@_N1@Z",
    ),
    [ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool],
    None,
)
_get_rows = _find(
    (
        "llama_get_embeddings_nextn",
        "_Z26llama_get_embeddings_nextnP13llama_context",
        "?llama_get_embeddings_nextn@@YAPEAMPEAUllama_context@@@Z",
    ),
    [ctypes.c_void_p],
    ctypes.c_void_p,
)

_set_layer = _find(
    (
        "llama_set_embeddings_layer_inp",
        "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
        "?llama_set_embeddings_layer_inp@@YAXPEAUllama_context@@I_N@Z",
    ),
    [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_bool],
    None,
)
_get_layer = _find(
    (
        "llama_get_embeddings_layer_inp",
        "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
        "?llama_get_embeddings_layer_inp@@YAPEAMPEAUllama_context@@I@Z",
    ),
    [ctypes.c_void_p, ctypes.c_uint32],
    ctypes.c_void_p,
)

NO_ROWS = "this build of llama.cpp cannot run prediction heads"
can_read_rows = bool(_set_rows and _get_rows)
can_read_layers = bool(_set_layer and _get_layer)


def keep_rows(context: object) -> None:
    """Let a context keep the row of every token of a pass, not only of those with logits."""
    _set_rows(context, True, False)


def rows_of(context: object, count: int, width: int) -> Rows2D:
    """Return a copy of the rows of the last pass, which had `count` tokens."""
    return _copied(_get_rows(context), count, width)  # waits for the pass to end


def keep_layers(context: object, layers: Sequence[int]) -> None:
    """Let a context keep what these layers read of every token of a pass."""
    for layer in layers:
        _set_layer(context, layer, True)


def layers_of(context: object, layers: Sequence[int], count: int, width: int) -> Rows2D:
    """Return what layers read in the last pass, side by side: (tokens, layers * width)."""
    return np.hstack([_copied(_get_layer(context, layer), count, width) for layer in layers])


def _copied(address: int, count: int, width: int) -> Rows2D:
    values = (ctypes.c_float * (count * width)).from_address(address)
    return np.ctypeslib.as_array(values).reshape(count, width).copy()
