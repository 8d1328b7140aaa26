"""llama.cpp's native libraries: importing them, finding functions, and loading the backends.

A build for one CPU links its backends. A build for any CPU (GGML_BACKEND_DL) has each backend in a
file of its own, and the CPU's in several, one for each generation of instruction sets. It has no
backend until they are loaded.
"""

import ctypes
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from specchat.errors import EngineFailed

try:
    import llama_cpp
    from llama_cpp._ctypes_extensions import load_shared_library
except ModuleNotFoundError as missing:
    if missing.name != "llama_cpp":
        raise
    raise EngineFailed(
        "llama-cpp-python is not installed: `specchat doctor` prints how to install it"
    ) from missing
except (ImportError, OSError, RuntimeError, AttributeError) as failure:  # all that loading raises
    raise EngineFailed(
        f"llama.cpp cannot be loaded ({failure}): `specchat doctor` prints how to repair it"
    ) from failure

api = llama_cpp.llama_cpp
PREFIX, SUFFIX = "libggml-", ".so"
UNSAFE_VARIANTS = frozenset({"sapphirerapids"})
"""Variants that use AMX, which some virtual machines report but do not support. `zen4` has all
other instructions of these CPUs."""


def version() -> str:
    """Return the version of llama-cpp-python, which fixes that of llama.cpp."""
    return str(llama_cpp.__version__)


def folder() -> Path:
    """Return the folder of llama.cpp's libraries."""
    return Path(api._base_path)  # noqa: SLF001  # there is no public name


def own_library() -> ctypes.CDLL:
    """Return llama.cpp's library, with all that it is linked with, except on Windows."""
    library: ctypes.CDLL = api._lib  # noqa: SLF001  # there is no public handle
    return library


@cache
def ggml_library(name: str) -> ctypes.CDLL | None:
    """Return what holds a library of ggml's, None if there is none.

    Where the system searches them, too, that is llama.cpp's own: loading the file of that name may
    load a second copy, which has no backends, because wheels have no links.
    """
    if sys.platform != "win32":
        return own_library()
    with suppress(OSError, RuntimeError):
        loaded: ctypes.CDLL = load_shared_library(name, folder())
        return loaded
    return None


_loaded: dict[str, ctypes.CDLL] = {}
"""The backends that were loaded from files of their own, by name."""


def load_backends() -> None:
    """Load the backends of a build that has them in files; do nothing if it is linked with them.

    They come from the folder of the wheel alone: ggml would also search the folder of the program
    and the current one. ggml's log must have its place: `library.start` calls this once. Raises
    EngineFailed if none fits this CPU.
    """
    own = own_library()
    if sys.platform == "win32" or _count_backends(own):
        return
    files = {path.stem.removeprefix(PREFIX): path for path in folder().glob(f"{PREFIX}*{SUFFIX}")}
    devices = sorted(name for name in files if not name.startswith(("base", "cpu")))
    for name in (*devices, _best_variant(files)):  # llama.cpp expects the CPU last
        if name and _register(own, files[name]):
            _loaded[name.partition("-")[0]] = ctypes.CDLL(str(files[name]))  # the same copy
    if "cpu" not in _loaded:
        raise EngineFailed(
            f"llama.cpp has no backend for this CPU in {folder()}: `specchat doctor` prints how to"
            " build one"
        )


def backend_library(name: str) -> ctypes.CDLL:
    """Return what holds the functions of a backend that is loaded, such as "cpu" or "rpc"."""
    return _loaded.get(name) or ggml_library(f"ggml-{name}") or own_library()


def variant() -> str:
    """Return which of several libraries for CPUs is loaded; empty in a build for one CPU."""
    loaded = _loaded.get("cpu")
    return Path(loaded._name).stem.removeprefix(f"{PREFIX}cpu-") if loaded else ""  # noqa: SLF001


def why_not_loaded() -> dict[str, str]:
    """Return the backends that are here but could not be loaded, each with the system's reason."""
    failed = {}
    for path in sorted(folder().glob(f"{PREFIX}*{SUFFIX}")) if _loaded else ():
        name = path.stem.removeprefix(PREFIX)
        if name not in _loaded and not name.startswith(("base", "cpu")):
            try:
                ctypes.CDLL(str(path))
            except OSError as error:
                failed[name] = str(error)
    return failed


def _count_backends(own: ctypes.CDLL) -> int:
    own.ggml_backend_reg_count.restype = ctypes.c_size_t
    return int(own.ggml_backend_reg_count())


def _register(own: ctypes.CDLL, path: Path) -> bool:
    own.ggml_backend_load.restype = ctypes.c_void_p
    return bool(own.ggml_backend_load(os.fsencode(path)))


def _best_variant(files: dict[str, Path]) -> str:
    """Return the name of the library that uses most of this CPU's instructions; empty if none."""
    scores = {
        name: _score(path)
        for name, path in files.items()
        if name.partition("-")[0] == "cpu" and name.removeprefix("cpu-") not in UNSAFE_VARIANTS
    }
    best = max(scores, key=lambda name: scores[name], default="")
    return best if best and scores[best] else ""


def _score(path: Path) -> int:
    """Return ggml's score of a library for this CPU; 0 if it cannot run here."""
    try:
        library = ctypes.CDLL(str(path))
        function: Any = library.ggml_backend_score
    except OSError:
        return 0
    except AttributeError:  # the only one, which has nothing to compare
        return 1
    score = int(function())
    _close(library)
    return score


def _close(library: ctypes.CDLL) -> None:
    """Unload a library, so that the variants that were not chosen take no memory."""
    if sys.platform != "win32":
        from _ctypes import dlclose

        dlclose(library._handle)  # noqa: SLF001  # ctypes has no public function
