"""The start of the engine's process, at which Ctrl+C may be pressed."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
import threading
import time
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import pytest

from specchat.sharing.engine_process import start_process


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
@pytest.mark.parametrize("in_thread", [True, False])
def test_ctrl_c_does_not_reach_a_process_that_starts(*, in_thread: bool) -> None:
    """It belongs to this process or to an editor in its terminal, whichever thread starts it."""
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    if in_thread:
        thread = threading.Thread(target=start_process, args=(process,))
        thread.start()
        thread.join()
    else:
        start_process(process)
    try:
        assert process.pid
        os.kill(process.pid, signal.SIGINT)
        process.join(1)
        assert process.is_alive()
    finally:
        process.kill()
        process.join()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def put_folder(found: SimpleQueue[str]) -> None:
    """Say where this process is."""
    found.put(str(Path.cwd()))


@pytest.mark.skipif(sys.platform == "win32", reason="the working directory cannot be deleted")
@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_process_starts_in_a_folder_that_is_of_no_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_deleted: bool
) -> None:
    """It was deleted, or cannot be entered any more; the new process begins at the root."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    if is_deleted:
        folder.rmdir()
    else:

        def refuse(_: str) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(os, "chdir", refuse)
    context = multiprocessing.get_context("spawn")
    found = context.SimpleQueue()
    process = context.Process(target=put_folder, args=(found,))
    start_process(process)
    process.join()
    assert (process.exitcode, found.empty()) == (0, False)
    assert found.get() == os.sep
    monkeypatch.undo()
    assert Path.cwd() != Path(os.sep)
