"""What Windows says of its memory, which it tells through its own library alone."""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["available_on_windows"]


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of sysinfoapi.h."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("available", ctypes.c_uint64),
        ("total_page_file", ctypes.c_uint64),
        ("available_page_file", ctypes.c_uint64),
        ("total_virtual", ctypes.c_uint64),
        ("available_virtual", ctypes.c_uint64),
        ("available_extended", ctypes.c_uint64),
    )


def available_on_windows(ask: Any = None) -> int | None:
    """Return the bytes that programs may still take; None where Windows does not say.

    `ask` stands in for GlobalMemoryStatusEx.
    """
    status = _MemoryStatus()
    status.length = ctypes.sizeof(status)
    ask = ask or ctypes.windll.kernel32.GlobalMemoryStatusEx  # type: ignore[attr-defined]
    return int(status.available) if ask(ctypes.byref(status)) else None
