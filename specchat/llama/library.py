"""The native library, loaded once, with its log written to a file and never to the screen."""

import ctypes
import os
import threading
from collections import deque
from contextlib import suppress

from specchat.llama import native_libraries
from specchat.system.logs import open_log

api = native_libraries.api
WARNING, ERROR, CONTINUED = 3, 4, 5


class _Log:
    """Receives llama.cpp's log, and keeps the last errors for messages."""

    def __init__(self) -> None:
        self.errors: deque[str] = deque(maxlen=20)
        self.descriptor = -1
        self._level = 0
        self._lock = threading.Lock()
        self.callback = api.llama_log_callback(self._receive)

    def _receive(self, level: int, text: bytes | None, _: object) -> None:
        with self._lock:
            self._level = self._level if level == CONTINUED else level
            line = text or b""
            if self._level in {WARNING, ERROR}:
                self.errors.append(line.decode("utf-8", "replace").strip())
            with suppress(OSError):  # a full disk must not stop decoding
                os.write(self.descriptor, line)


logits_address = api._lib["llama_get_logits"]  # noqa: SLF001  # there is no public handle
"""llama_get_logits returning a bare address, because wrapping it costs more than the call."""
logits_address.argtypes = [api.llama_context_p_ctypes]
logits_address.restype = ctypes.c_void_p

_log = _Log()
_starting = threading.Lock()


def start() -> None:
    """Start llama.cpp once per process, with its log written to a file."""
    with _starting:
        if _log.descriptor < 0:
            _log.descriptor = open_log("llama.log")
            api.llama_log_set(_log.callback, None)
            native_libraries.load_backends()
            api.llama_backend_init()


def log_callback() -> object:
    """Return the function that llama.cpp's log goes to, for libraries with a log of their own."""
    return _log.callback


def version() -> str:
    """Return the version of llama-cpp-python, which fixes that of llama.cpp."""
    return native_libraries.version()


def build() -> str:
    """Return the version and the features of the build; equal texts mean equal bits."""
    start()
    variant = native_libraries.variant()
    system = api.llama_print_system_info() or b""
    features = system.decode("utf-8", "replace").strip()
    return f"{version()}: {variant} {features}" if variant else f"{version()}: {features}"


def last_errors() -> list[str]:
    """Return llama.cpp's latest warnings and errors, oldest first, and clear them."""
    errors = [line for line in _log.errors if line]
    _log.errors.clear()
    return errors


STOPPED = "the answer was stopped"


class AbortFlag:
    """A flag that stops llama.cpp in the middle of a pass, or us after it; any thread may set it.

    llama.cpp calls the abort callback before every node of its graph, about a thousand times a
    pass, so it must not be Python: it is the C library's `strlen`, which returns 0 (continue) for
    an empty string and 1 (stop) for one byte. Setting the flag writes that byte.
    """

    def __init__(self) -> None:
        self._bytes = (ctypes.c_char * 2)()
        self._is_asked = False
        libc = ctypes.cdll.msvcrt if hasattr(ctypes, "windll") else ctypes.CDLL(None)
        address = ctypes.cast(libc.strlen, ctypes.c_void_p).value
        self._callback = api.ggml_abort_callback(address or 0)

    def attach(self, context: object) -> None:
        """Let a context check this flag, which must live as long as the context."""
        data = ctypes.cast(self._bytes, ctypes.c_void_p)
        api.llama_set_abort_callback(context, self._callback, data)

    def set(self) -> None:
        """Set the flag."""
        self._bytes[0] = b"\x01"

    def ask(self) -> None:
        """Set the flag, but let the pass end that llama.cpp is at."""
        self._is_asked = True

    def clear(self) -> None:
        """Clear the flag."""
        self._bytes[0], self._is_asked = b"\x00", False

    def is_set(self) -> bool:
        """Return True if the flag is set."""
        return self._is_asked or self._bytes[0] != b"\x00"
