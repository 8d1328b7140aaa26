"""An encoder is stopped in the middle of its graph: by a flag, and by Ctrl+C in this process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from specchat.errors import Cancelled
from specchat.llama.encoder_stop import NODES_AT_ONCE, EncoderStop
from specchat.llama.library import AbortFlag

LONGEST = 10_000_000
"""The nodes of a graph that would take minutes."""


def compute(stop: EncoderStop, num_nodes: int, on_result: Callable[[int], object]) -> int:
    """Do with the callback what ggml_backend_sched does; return 0, as it does when stopped."""
    for node in range(num_nodes):
        if stop.callback(0, True, None):
            on_result(node)
            if not stop.callback(0, False, None):
                break
    return 0


def test_an_encoder_that_nobody_stops_ends() -> None:
    """The flag is looked at after every few nodes."""
    seen: list[int] = []
    stop = EncoderStop(AbortFlag())
    assert stop.run(lambda: compute(stop, 100, seen.append)) == 0
    assert seen == [NODES_AT_ONCE - 1, 2 * NODES_AT_ONCE - 1, 3 * NODES_AT_ONCE - 1]


def test_a_flag_stops_it() -> None:
    """What it had computed by then is not taken for its result; it can be run again."""
    abort, seen = AbortFlag(), list[int]()
    stop = EncoderStop(abort)

    def note(node: int) -> None:
        seen.append(node)
        abort.set()

    with pytest.raises(Cancelled):
        stop.run(lambda: compute(stop, LONGEST, note))
    assert len(seen) == 1
    abort.clear()
    assert stop.run(lambda: compute(stop, 10, note)) == 0


@pytest.mark.skipif(os.name == "nt", reason="signals are sent in another way")
def test_an_interrupt_stops_it_and_is_not_lost() -> None:
    """In a script of one process Ctrl+C comes to the thread that waits, at any place."""
    stop = EncoderStop(AbortFlag())
    ended = threading.Event()

    def encode() -> int:
        os.kill(os.getpid(), signal.SIGINT)
        result = compute(stop, LONGEST, lambda _: None)
        ended.set()
        return result

    with pytest.raises(KeyboardInterrupt):
        stop.run(encode)
    assert ended.is_set()


@pytest.mark.skipif(os.name == "nt", reason="signals are sent in another way")
def test_a_second_interrupt_does_not_leave_it_running() -> None:
    """It comes while the first one is still waited for: memory in use would be freed after it."""
    stop = EncoderStop(AbortFlag())
    is_waited_for, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def interrupt_twice(signum: int, frame: object) -> None:
        del signum, frame
        if is_waited_for.is_set():
            may_end.set()
        is_waited_for.set()
        raise KeyboardInterrupt

    def encode() -> int:
        os.kill(os.getpid(), signal.SIGINT)
        assert is_waited_for.wait(60)
        os.kill(os.getpid(), signal.SIGINT)
        assert may_end.wait(60)
        threading.Event().wait(0.5)  # as an encoder does that is in the middle of its nodes
        ended.set()
        return 0

    before = signal.signal(signal.SIGINT, interrupt_twice)
    try:
        with pytest.raises(KeyboardInterrupt):
            stop.run(encode)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.is_set()


def test_an_encoder_that_cannot_be_begun_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system gives no further thread, nothing is waited for."""

    def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("specchat.llama.encoder_stop.start_new_thread", refused)
    with pytest.raises(RuntimeError, match="new thread"):
        EncoderStop(AbortFlag()).run(lambda: 0)
