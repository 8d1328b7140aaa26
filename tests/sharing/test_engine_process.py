"""The start of the engine's process, at which Ctrl+C may be pressed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time

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
