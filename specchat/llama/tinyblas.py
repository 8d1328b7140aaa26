"""tinyBLAS, the kernels with which llama.cpp multiplies several columns at once on CPUs.

It sums in another order than the kernels for a single column, so passes over several tokens round
differently. The set-up builds llama.cpp with a variable for the smallest number of columns that use
it (scripts/setup_env/exact_kernels.py), so that prompts keep its speed and verification avoids it.
Other builds lack the variable.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from specchat.llama.device_list import has_gpus
from specchat.llama.library import api, start
from specchat.llama.native_libraries import backend_library
from specchat.options.declarations import LONGEST_DRAFT


def leave_out(longest: int) -> None:
    """Compute passes of up to `longest` tokens without tinyBLAS, in this process.

    The longest length that any engine in the process needs applies.
    """
    columns = _columns()
    if columns is not None:
        columns.value = max(columns.value, longest + 1)


@contextmanager
def left_out(longest: int) -> Iterator[None]:
    """Compute passes of up to `longest` tokens without tinyBLAS temporarily, longer ones with it.

    Only for measurements. It has no effect in a build without the variable.
    """
    columns = _columns() or ctypes.c_int()
    before, columns.value = columns.value, longest + 1
    try:
        yield
    finally:
        columns.value = before


def is_optional() -> bool:
    """Whether this build can compute passes with or without tinyBLAS."""
    return _columns() is not None


def longest_without() -> int:
    """Return the longest pass computed without tinyBLAS: any verification if it is not used."""
    system = api.llama_print_system_info() or b""
    if b"LLAMAFILE = 1" not in system or has_gpus():
        return LONGEST_DRAFT + 1
    columns = _columns()
    return columns.value - 1 if columns is not None else 1


def _columns() -> ctypes.c_int | None:
    """Return the variable; None in a build without it."""
    start()
    try:
        return ctypes.c_int.in_dll(backend_library("cpu"), "specchat_min_columns")
    except ValueError:
        return None
