"""The choice of kernels that give passes over several tokens the bits of passes over one.

On CPUs, tinyBLAS takes over products of two columns and more, and adds up in another order. The
set-up builds llama.cpp with a variable for where it begins (scripts/setup_env/exact_kernels.py), so
that prompts still have its speed and verification does not need it. Other builds have none.
"""

import ctypes

from specchat.llama.library import api
from specchat.options.declarations import LONGEST_DRAFT

MIN_COLUMNS: dict[str, int] = {"on": LONGEST_DRAFT + 2, "auto": 4, "off": 2}
"""Where tinyBLAS begins. Without it passes over 2 tokens cost nothing more at most depths, but over
4 and more after 1500 tokens 5 to 40 %; `specchat help speculation` has the figures."""


def choose_kernels(exact: str) -> None:
    """Set where tinyBLAS begins, in this process; keep what another engine in it needs."""
    columns = _columns()
    if columns is not None:
        columns.value = max(columns.value, MIN_COLUMNS[exact])


def longest_without_tinyblas() -> int:
    """Return the longest pass that tinyBLAS has no part in, LONGEST_DRAFT + 1 without it."""
    system = api.llama_print_system_info() or b""
    if b"LLAMAFILE = 1" not in system or api.llama_supports_gpu_offload():
        return LONGEST_DRAFT + 1
    columns = _columns()
    return columns.value - 1 if columns is not None else 1


def _columns() -> ctypes.c_int | None:
    """Return the variable; None in a build without it."""
    try:
        return ctypes.c_int.in_dll(api._lib, "specchat_min_columns")  # noqa: SLF001  # the one handle there is
    except ValueError:
        return None
