"""The engine in a process of its own, behind the same interface.

A crash in native code ends that process only, and ending it frees all memory.
"""

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeGuard, TypeVar

from specchat.decoding.chunk import Alternative
from specchat.engine.api import Engine, EngineFacts, Loading
from specchat.errors import SpecchatError
from specchat.images.image import Image
from specchat.requests.answer_request import AnswerRequest, ChatRequest, sendable
from specchat.requests.answer_update import Update
from specchat.requests.progress import (
    Progress,
    ProgressCallback,
    ProgressReport,
    stopping_report,
)
from specchat.requests.prompt_size import PromptSize
from specchat.sharing import engine_host
from specchat.sharing.process_link import ProcessLink

Item = TypeVar("Item")
POLL_SECONDS = 0.25
"""Seconds between two calls of the progress callback while the process reports nothing."""
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
        self._process = ProcessLink(loading)
        try:
            self._wait_until_ready(stopping_report(on_progress))
        except BaseException:
            self._process.end()
            raise

    def begin(self, request: AnswerRequest) -> Generator[Update]:
        """Check a request; later stops apply to it."""
        self._require_idle()
        return _only(self.begin_together([request]))

    def begin_together(self, requests: Sequence[AnswerRequest]) -> Generator[tuple[int, Update]]:
        """Check requests; later stops apply to all of them."""
        self._require_idle()
        self._latest += 1
        sent = engine_host.Decode(self._latest, tuple(map(sendable, requests)))
        reports = [request.on_progress or (lambda *_: None) for request in requests]
        images = [image for request in requests for image in request.images]
        return self._lending(images, self._answers(sent, reports))

    def stop(self) -> None:
        """Stop the answer in progress."""
        self._process.stop(self._current or self._latest)

    def pause(self) -> None:
        """Stop the answers in progress so that little is lost of them."""
        self._process.stop(self._current or self._latest, is_pause=True)

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
            self._process.send(engine_host.Prepare(self._latest, only_exactness))
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
            message = self._process.message_within(STOP_POLL_SECONDS)
            if isinstance(message, engine_host.Prepared) and message.number == number:
                return message
            latest = _progress_in(message) or latest
            stage = self._process.stage_now(latest.stage)
            is_wanted = on_progress is None or on_progress(stage, latest.share)
            if is_wanted is False and not is_stopped:
                is_stopped = True
                self.stop()

    def size(self, request: ChatRequest) -> PromptSize | None:
        """Ask the process how much of the context a conversation would take."""
        with self._process.lent.during(request.images):
            size: PromptSize | None = self._call("size", sendable(request))
        return size

    def image_tokens(self, image: Image) -> list[int]:
        """Return an image as tokens: the process makes them beside what else it does."""
        self._require_open()
        with self._process.lent.during([image]):
            return self._process.images.tokens_of(image)

    def score(
        self,
        tokens: Sequence[int],
        count: int,
        *,
        first: int = 0,
        seconds: float = math.inf,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> list[tuple[Alternative, ...]]:
        """Return the likely tokens in the place of each of these, or of some from `first` on."""
        found: list[tuple[Alternative, ...]] = self._call(
            "score", tokens, count, first=first, seconds=seconds, is_stopped=is_stopped
        )
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
            self._process.send(engine_host.MethodCall(self._latest, method, arguments, keywords))
            while True:
                seconds = STOP_POLL_SECONDS if is_stopped else POLL_SECONDS
                message = self._process.message_within(seconds)
                if isinstance(message, engine_host.Returned) and message.number == self._latest:
                    break
                if message is None and is_stopped is not None and is_stopped():
                    is_stopped = None
                    self.stop()
        finally:
            self._is_busy, self._current = False, 0
        if message.error is not None:
            raise message.error
        return message.value

    def forget(self) -> None:
        """Forget every text before the next answer starts."""
        self._require_idle()
        self._process.send(engine_host.FORGET)

    def close(self) -> None:
        """Stop the answer in progress and end the process."""
        self.stop()
        self._process.close()

    def has_ended(self) -> bool:
        """Return True if the process has ended."""
        return not self._process.is_alive()

    def check(self) -> None:
        """Raise EngineFailed if the process has ended, whose last message may say why."""
        if self.has_ended():
            raise self._process.death()

    def held_bytes(self) -> int:
        """Return the memory of the process."""
        return self._process.held_bytes()

    def kill(self) -> None:
        """Kill the process; an answer in progress raises EngineFailed."""
        self._process.kill()

    def _require_open(self) -> None:
        self._process.require_open()

    def _answers(
        self, request: engine_host.Decode, reports: Sequence[ProgressCallback]
    ) -> Generator[tuple[int, Update]]:
        self._require_idle()
        self._is_busy, self._current = True, request.number
        self._open = set[int]()
        latest: dict[int, Progress] = {}  # of each prompt, while it is read
        is_waiting = False
        try:
            self._process.send(request)
            self._open = set(range(len(reports)))
            while self._open:
                message = self._process.message_within(POLL_SECONDS)
                if message is None:
                    stage = self._process.stage_now("prompt")
                    is_waiting = stage == "worker" and not latest
                    for answer in self._open if is_waiting else latest:
                        share = latest[answer].share if answer in latest else 0.0
                        reports[answer](stage, share)
                    continue
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

    def _lending(self, images: Sequence[Image], updates: Generator[Item]) -> Generator[Item]:
        with self._process.lent.during(images):
            yield from updates

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
        for message in self._process.last_messages():
            is_end = isinstance(message, engine_host.Prepared) and message.number == number
            if self._is_of(message, number) and message.update.is_over:
                self._open.discard(message.answer)
                is_end = not self._open
            if is_end:
                return
        self._process.end()

    def _wait_until_ready(self, report: ProgressReport) -> None:
        latest = Progress("target", 0.0)
        while True:  # while nothing arrives, the latest progress is reported again: it may hang
            message = self._process.message_within(POLL_SECONDS)
            if isinstance(message, EngineFacts):
                self.facts = message
                return
            if isinstance(message, SpecchatError):
                raise message
            latest = _progress_in(message) or latest
            report(self._process.stage_now(latest.stage), latest.share)


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
