"""llama.cpp's library for images (libmtmd): found and loaded with the first image, never for text.

Most wheels come with it. Where it was left out to build faster, it is built beside the others.
"""

import os
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from specchat.errors import InvalidOption
from specchat.images.picture import why_not_decoded
from specchat.llama import library, native_libraries
from specchat.system.clone import is_clone
from specchat.system.private_files import FOLDERS

VARIABLE = "MTMD_CPP_LIB"
"""Where llama-cpp-python looks for the library instead of in its own folder."""
PATTERN = "*mtmd*"
REINSTALL = "reinstall llama-cpp-python with CMAKE_ARGS=-DLLAVA_BUILD=ON"
WAIT_FOR_BUILD = (
    "the clone builds what reads them with the first image: try again once that is done; if it"
    " failed, .venv/setup/setup.log says why"
)
FAILURES = (ImportError, OSError, RuntimeError, AttributeError)


def built_beside() -> Path:
    """Return the folder of a library that was built for this llama.cpp by itself."""
    return FOLDERS.user_cache_path / "mtmd" / library.version()


def path() -> Path | None:
    """Return the file of the library, None without one; it may still fail to load."""
    given = os.environ.get(VARIABLE)
    folders = [Path(given)] if given else [native_libraries.folder(), built_beside()]
    return next((found for folder in folders for found in sorted(folder.glob(PATTERN))), None)


@cache
def why_not() -> str:
    """Return why images cannot be read here; "" if they can, or once the clone is set up for them.

    Nothing is loaded to know it: a library that is there may still fail to load.
    """
    if is_clone():
        return ""
    missing = "" if path() else f"llama.cpp was built without its library for images: {REINSTALL}"
    return why_not_decoded() or missing


@cache
def load() -> ModuleType:
    """Return llama-cpp-python's functions of the library, whose log joins llama.cpp's.

    Raises InvalidOption if it cannot be loaded: a text can be answered all the same.
    """
    if VARIABLE not in os.environ and (found := path()):
        os.environ[VARIABLE] = str(found.parent)
    try:
        mtmd: Any = import_module("llama_cpp.mtmd_cpp")
    except FAILURES as failure:
        advice = WAIT_FOR_BUILD if is_clone() else REINSTALL
        reason = _first_line(failure)
        raise InvalidOption(f"images cannot be read here ({reason}): {advice}") from failure
    library.start()
    mtmd.mtmd_helper_log_set(library.log_callback(), None)
    module: ModuleType = mtmd
    return module


def _first_line(failure: BaseException) -> str:
    return (str(failure).splitlines() or [type(failure).__name__])[0]
