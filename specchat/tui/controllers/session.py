"""The thread that waits for the engine process, so that the screen never does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from specchat.chat.chat_message import ChatMessage
from specchat.decoding.chunk import Chunk, Finish
from specchat.decoding.statistics import Statistics
from specchat.engine.api import Engine, Loading, Stage
from specchat.errors import Cancelled, EngineFailed, SpecchatError
from specchat.logs import log_internal_error
from specchat.tui.events import (
    AnswerEnded,
    AnswerFailed,
    EngineLost,
    EngineProgressed,
    EngineReady,
    SessionEvent,
    StepsArrived,
)

Load = Callable[[Loading, Callable[[Stage, float], bool]], Engine]
"""Loads a pair and reports progress; it gives up when the callback returns False."""

LOG = "chat.log"
PROGRESS_INTERVAL = 0.05
"""Seconds between two progress reports."""
PROMPT_DELAY = 0.3
"""Seconds before the first progress report of a prompt: most are read sooner and would flicker."""
SECONDS_TO_END = 3.0
"""How long an engine may take to end before it is killed."""


def load_in_process(loading: Loading, on_progress: Callable[[Stage, float], bool]) -> Engine:
    """Load a pair into a process of its own."""
    from specchat.engine.remote_engine import RemoteEngine

    return RemoteEngine(loading, on_progress)


@dataclass(frozen=True, slots=True)
class _Question:
    number: int
    turns: Sequence[ChatMessage]
    options: dict[str, Any]


class Session:
    """One loaded pair, its thread, and the answers asked of it one after the other.

    Everything that happens is posted as an event that names this session.
    """

    def __init__(
        self,
        loading: Loading,
        post: Callable[[SessionEvent], object],
        load: Load = load_in_process,
        before: Session | None = None,
    ) -> None:
        """Start loading the pair, once the session before it has ended and freed its memory."""
        self._loading = loading
        self._post = post
        self._load = load
        self._before = before
        self._questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._engine: Engine | None = None
        self._stopped = 0
        self._is_closing = False
        self._last_progress = 0.0
        self._asked, self._has_reported = 0.0, False
        self._steps: list[Chunk] = []
        self._has_steps = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="engine session", daemon=True)
        self._thread.start()

    @property
    def is_loaded(self) -> bool:
        """Whether the pair is loaded."""
        return self._engine is not None

    def ask(self, number: int, turns: Sequence[ChatMessage], options: dict[str, Any]) -> None:
        """Ask for an answer, at once or when the pair is loaded."""
        self._questions.put(_Question(number, turns, options))

    def stop(self, number: int) -> None:
        """Stop an answer, asked for or in progress."""
        self._stopped = max(self._stopped, number)
        if self._engine is not None:
            self._engine.stop()

    def take_steps(self) -> tuple[list[Chunk], Statistics]:
        """Return the steps that arrived since the last call, and the statistics so far."""
        with self._has_steps:
            steps, self._steps = self._steps, []
        return steps, self._engine.stats if self._engine else Statistics()

    def close(self) -> None:
        """End the engine; its thread follows."""
        self._is_closing = True
        self._stopped = 1 << 62
        if self._engine is not None:
            self._engine.stop()
        self._questions.put(None)

    def wait(self, seconds: float) -> None:
        """Wait until the engine has ended; kill it if it takes longer than that."""
        self._thread.join(seconds)
        if self._thread.is_alive() and self._engine is not None:
            self._engine.kill()
            self._thread.join(seconds)

    def _run(self) -> None:
        if self._before is not None:
            self._before.wait(SECONDS_TO_END)
            self._before = None
        try:
            engine = self._load(self._loading, self._on_progress)
        except Cancelled:
            return
        except Exception as error:  # noqa: BLE001  # a thread that ends silently is worse
            self._report(EngineLost(self, unexpected(error)))
            return
        self._engine = engine
        with engine:
            self._report(EngineReady(self, engine.facts))
            while not self._is_closing and (question := self._questions.get()) is not None:
                if not self._answer(engine, question):
                    return

    def _answer(self, engine: Engine, question: _Question) -> bool:
        """Stream one answer; return False if the engine is gone."""
        try:
            finish = self._stream(engine, question)
        except Exception as error:  # noqa: BLE001  # as above
            self._report(AnswerFailed(self, question.number, unexpected(error)))
            if isinstance(error, EngineFailed):
                self._report(EngineLost(self, str(error)))
                return False
        else:
            self._report(AnswerEnded(self, question.number, finish, engine.stats))
        return True

    def _stream(self, engine: Engine, question: _Question) -> Finish:
        """Collect the steps of an answer, and announce them unless earlier ones still wait."""
        finish: Finish = "cancelled"
        self._asked, self._has_reported = monotonic(), False
        if question.number <= self._stopped:
            return finish
        begin = engine.chat if engine.facts.has_chat_template else _continue_text(engine)
        for chunk in begin(question.turns, on_progress=self._on_progress, **question.options):
            finish = chunk.finish or finish
            if question.number <= self._stopped and not chunk.finish:
                engine.stop()  # asked for before there was an answer to stop
            with self._has_steps:
                self._steps.append(chunk)
                is_first = len(self._steps) == 1
            if is_first:
                self._report(StepsArrived(self, question.number))
        return finish

    def _on_progress(self, stage: Stage, share: float) -> bool:
        now = monotonic()
        if stage == "prompt" and not self._has_reported:
            self._has_reported = share < 1 and now - self._asked > PROMPT_DELAY
            if not self._has_reported:
                return not self._is_closing
        if share >= 1 or now - self._last_progress > PROGRESS_INTERVAL:
            self._last_progress = now
            self._report(EngineProgressed(self, stage, share))
        return not self._is_closing

    def _report(self, event: SessionEvent) -> None:
        if not self._is_closing:
            self._post(event)


def unexpected(error: Exception) -> str:
    """Return why something failed; anything but our own errors is a bug."""
    if isinstance(error, SpecchatError):
        return str(error)
    return log_internal_error(error, LOG)


def _continue_text(engine: Engine) -> Callable[..., Any]:
    """Return how to answer without a chat template: by continuing the text."""

    def begin(turns: Sequence[ChatMessage], **options: Any) -> Any:
        options.pop("make_room", None)
        return engine.generate("\n\n".join(turn["content"] for turn in turns), **options)

    return begin
