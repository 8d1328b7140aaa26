"""The engine process: loads a pair and answers one request at a time until its client is gone.

Once the pair is loaded the process sends `EngineFacts`, or the error that prevented it. The numbers
of requests to stop have their own connection, so that they never wait, and so have images whose
tokens are asked for, and the bytes of images, which this process asks for.
"""

import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, Literal, NamedTuple

from specchat import drafter_registry
from specchat.engine.api import Engine, EngineFacts, Loading
from specchat.errors import EngineFailed, SpecchatError
from specchat.formats.template import TEMPLATES
from specchat.gguf import draft_kinds
from specchat.requests.answer_request import AnswerRequest, AnyRequest, ChatRequest
from specchat.requests.answer_update import Update
from specchat.requests.progress import Progress, Stage
from specchat.sharing import image_questions
from specchat.sharing.lent_images import BorrowedImages
from specchat.system.logs import log_internal_error, open_log

LOG = "engine.log"
FORGET, CLOSE = "forget", "close"
"""To the process: forget every text, or exit."""
LOSE_SECONDS = 1.0
"""How long the last message may wait for another one."""
MESSAGE_INTERVAL = 0.03
"""Seconds between two messages of an answer to the client's process. Each takes about 0.3 ms of
both processes, so one per step would slow fast models down. How often an answer is drawn, or sent
on, is its client's decision."""
STOPPED_METHODS = frozenset({"keep", "score"})
"""Methods that take `is_stopped`: a stop may come before they have begun."""


@dataclass(frozen=True, slots=True)
class Decode:
    """To the process: decode an answer, or several together."""

    number: int
    requests: tuple[AnswerRequest, ...]


class Stop(NamedTuple):
    """To the process: stop the request of a number, or pause it."""

    number: int
    is_pause: bool = False


@dataclass(frozen=True, slots=True)
class Prepare:
    """To the process: measure what is not known of the pair."""

    number: int
    only_exactness: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """From the process: measuring has ended, with everything measured or before that.

    `error` is what it failed with, if anything.
    """

    number: int
    facts: EngineFacts
    is_complete: bool
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class MethodCall:
    """To the process: call a method of the engine that returns one value."""

    number: int
    method: Literal["size", "score", "keep"]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Returned:
    """From the process: what a call returned, or the error it failed with."""

    number: int
    value: Any
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class SentUpdate:
    """From the process: what is new of the request with a number, 0 while the pair is loaded.

    `answer` counts those that are decoded together.
    """

    number: int
    update: Update
    answer: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """From the process, its last message: why it ends, in one line that names a worker."""

    line: str


def run(
    connection: Connection,
    stops: Connection,
    images: Connection,
    lent: Connection,
    loading: Loading,
    drafters: Sequence[drafter_registry.DrafterDescriptor],
    kinds: Sequence[draft_kinds.DraftKind],
) -> None:
    """Serve one client; the process exits when this returns.

    `drafters` and `kinds` of drafts are all that the client has registered.
    """
    for drafter in drafters:
        drafter_registry.register(drafter)
    for kind in kinds:
        draft_kinds.register(kind)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client decides what Ctrl+C means
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # otherwise a crash starts a debugger
    send_output_to(LOG)
    borrowed = BorrowedImages(lent)
    host = _Host(connection, stops, borrowed)
    TEMPLATES.start()
    try:
        from specchat.engine.local_engine import LocalEngine

        with LocalEngine(loading, host.report, host.lose) as engine:
            host.send(engine.facts)
            of_images = (images, lambda each: engine.image_tokens(borrowed.of(each)), readable)
            threading.Thread(target=image_questions.answer, args=of_images, daemon=True).start()
            host.serve(engine)
    except Exception as error:  # noqa: BLE001  # the client must receive every error
        host.send(readable(error))


class _Host:
    """Answers requests; a thread receives stops."""

    def __init__(self, connection: Connection, stops: Connection, borrowed: BorrowedImages) -> None:
        self._connection, self._stops, self._borrowed = connection, stops, borrowed
        self._sending = threading.Lock()
        self._stopped = 0
        self._current = 0
        self._gathered: dict[int, Update] = {}
        """The steps of each answer that wait to be sent."""

    def serve(self, engine: Engine) -> None:
        """Answer requests until the client closes the engine."""
        threading.Thread(target=self._listen, args=(engine,), daemon=True).start()
        with suppress(EOFError):  # the client is gone
            while (request := self._connection.recv()) != CLOSE:
                if request == FORGET:
                    engine.forget()
                elif isinstance(request, Prepare):
                    self._prepare(engine, request)
                elif isinstance(request, MethodCall):
                    self._call(engine, request)
                else:
                    self._answer(engine, request)

    def report(self, stage: Stage, share: float) -> bool:
        """Send progress."""
        return self.send(SentUpdate(self._current, Update(progress=Progress(stage, share))))

    def send(self, message: object) -> bool:
        """Send a message; return False if the client is gone."""
        try:
            with self._sending:
                self._connection.send(message)
        except OSError:
            return False
        return True

    def lose(self, line: str) -> None:
        """Send the steps that wait and why the process ends, then end it: from any thread.

        llama.cpp waits for a worker that will not answer, or is about to end the process itself.
        """
        if self._sending.acquire(timeout=LOSE_SECONDS):  # else the client does not read
            with suppress(OSError):
                for answer, update in self._gathered.items():
                    self._connection.send(SentUpdate(self._current, update, answer))
                self._connection.send(Lost(line))
        os._exit(1)

    def _answer(self, engine: Engine, asked: Decode) -> None:
        """Send the updates of answers, several as one if steps are fast."""
        self._current = number = asked.number
        sent_at = 0.0
        requests = [
            replace(self._whole(request), on_progress=partial(self._report_of, answer))
            for answer, request in enumerate(asked.requests)
        ]
        left = set(range(len(requests)))
        try:
            if len(requests) > 1:
                updates = engine.begin_together(requests)
            else:
                updates = ((0, update) for update in engine.begin(requests[0]))
            if number == self._stopped:  # stopped before it began
                engine.stop()
            for answer, update in updates:
                self._gather(answer, update)
                if update.is_over:
                    left.discard(answer)
                is_due = perf_counter() - sent_at >= MESSAGE_INTERVAL
                if is_due or update.is_over or not update.chunks:  # a part of a prompt is next
                    self._send_gathered()
                    sent_at = perf_counter()
        except Exception as error:  # noqa: BLE001  # the client must receive every error
            for answer in left:
                self._gather(answer, Update(error=readable(error)))
            self._send_gathered()

    def _whole(self, request: AnyRequest) -> AnyRequest:
        """Return a request with images whose bytes can be read."""
        return replace(request, images=list(map(self._borrowed.of, request.images)))

    def _report_of(self, answer: int, stage: Stage, share: float) -> bool:
        """Send the progress of one of the answers."""
        return self.send(SentUpdate(self._current, Update(progress=Progress(stage, share)), answer))

    def _gather(self, answer: int, update: Update) -> None:
        """Add an update to those that wait."""
        with self._sending:
            if waiting := self._gathered.get(answer):
                statistics = update.statistics if update.error is None else waiting.statistics
                chunks = (*waiting.chunks, *update.chunks)
                update = replace(update, chunks=chunks, statistics=statistics)
            self._gathered[answer] = update

    def _send_gathered(self) -> None:
        """Send the steps that wait, which `lose` must neither send again nor miss."""
        with self._sending, suppress(OSError):
            for answer, update in list(self._gathered.items()):
                self._connection.send(SentUpdate(self._current, update, answer))
                del self._gathered[answer]

    def _prepare(self, engine: Engine, asked: Prepare) -> None:
        """Measure until that is done, or stopped like an answer."""
        self._current = number = asked.number
        is_complete, error = False, None

        def report(stage: Stage, share: float) -> bool:
            return self.report(stage, share) and self._stopped != number

        try:
            is_complete = self._stopped != number and engine.prepare(
                report, only_exactness=asked.only_exactness
            )
        except Exception as raised:  # noqa: BLE001  # the client must receive every error
            error = readable(raised)
        self.send(Prepared(number, engine.facts, is_complete, error))

    def _call(self, engine: Engine, asked: MethodCall) -> None:
        """Call a method and send what it returns."""
        self._current = asked.number
        value, error = None, None
        keywords = dict(asked.keywords)
        if asked.method in STOPPED_METHODS:
            keywords["is_stopped"] = lambda: self._stopped == asked.number
        try:
            arguments = [
                self._whole(each) if isinstance(each, ChatRequest) else each
                for each in asked.arguments
            ]
            value = getattr(engine, asked.method)(*arguments, **keywords)
        except Exception as raised:  # noqa: BLE001  # the client must receive every error
            error = readable(raised)
        self.send(Returned(asked.number, value, error))

    def _listen(self, engine: Engine) -> None:
        """Stop answers; exit when the client is gone."""
        while True:
            try:
                self._stopped, is_pause = self._stops.recv()
            except Exception:  # noqa: BLE001  # the client is gone
                os._exit(0)
            if self._stopped == self._current:
                (engine.pause if is_pause else engine.stop)()


def readable(error: Exception) -> SpecchatError:
    """Return an error of this package for any error."""
    if isinstance(error, SpecchatError):
        return error
    if isinstance(error, MemoryError):
        return EngineFailed("out of memory: choose a smaller model or --ctx")
    return EngineFailed(log_internal_error(error, LOG))


def send_output_to(log: str) -> None:
    """Redirect this process's output streams, which native code also writes to, to a log."""
    for stream in (sys.stdout, sys.stderr):
        if stream:  # None if the user closed it
            stream.flush()
    descriptor = open_log(log)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
