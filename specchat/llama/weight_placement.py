"""Where llama.cpp puts single weights of a model, whatever device their layers are on."""

import ctypes
from typing import Any, ClassVar

from specchat.llama.device_list import call_backend
from specchat.planning.placement import BlocksOnHost


class Override(ctypes.Structure):
    """llama.cpp's `llama_model_tensor_buft_override`: weights, and the kind of buffer for them."""

    _fields_: ClassVar[Any] = [("pattern", ctypes.c_char_p), ("buffers", ctypes.c_void_p)]


def weights_on_host(kept: BlocksOnHost) -> "ctypes.Array[Override] | None":
    """Return the list that keeps these weights in the host's memory, None for an empty one.

    llama.cpp reads it while it loads, and keeps its address.
    """
    if not kept.blocks:
        return None
    buffers = call_backend("cpu_buffer_type", ctypes.c_void_p)
    return (Override * 2)(Override(kept.pattern.encode(), buffers), Override(None, None))
