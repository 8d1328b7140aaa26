"""llama.cpp's functions for hidden states, which it exports but leaves out of its public header.

A build that lacks them cannot run prediction heads; everything else works.
"""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specchat.gguf.draft_kinds import Input, kind_of
from specchat.gguf.header import Header
from specchat.llama.library import api

HiddenStates = NDArray[np.float32]
"""Hidden states, of shape (tokens, width)."""
ARGUMENTS: dict[str, Any] = {
    "b": ctypes.c_bool,
    "i": ctypes.c_int32,
    "j": ctypes.c_uint32,
}
"""The types of arguments by their letters in the names that GCC and Clang give functions."""


def _find(name: str, others: str, others_on_windows: str, result: Any = None) -> Any:
    """Return a function of a context, None if this build does not export it.

    Compilers add the types of the arguments to its name, each in its own letters; `others` are
    those after the context.
    """
    of_gcc = f"_Z{len(name)}{name}P13llama_context{others}"
    returned = "PEAM" if result else "X"
    of_msvc = f"?{name}@@YA{returned}PEAUllama_context@@{others_on_windows}@Z"
    for exported in (name, of_gcc, of_msvc):
        if (function := getattr(api._lib, exported, None)) is not None:  # noqa: SLF001
            function.argtypes = [ctypes.c_void_p, *(ARGUMENTS[letter] for letter in others)]
            function.restype = result
            return function
    return None


_set_hidden_states = _find("llama_set_embeddings_nextn", "bb", "_N1")
_get_hidden_states = _find("llama_get_embeddings_nextn", "", "", ctypes.c_void_p)
_set_layer_input = _find("llama_set_embeddings_layer_inp", "jb", "I_N")
_get_layer_input = _find("llama_get_embeddings_layer_inp", "j", "I", ctypes.c_void_p)
_use_head = _find("llama_set_nextn_layer_offset", "i", "H")
NO_HEADS = "this build of llama.cpp cannot run prediction heads"
can_read_hidden_states = bool(_set_hidden_states and _get_hidden_states)
can_read_layer_inputs = bool(_set_layer_input and _get_layer_input)


def why_not_runnable(draft: Header) -> str | None:
    """Return why this build cannot run what drafts for a target, None if it can."""
    can_read: dict[Input, bool] = {
        "hidden states": can_read_hidden_states,
        "layer inputs": can_read_layer_inputs,
    }
    kind = kind_of(draft)
    can_choose = bool(_use_head) or kind.num_contexts(draft) == 1
    return None if can_choose and all(can_read[read] for read in kind.reads) else NO_HEADS


def keep_hidden_states(context: object, *, of_outputs: bool = False) -> None:
    """Let a context keep the state of every token of a pass, or only `of_outputs`, with logits."""
    _set_hidden_states(context, True, of_outputs)


def hidden_states_of(context: object, count: int, width: int) -> HiddenStates:
    """Return the states of the last pass, over `count` tokens; valid until the next pass."""
    return _view(_get_hidden_states(context), count, width)  # waits for the pass to end


def use_head(context: object, number: int) -> None:
    """Let a context of several prediction heads run the one with this number, from 0 on."""
    _use_head(context, number)


def keep_layer_inputs(context: object, layers: Sequence[int]) -> None:
    """Let a context keep these layers' inputs for every token of a pass."""
    for layer in layers:
        _set_layer_input(context, layer, True)


def layer_inputs_of(context: object, layers: Sequence[int], count: int, width: int) -> HiddenStates:
    """Return the layers' inputs in the last pass, side by side: (tokens, layers * width)."""
    return np.hstack([_view(_get_layer_input(context, layer), count, width) for layer in layers])


@lru_cache(256)
def _view(address: int, count: int, width: int) -> HiddenStates:
    """Return a view of llama.cpp's memory, valid while llama.cpp returns the same address."""
    values: Any = (ctypes.c_float * (count * width)).from_address(address)
    return np.frombuffer(values, np.float32).reshape(count, width)
