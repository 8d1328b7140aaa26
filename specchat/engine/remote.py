"""The engine in a process of its own, behind the same interface.

A crash in native code ends that process and not this one, and ending it gives all memory back.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import platformdirs

from specchat.chat.template import Message
from specchat.decoding.loop import Chunk
from specchat.decoding.statistics import Statistics
from specchat.engine import worker
from specchat.engine.api import Engine, Loading, Tell
from specchat.engine.messages import (
    Answer,
    Arrived,
    Close,
    Done,
    Failed,
    Progress,
    Ready,
    Stop,
)
from specchat.engine.options import GenerateOptions
from specchat.errors import Cancelled, EngineFailed, ModelWontLoad, SpecchatError

__all__ = ["RemoteEngine"]

TUNABLES = "GLIBC_TUNABLES"
SECONDS_TO_END = 2.0
"""How long a process that was told to end may take before it is killed."""


class RemoteEngine(Engine):
    """A pair loaded into a process of its own, started by `spawn`."""

    def __init__(self, loading: Loading, tell: Tell | None = None) -> None:
        """Start the process and wait until the pair is loaded; nothing stays behind on failure."""
        self.stats = Statistics()
        self._numbers = itertools.count(1)
        self._current = 0
        self._sending = threading.RLock()  # a signal handler may stop while the same thread sends
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=worker.run, args=(theirs, loading, _log()), daemon=True, name="specchat engine"
        )
        with _ignoring_interrupts(), _large_pages():
            self._process.start()
        theirs.close()
        try:
            self._wait_until_ready(tell)
        except BaseException:
            self._kill()
            raise

    @property
    def process_id(self) -> int | None:
        """The process's number, for tests and for the curious."""
        return self._process.pid

    def generate(
        self, prompt: str | Sequence[int], *, tell: Tell | None = None, **options: Any
    ) -> Iterator[Chunk]:
        """Continue a text or token ids."""
        GenerateOptions.of(options)
        return self._answer(prompt, options, tell, is_chat=False)

    def chat(
        self, messages: Sequence[Message], *, tell: Tell | None = None, **options: Any
    ) -> Iterator[Chunk]:
        """Answer a conversation."""
        GenerateOptions.of(options)
        return self._answer(messages, options, tell, is_chat=True)

    def stop(self) -> None:
        """Stop the answer in progress."""
        self._send(Stop(self._current))

    def close(self) -> None:
        """End the process."""
        if self._process.is_alive():
            with suppress(SpecchatError):
                self._send(Stop(self._current))
                self._send(Close())
                self._process.join(SECONDS_TO_END)
        self._kill()

    def _answer(
        self,
        prompt: str | Sequence[int] | Sequence[Message],
        options: dict[str, Any],
        tell: Tell | None,
        *,
        is_chat: bool,
    ) -> Iterator[Chunk]:
        """Ask for an answer and yield what arrives of it."""
        if self._current:
            raise EngineFailed("the engine is busy with another answer: stop that one first")
        number = self._current = next(self._numbers)
        self.stats = Statistics()
        is_over = True
        try:
            self._send(Answer(number, prompt, is_chat, options))
            is_over = False
            for message in self._of_answer(number, tell):
                is_over = not isinstance(message, Arrived)
                if isinstance(message, Failed):
                    raise message.error
                self.stats = message.stats
                if isinstance(message, Arrived):
                    yield message.chunk
        finally:
            if not is_over and self._process.is_alive():
                self._abandon(number)
            self._current = 0

    def _of_answer(self, number: int, tell: Tell | None) -> Iterator[Arrived | Done | Failed]:
        """Yield the messages of one answer, the last of which ends it."""
        while True:
            message = self._receive()
            if isinstance(message, Progress):
                if tell:
                    tell(message.stage, message.share)
            elif isinstance(message, (Arrived, Done, Failed)) and message.number == number:
                yield message
                if not isinstance(message, Arrived):
                    return

    def _abandon(self, number: int) -> None:
        """Stop an answer nobody wants any more, and let its last messages pass."""
        self._send(Stop(number))
        for _ in self._of_answer(number, None):
            pass

    def _wait_until_ready(self, tell: Tell | None) -> None:
        while True:
            message = self._receive()
            if isinstance(message, Ready):
                self.facts = message.facts
                return
            if isinstance(message, Failed):
                raise message.error
            if not isinstance(message, Progress) or tell is None:
                continue
            if tell(message.stage, message.share) is False:
                raise Cancelled("loading was stopped")

    def _send(self, message: object) -> None:
        try:
            with self._sending:
                self._connection.send(message)
        except OSError:
            raise self._death() from None

    def _receive(self) -> object:
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            raise self._death() from None

    def _death(self) -> SpecchatError:
        """Say how the process ended."""
        self._process.join(SECONDS_TO_END)
        code = self._process.exitcode or 0
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        advice = f"{_log()} has llama.cpp's last words; ask again, or try --gpu-layers 0"
        if not hasattr(self, "facts"):
            return ModelWontLoad(f"the engine process ended {how} while loading: {advice}")
        return EngineFailed(f"the engine process ended {how}: {advice}")

    def _kill(self) -> None:
        """End the process whatever it is doing."""
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._connection.close()


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Let a process started meanwhile ignore Ctrl+C from its first moment: it means this one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _large_pages() -> Iterator[None]:
    """Let the C library of a process started meanwhile ask for large pages.

    Weights repacked for the CPU are read from end to end for every token: with large pages about
    4 % faster, as measured on a 1.1B model. glibc takes this wish from its environment alone, and
    only when a process starts; other C libraries ignore it.
    """
    before = os.environ.get(TUNABLES)
    if sys.platform == "linux" and before is None:
        os.environ[TUNABLES] = "glibc.malloc.hugetlb=1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(TUNABLES, None)


def _log() -> str:
    """Return the file that takes what the process's native code prints."""
    folder = Path(platformdirs.user_log_path("specchat", appauthor=False))
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return ""
    return str(folder / "engine.log")
