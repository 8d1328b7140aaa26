"""ggml's RPC backend, for which llama-cpp-python has no functions."""

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any

from specchat.errors import WorkerUnavailable
from specchat.llama.library import start
from specchat.llama.native_libraries import backend_library, ggml_library

Handle = ctypes.c_void_p
AbortCallback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
NO_RPC = (
    "this llama.cpp was built without its RPC backend, which workers need: `specchat doctor` prints"
    " how to rebuild it"
)
SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "rpc_start_server": (
        None,
        [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p],
    ),
    "rpc_init": (Handle, [ctypes.c_char_p, ctypes.c_uint32]),
    "rpc_add_server": (Handle, [ctypes.c_char_p]),
}
"""What the functions return and take."""


@cache
def find_rpc() -> ctypes.CDLL | None:
    """Return a library with the functions, None if llama.cpp was built without them."""
    start()
    library = backend_library("rpc")
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, f"ggml_backend_{name}", None)
        if function is None:
            return None
        function.restype, function.argtypes = result, arguments
    return library


def require_rpc() -> ctypes.CDLL:
    """Return the library; raises WorkerUnavailable without one."""
    if (library := find_rpc()) is None:
        raise WorkerUnavailable(NO_RPC)
    return library


_callbacks: list[object] = []
"""What the library may call, which must live as long as it does."""


def on_abort(act: Callable[[bytes], None]) -> None:
    """Let ggml call a function with its last message before it ends the process."""

    def call(message: bytes | None) -> None:
        os.write(2, (message or b"") + b"\n")  # as ggml does
        act(message or b"")

    callback = AbortCallback(call)
    set_callback: Any = getattr(ggml_library("ggml-base"), "ggml_set_abort_callback", None)
    if set_callback is None:  # then the end of the process is not explained
        return
    _callbacks.append(callback)
    set_callback.argtypes, set_callback.restype = [AbortCallback], ctypes.c_void_p
    set_callback(callback)
