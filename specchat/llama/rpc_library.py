"""ggml's RPC backend, for which llama-cpp-python has no functions."""

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llama_cpp
from llama_cpp._ctypes_extensions import load_shared_library

from specchat.errors import WorkerUnavailable
from specchat.llama.library import api

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
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(_library("ggml-rpc"), f"ggml_backend_{name}", None)
        if function is None:
            return None
        function.restype, function.argtypes = result, arguments
    return _library("ggml-rpc")


@cache
def _library(name: str) -> ctypes.CDLL | None:
    """Return what holds a library of ggml's, None if there is none.

    That is llama.cpp's own, with all it depends on, where the system searches these, too: loading
    the file of that name loads a second copy, because wheels have no links.
    """
    own: ctypes.CDLL = api._lib  # noqa: SLF001  # there is no public handle
    if sys.platform != "win32":
        return own
    with suppress(OSError, RuntimeError):
        loaded: ctypes.CDLL = load_shared_library(name, library_folder())
        return loaded
    return None


def require_rpc() -> ctypes.CDLL:
    """Return the library; raises WorkerUnavailable without one."""
    if (library := find_rpc()) is None:
        raise WorkerUnavailable(NO_RPC)
    return library


def library_folder() -> Path:
    """Return the folder of llama.cpp's libraries."""
    return Path(str(llama_cpp.__file__)).parent / "lib"


_callbacks: list[object] = []
"""What the library may call, which must live as long as it does."""


def on_abort(act: Callable[[bytes], None]) -> None:
    """Let ggml call a function with its last message before it ends the process."""

    def call(message: bytes | None) -> None:
        os.write(2, (message or b"") + b"\n")  # as ggml does
        act(message or b"")

    callback = AbortCallback(call)
    set_callback: Any = getattr(_library("ggml-base"), "ggml_set_abort_callback", None)
    if set_callback is None:  # then the end of the process is not explained
        return
    _callbacks.append(callback)
    set_callback.argtypes, set_callback.restype = [AbortCallback], ctypes.c_void_p
    set_callback(callback)
