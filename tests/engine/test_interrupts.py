"""Ctrl+C while an engine process is being started."""

from __future__ import annotations

import multiprocessing
import multiprocessing.context
import os
import signal
from typing import Any

import pytest

from conftest import WriteModel
from specchat import Engine


@pytest.mark.slow
def test_an_interrupt_while_a_process_starts_is_not_lost(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt arrives once the process has started, and no process is left."""
    process: Any = multiprocessing.context.SpawnProcess
    start = process.start

    def interrupted(self: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        start(self)

    before = multiprocessing.active_children()
    monkeypatch.setattr(process, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Engine.load(tiny("llama"), process=True, ctx=128, threads=1)

    assert set(multiprocessing.active_children()) <= set(before)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
