"""ggml's RPC backend, for which llama-cpp-python has no functions."""

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llama_cpp
from llama_cpp._ctypes_extensions import load_shared_library

from specchat.errors import WorkerUnavailable

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
    """Return the library, None if llama.cpp was built without it."""
    try:
        library: ctypes.CDLL = load_shared_library("ggml-rpc", library_folder())
    except (FileNotFoundError, OSError, RuntimeError):
        return None
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, f"ggml_backend_{name}")  # kept, unlike that of `library[...]`
        function.restype, function.argtypes = result, arguments
    return library


def require_rpc() -> ctypes.CDLL:
    """Return the library; raises WorkerUnavailable without one."""
    if (library := find_rpc()) is None:
        raise WorkerUnavailable(NO_RPC)
    return library


def library_folder() -> Path:
    """Return the folder of llama.cpp's libraries."""
    return Path(str(llama_cpp.__file__)).parent / "lib"


def on_abort(act: Callable[[bytes], None]) -> object:
    """Let ggml call a function with its last message before it ends the process.

    The result must live as long as the library may call it.
    """

    def call(message: bytes | None) -> None:
        os.write(2, (message or b"") + b"\n")  # as ggml does
        act(message or b"")

    callback = AbortCallback(call)
    library = load_shared_library("ggml-base", library_folder())
    set_callback = library.ggml_set_abort_callback
    set_callback.argtypes, set_callback.restype = [AbortCallback], ctypes.c_void_p
    set_callback(callback)
    return callback
