"""The engine process: loads a pair and answers, one request at a time, until its client is gone."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from time import perf_counter

from specchat import drafters
from specchat.chat.template import prepare
from specchat.decoding.chunk import Chunk
from specchat.engine.api import Engine, Loading, Stage
from specchat.engine.protocol import (
    Answer,
    Arrived,
    Close,
    Done,
    Failed,
    Forget,
    Progress,
    Ready,
    Stop,
)
from specchat.errors import EngineFailed, SpecchatError
from specchat.logs import open_log

__all__ = ["run"]

LOG = "engine.log"
LEAST_INTERVAL = 0.008
"""Seconds between two messages of an answer: telling of every step would slow quick models down."""


def run(
    connection: Connection, loading: Loading, known: Sequence[drafters.DrafterDescriptor]
) -> None:
    """Serve one client, with the drafters it knows; the process ends when this returns."""
    for each in known:
        drafters.register(each)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client decides what Ctrl+C means
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # else a crash starts a debugger first
    _send_output_to(LOG)
    worker = _Worker(connection)
    prepare()
    try:
        from specchat.engine.local_engine import LocalEngine

        with LocalEngine(loading, worker.report) as engine:
            connection.send(Ready(engine.facts))
            worker.serve(engine)
    except Exception as error:  # noqa: BLE001  # whatever it is, the client must hear of it
        worker.send(Failed(0, _told(error)))


class _Worker:
    """Answers requests; a thread of its own listens, so that an answer can be stopped."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._requests: queue.SimpleQueue[Answer | Forget | Close] = queue.SimpleQueue()
        self._stopped = 0
        self._current = 0
        self._engine: Engine | None = None

    def serve(self, engine: Engine) -> None:
        """Answer until told to close."""
        self._engine = engine
        threading.Thread(target=self._listen, daemon=True).start()
        while not isinstance(request := self._requests.get(), Close):
            if isinstance(request, Answer):
                self._answer(engine, request)
            else:
                engine.forget()

    def report(self, stage: Stage, share: float) -> bool:
        """Pass progress on."""
        return self.send(Progress(stage, share))

    def send(self, message: object) -> bool:
        """Send a message; False when the client is gone."""
        try:
            self._connection.send(message)
        except OSError:
            return False
        return True

    def _answer(self, engine: Engine, request: Answer) -> None:
        self._current = request.number
        begin = engine.chat if request.is_chat else engine.generate
        try:
            chunks = begin(request.prompt, on_progress=self.report, **request.options)  # type: ignore[arg-type]
            if request.number == self._stopped:  # asked to before it began
                engine.stop()
            if self._send_steps(engine, request.number, chunks):
                self.send(Done(request.number, engine.stats))
        except Exception as error:  # noqa: BLE001  # whatever it is, the client must hear of it
            self.send(Failed(request.number, _told(error)))

    def _send_steps(self, engine: Engine, number: int, chunks: Iterator[Chunk]) -> bool:
        """Send steps as they come, those of a very quick model some together; False if in vain."""
        waiting: list[Chunk] = []
        last = 0.0
        for chunk in chunks:
            waiting.append(chunk)
            if chunk.finish or perf_counter() - last >= LEAST_INTERVAL:
                if not self.send(Arrived(number, tuple(waiting), engine.stats)):
                    return False
                waiting, last = [], perf_counter()
        return not waiting or self.send(Arrived(number, tuple(waiting), engine.stats))

    def _listen(self) -> None:
        """Take messages as they come; when the client is gone, go too."""
        while True:
            try:
                message = self._connection.recv()
            except Exception:  # noqa: BLE001  # gone, or no longer understood
                os._exit(0)
            if isinstance(message, Stop):
                self._stopped = message.number
                if message.number == self._current and self._engine:
                    self._engine.stop()
            else:
                self._requests.put(message)


def _told(error: Exception) -> SpecchatError:
    """Turn whatever went wrong into an error that a user can read."""
    if isinstance(error, SpecchatError):
        return error
    if isinstance(error, MemoryError):
        return EngineFailed("no memory left: choose a smaller model or --ctx")
    return EngineFailed(f"the engine failed ({type(error).__name__}: {error})")


def _send_output_to(log: str) -> None:
    """Send what native code writes to this process's output streams to the log."""
    for stream in (sys.stdout, sys.stderr):
        if stream:  # a user may have closed it
            stream.flush()
    descriptor = open_log(log)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
