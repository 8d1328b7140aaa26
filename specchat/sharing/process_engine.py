"""The engine in a process of its own, behind the same interface.

A crash in native code ends that process only, and ending it frees all memory.
"""

import multiprocessing
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from time import monotonic
from typing import Any, TypeGuard

from specchat import drafter_registry
from specchat.decoding.chunk import Alternative
from specchat.engine.api import Engine, EngineFacts, Loading
from specchat.errors import EngineFailed, SpecchatError, WorkerUnavailable
from specchat.gguf import draft_kinds
from specchat.images.image import Image
from specchat.planning.host_resources import private_bytes
from specchat.requests.answer_request import AnswerRequest, ChatRequest
from specchat.requests.answer_update import Update
from specchat.requests.progress import (
    Progress,
    ProgressCallback,
    ProgressReport,
    Stage,
    stopping_report,
)
from specchat.requests.prompt_size import PromptSize
from specchat.sharing import engine_host
from specchat.sharing.engine_process import start_process
from specchat.sharing.process_death import explain_death
from specchat.system.logs import log_size
from specchat.wording import duration_text

JOIN_TIMEOUT_SECONDS = 2.0
"""A process that takes longer than this to exit is killed."""
POLL_SECONDS = 0.25
"""Seconds between two calls of the progress callback while the process reports nothing."""
WAIT_SECONDS = 5.0
"""A process with workers that reports nothing for longer probably waits for one of them."""
GIVE_UP_SECONDS = 600.0
"""After this it is ended: no batch and no tensor takes that long, but a device that hangs does."""
STOP_POLL_SECONDS = 0.03
"""The same while it measures or writes to the disk, which a question may stop."""


class ProcessEngine(Engine):
    """A pair loaded into a process of its own, started by `spawn`."""

    def __init__(self, loading: Loading, on_progress: ProgressCallback | None = None) -> None:
        """Start the process and wait until the pair is loaded; clean up on failure."""
        self._loading = loading
        self._current = 0  # the request in progress
        self._latest = 0  # the last request, which may not have begun yet
        self._open: set[int] = set()  # the answers of the request that are not over
        self._is_prepared = False
        self._is_killed = False  # by this process, not by the system
        self._lost = ""  # why the process ended, if a worker is lost
        self._heard_at = monotonic()
        self._sending = threading.Lock()
        self._log_begins = log_size(engine_host.LOG)
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        stopped, self._stops = context.Pipe(duplex=False)
        self._images, shown = context.Pipe()
        self._showing = threading.Lock()
        self._process = context.Process(
            target=engine_host.run,
            args=(
                theirs,
                stopped,
                shown,
                loading,
                tuple(drafter_registry.DRAFTERS.values()),
                tuple(draft_kinds.KINDS.values()),
            ),
            daemon=True,
            name="specchat engine",
        )
        try:
            start_process(self._process)
            theirs.close()
            stopped.close()
            shown.close()
            self._wait_until_ready(stopping_report(on_progress))
        except BaseException:
            self._kill()
            raise

    def begin(self, request: AnswerRequest) -> Generator[Update]:
        """Check a request; later stops apply to it."""
        self._require_idle()
        return _only(self.begin_together([request]))

    def begin_together(self, requests: Sequence[AnswerRequest]) -> Generator[tuple[int, Update]]:
        """Check requests; later stops apply to all of them."""
        self._require_idle()
        self._latest += 1
        sent = tuple([replace(request, on_progress=None) for request in requests])
        reports = [request.on_progress or (lambda *_: None) for request in requests]
        return self._answers(engine_host.Decode(self._latest, sent), reports)

    def stop(self) -> None:
        """Stop the answer in progress."""
        with suppress(OSError):  # a process that is gone has stopped
            self._stops.send(engine_host.Stop(self._current or self._latest))

    def pause(self) -> None:
        """Stop the answers in progress so that little is lost of them."""
        with suppress(OSError):
            self._stops.send(engine_host.Stop(self._current or self._latest, is_pause=True))

    def prepare(
        self, on_progress: ProgressCallback | None = None, *, only_exactness: bool = False
    ) -> bool:
        """Let the process measure; the callback is also called while it reports nothing."""
        self._require_idle()
        if self._is_prepared:
            return True
        self._latest += 1
        self._is_busy, self._current = True, self._latest
        is_over = True
        try:
            self._send(engine_host.Prepare(self._latest, only_exactness))
            is_over = False
            message = self._wait_until_prepared(self._latest, on_progress)
            is_over, self.facts = True, message.facts
            if message.error is not None:
                raise message.error
            self._is_prepared = message.is_complete and not only_exactness
        finally:
            self._end_request(is_over=is_over)
        return message.is_complete

    def _wait_until_prepared(
        self, number: int, on_progress: ProgressCallback | None
    ) -> engine_host.Prepared:
        latest, is_stopped = Progress("measuring", 0.0), False
        while True:
            message = self._receive() if self._has_message(STOP_POLL_SECONDS) else None
            if isinstance(message, engine_host.Prepared) and message.number == number:
                return message
            latest = _progress_in(message) or latest
            stage = self._stage_now(latest.stage)
            is_wanted = on_progress is None or on_progress(stage, latest.share)
            if is_wanted is False and not is_stopped:
                is_stopped = True
                self.stop()

    def size(self, request: ChatRequest) -> PromptSize | None:
        """Ask the process how much of the context a conversation would take."""
        size: PromptSize | None = self._call("size", replace(request, on_progress=None))
        return size

    def tokenize(self, text: str, *, special: bool = True, begins: bool = True) -> list[int]:
        """Return the tokens of a text."""
        tokens: list[int] = self._call("tokenize", text, special=special, begins=begins)
        return tokens

    def detokenize(self, tokens: Sequence[int]) -> list[bytes]:
        """Return the text of each token."""
        texts: list[bytes] = self._call("detokenize", tokens)
        return texts

    def render(self, request: ChatRequest) -> list[int]:
        """Return the tokens of a conversation's prompt."""
        tokens: list[int] = self._call("render", replace(request, on_progress=None))
        return tokens

    def image_tokens(self, image: Image) -> list[int]:
        """Return an image as tokens: the process makes them beside what else it does."""
        self._require_open()
        try:
            with self._showing:
                self._images.send(image)
                tokens, error = self._images.recv()
        except (EOFError, OSError):
            raise EngineFailed("the engine ended while it read an image: try again") from None
        if error is not None:
            raise error
        found: list[int] = tokens
        return found

    def score(self, tokens: Sequence[int], count: int) -> list[tuple[Alternative, ...]]:
        """Return the likely tokens in the place of each of these."""
        found: list[tuple[Alternative, ...]] = self._call("score", tokens, count)
        return found

    def keep(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Let the process keep what was read on disk."""
        if self._loading.cache_disk:
            self._call("keep", is_stopped=is_stopped)

    def _call(
        self,
        method: Any,
        *arguments: Any,
        is_stopped: Callable[[], bool] | None = None,
        **keywords: Any,
    ) -> Any:
        """Call a method in the process; return what it returns there, or raise its error.

        The process ends it early once `is_stopped`.
        """
        self._require_idle()
        self._latest += 1
        self._is_busy, self._current = True, self._latest
        try:
            self._send(engine_host.MethodCall(self._latest, method, arguments, keywords))
            while True:
                if not self._has_message(STOP_POLL_SECONDS if is_stopped else POLL_SECONDS):
                    if is_stopped is not None and is_stopped():
                        is_stopped = None
                        self.stop()
                    continue
                message = self._receive()
                if isinstance(message, engine_host.Returned) and message.number == self._latest:
                    break
        finally:
            self._is_busy, self._current = False, 0
        if message.error is not None:
            raise message.error
        return message.value

    def forget(self) -> None:
        """Forget every text before the next answer starts."""
        self._require_idle()
        self._send(engine_host.FORGET)

    def close(self) -> None:
        """Stop the answer in progress and end the process."""
        self.stop()
        if self._process.is_alive() and self._sending.acquire(timeout=JOIN_TIMEOUT_SECONDS):
            with suppress(OSError):
                self._connection.send(engine_host.CLOSE)
            self._sending.release()
            self._process.join(JOIN_TIMEOUT_SECONDS)
        self._kill()

    def has_ended(self) -> bool:
        """Return True if the process has ended."""
        return not self._process.is_alive()

    def check(self) -> None:
        """Raise EngineFailed if the process has ended, whose last message may say why."""
        if self.has_ended():
            raise self._death()

    def held_bytes(self) -> int:
        """Return the memory of the process."""
        return private_bytes(self._process.pid or 0)

    def kill(self) -> None:
        """Kill the process; an answer in progress raises EngineFailed."""
        self._is_killed = True
        self._process.kill()

    def _answers(
        self, request: engine_host.Decode, reports: Sequence[ProgressCallback]
    ) -> Generator[tuple[int, Update]]:
        self._require_idle()
        self._is_busy, self._current = True, request.number
        self._open = set[int]()
        latest: dict[int, Progress] = {}  # of each prompt, while it is read
        is_waiting = False
        try:
            self._send(request)
            self._open = set(range(len(reports)))
            while self._open:
                if (latest or self._loading.workers) and not self._has_message(POLL_SECONDS):
                    stage = self._stage_now("prompt")
                    is_waiting = stage == "worker" and not latest
                    for answer in self._open if is_waiting else latest:
                        share = latest[answer].share if answer in latest else 0.0
                        reports[answer](stage, share)
                    continue
                message = self._receive()
                if is_waiting:
                    for answer in self._open:
                        reports[answer]("worker", 1.0)
                    is_waiting = False
                if not self._is_of(message, request.number):
                    continue
                answer, update = message.answer, message.update
                if update.progress is not None:
                    reports[answer](*update.progress)
                    latest.pop(answer, None)
                    if update.progress.share < 1:
                        latest[answer] = update.progress
                    continue
                latest.pop(answer, None)
                if update.is_over:
                    self._open.discard(answer)
                yield answer, update
        finally:
            self._end_request(is_over=not self._open)

    @staticmethod
    def _is_of(message: object, number: int) -> TypeGuard[engine_host.SentUpdate]:
        """Whether a message is about the request of this number."""
        return isinstance(message, engine_host.SentUpdate) and message.number == number

    def _end_request(self, *, is_over: bool) -> None:
        """End the request in progress, at once if it is not over."""
        try:
            if not is_over and self._process.is_alive():
                self._abandon(self._current)
        finally:
            self._is_busy, self._current = False, 0

    def _abandon(self, number: int) -> None:
        """Stop a request that is no longer wanted, and discard its last messages.

        If that takes too long the process is killed, which the next request reports.
        """
        self.stop()
        deadline = monotonic() + JOIN_TIMEOUT_SECONDS
        while self._connection.poll(max(0.0, deadline - monotonic())):
            message = self._receive()
            is_end = isinstance(message, engine_host.Prepared) and message.number == number
            if self._is_of(message, number) and message.update.is_over:
                self._open.discard(message.answer)
                is_end = not self._open
            if is_end:
                return
        self._kill()

    def _wait_until_ready(self, report: ProgressReport) -> None:
        latest = Progress("target", 0.0)
        while True:  # while nothing arrives, the latest progress is reported again: it may hang
            message = self._receive() if self._has_message(POLL_SECONDS) else None
            if isinstance(message, EngineFacts):
                self.facts = message
                return
            if isinstance(message, SpecchatError):
                raise message
            latest = _progress_in(message) or latest
            report(self._stage_now(latest.stage), latest.share)

    def _has_message(self, seconds: float) -> bool:
        """Wait some seconds for a message; return whether there is one.

        Raises EngineFailed or WorkerUnavailable if a worker is waited for in vain.
        """
        if self._connection.poll(seconds):
            self._heard_at = monotonic()
            return True
        if self._loading.workers and monotonic() - self._heard_at > GIVE_UP_SECONDS:
            names = " or ".join(self._loading.workers)
            self._lost = (
                f"the worker {names} stopped answering: nothing came for"
                f" {duration_text(GIVE_UP_SECONDS)}; restart it there, or go on without --worker"
            )
            self._process.kill()
            raise self._death()
        return False

    def _stage_now(self, stage: Stage) -> Stage:
        """Return a stage of work, or "worker" if the process has been silent in it for long."""
        is_long = monotonic() - self._heard_at > WAIT_SECONDS
        return "worker" if self._loading.workers and is_long else stage

    def _send(self, message: object) -> None:
        self._heard_at = monotonic()
        try:
            with self._sending:
                self._connection.send(message)
        except OSError:
            raise self._death() from None
        except KeyboardInterrupt:  # half a message may be sent: no other can follow
            self._kill()
            raise

    def _receive(self) -> object:
        try:
            message: object = self._connection.recv()
        except (EOFError, OSError):
            raise self._death() from None
        if isinstance(message, engine_host.Lost):
            self._lost = message.line
            raise self._death()
        return message

    def _death(self) -> SpecchatError:
        self._require_open()
        self._process.join(JOIN_TIMEOUT_SECONDS)
        if self._lost or self._was_lost():
            error = EngineFailed if hasattr(self, "facts") else WorkerUnavailable
            return error(self._lost)
        return explain_death(
            self._loading,
            self._process.exitcode,
            self._log_begins,
            is_loaded=hasattr(self, "facts"),
            is_killed=self._is_killed,
        )

    def _was_lost(self) -> bool:
        """Look for the process's last message among those that were not read."""
        with suppress(EOFError, OSError):
            while self._connection.poll():
                message = self._connection.recv()
                if isinstance(message, engine_host.Lost):
                    self._lost = message.line
        return bool(self._lost)

    def _kill(self) -> None:
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._is_closed = True
        self._connection.close()
        self._stops.close()
        self._images.close()


def _only(updates: Generator[tuple[int, Update]]) -> Generator[Update]:
    """Yield the updates of a single answer; raise the error that it fails with."""
    with closing(updates):
        for _, update in updates:
            if update.chunks or update.finish:
                yield replace(update, error=None)
            if update.error is not None:
                raise update.error


def try_out(loading: Loading, on_progress: ProgressCallback | None = None) -> None:
    """Decode in another process, where a crash of llama.cpp is only an error.

    The next engine need not measure the pair again; pacing learns nothing from fixed draft lengths.
    """
    with ProcessEngine(loading, on_progress) as engine:
        engine.prepare(on_progress)
        for _ in engine.generate([1], max_tokens=8, draft_length=3, ignore_end=True):
            pass


def _progress_in(message: object) -> Progress | None:
    """Return the progress that a message reports, if any."""
    return message.update.progress if isinstance(message, engine_host.SentUpdate) else None
