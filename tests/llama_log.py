"""llama.cpp's log of one test; its log file also holds that of the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from specchat.llama import library as native
from specchat.llama.library import api


@contextmanager
def listening() -> Iterator[list[str]]:
    """Return llama.cpp's log line by line, instead of writing the file."""
    native.start()
    lines: list[str] = []
    callback = api.llama_log_callback(lambda _level, text, _data: lines.append(text.decode()))
    api.llama_log_set(callback, None)
    try:
        yield lines
    finally:
        api.llama_log_set(native._log.callback, None)
