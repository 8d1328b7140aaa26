"""Memory that this process holds, without what its allocator keeps for later."""

import ctypes
import gc

import pytest

FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _MallInfo(ctypes.Structure):
    """What glibc's `mallinfo2` returns."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in FIELDS.split())


def native_bytes() -> int:
    """Return the bytes that native code has allocated and not freed; skip the test without glibc.

    The resident size would not do: freed memory stays in it, in pieces that a worker of the suite
    fills again or not, so that it may grow by megabytes where nothing is lost.
    """
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):
        pytest.skip("only glibc reports the memory in use")
    mallinfo.restype = _MallInfo
    gc.collect()
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


def num_objects() -> int:
    """Return the number of Python objects that the garbage collector knows."""
    gc.collect()
    return len(gc.get_objects())
