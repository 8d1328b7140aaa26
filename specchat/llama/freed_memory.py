"""What the C library does with freed memory, if it is glibc: other ones decide themselves."""

import ctypes
from contextlib import suppress

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
"""glibc's numbers of these options."""
LARGE_BLOCK = 2**18
"""Bytes."""


def keep() -> None:
    """Keep freed memory, as allocating it again costs page faults.

    Training allocates and frees large tensors all the time; each step took 1.4 times as long
    without this.
    """
    _set({MMAP_MAX: 0, TRIM_THRESHOLD: 2**31 - 1})


def give_back_large_blocks() -> None:
    """Give large blocks back to the system once they are freed.

    Otherwise those of up to 32 MiB are kept after the first such one.
    """
    _set({MMAP_THRESHOLD: LARGE_BLOCK})


def _set(options: dict[int, int]) -> None:
    with suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        for option, value in options.items():
            library.mallopt(option, value)
