"""The folder of memories on disk: what models read of conversations, so that it is not read again.

They hold the conversations' tokens. So when messages are deleted all of them are, and what an
engine read before that is not written any more.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

from specchat.system.private_files import FOLDERS, write_private

SUFFIX, HALF = ".memory", ".half"
MARK = "deleted"
"""The file that says when all memories were deleted last."""


def memory_folder() -> Path:
    """Return the folder, which may not exist."""
    return FOLDERS.user_cache_path / "memories"


def delete_memories() -> None:
    """Delete all memories on disk."""
    folder = memory_folder()
    if not os.path.isdir(folder):
        return
    for path in [*folder.glob(f"*{SUFFIX}"), *folder.glob(f"*{HALF}")]:
        with suppress(OSError):
            path.unlink()
    with suppress(OSError):
        write_private(folder / MARK, str(time.time()).encode())


def deleted_at() -> float:
    """Return when all memories were deleted last, in seconds since 1970; 0.0 if never."""
    with suppress(OSError, ValueError):
        return float((memory_folder() / MARK).read_text("utf-8"))
    return 0.0
