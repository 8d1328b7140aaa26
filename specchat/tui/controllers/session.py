"""The thread that waits for the engine process, so that the screen never does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from textual.message import Message

from specchat.chat.turn import Turn
from specchat.decoding.chunk import Chunk, Finish
from specchat.engine.api import Engine, Loading, Stage
from specchat.errors import Cancelled, EngineFailed, SpecchatError
from specchat.tui.events import (
    AnswerEnded,
    AnswerFailed,
    EngineLost,
    EngineProgressed,
    EngineReady,
    StepsArrived,
)

__all__ = ["SECONDS_TO_END", "Load", "Session", "load_in_process"]

Load = Callable[[Loading, Callable[[Stage, float], bool]], Engine]
"""Loads a pair, telling how far it is; told False it gives up."""

PROGRESS_INTERVAL, PATIENCE = 0.05, 0.3
"""Seconds between two words of progress, and before the first one of a prompt that is read: most
are read sooner, and nobody sees what flickers by."""
SECONDS_TO_END = 3.0
"""How long an engine that was told to end may take before it is killed."""
SHOWING = 0.2
"""Seconds that a question waits at most for the screen to show that the pair is loaded: drawing it
would take its time from a quick answer."""
QUICK_PASS, QUICK_WAIT = 0.004, 0.15
"""With passes this quick the first words are told this much later: drawing them takes longer than
many such answers, and takes it from the engine."""


def load_in_process(loading: Loading, on_progress: Callable[[Stage, float], bool]) -> Engine:
    """Load a pair into a process of its own."""
    from specchat.engine.remote_engine import RemoteEngine

    return RemoteEngine(loading, on_progress)


@dataclass(frozen=True, slots=True)
class _Question:
    number: int
    turns: Sequence[Turn]
    options: dict[str, Any]


class Session:
    """One loaded pair, its thread, and the answers asked of it one after the other.

    Everything that happens is posted; nothing here touches a widget.
    """

    def __init__(
        self,
        loading: Loading,
        post: Callable[[Message], object],
        load: Load = load_in_process,
        before: Session | None = None,
    ) -> None:
        """Begin to load the pair, once the session before it has ended and given memory back."""
        self.interval = 0.05
        """Steps are told of together, so many seconds after the last ones at the least."""
        self._loading = loading
        self._post = post
        self._load = load
        self._before = before
        self._questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._engine: Engine | None = None
        self._stopped = 0
        self._is_closing = False
        self._last_progress = 0.0
        self._asked, self._has_told = 0.0, False
        self._shown = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine session", daemon=True)
        self._thread.start()

    @property
    def is_loaded(self) -> bool:
        """Whether the pair is loaded."""
        return self._engine is not None

    def ask(self, number: int, turns: Sequence[Turn], options: dict[str, Any]) -> None:
        """Ask for an answer, at once or when the pair is loaded."""
        self._questions.put(_Question(number, turns, options))

    def stop(self, number: int) -> None:
        """Stop an answer, asked for or in progress."""
        self._stopped = max(self._stopped, number)
        if self._engine is not None:
            self._engine.stop()

    def go_on(self) -> None:
        """Hear that the screen shows the loaded pair."""
        self._shown.set()

    def close(self) -> None:
        """End the engine; its thread follows."""
        self._is_closing = True
        self._stopped = 1 << 62
        if self._engine is not None:
            self._engine.stop()
        self._questions.put(None)
        self._shown.set()

    def wait(self, seconds: float) -> None:
        """Wait until the engine has ended; one that has not after so many seconds is killed."""
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
        except SpecchatError as error:
            self._tell_of(EngineLost(str(error), self))
            return
        except Exception as error:  # noqa: BLE001  # a thread that ends without a word is worse
            self._tell_of(EngineLost(_unexpected(error), self))
            return
        self._engine = engine
        with engine:
            self._tell_of(EngineReady(engine.facts))
            self._shown.wait(SHOWING)
            while not self._is_closing and (question := self._questions.get()) is not None:
                if not self._answer(engine, question):
                    return

    def _answer(self, engine: Engine, question: _Question) -> bool:
        """ProgressCallback an answer step by step; False where the engine is gone."""
        try:
            finish = self._stream(engine, question)
        except EngineFailed as error:
            self._tell_of(AnswerFailed(question.number, str(error)))
            self._tell_of(EngineLost(str(error), self))
            return False
        except SpecchatError as error:
            self._tell_of(AnswerFailed(question.number, str(error)))
        except Exception as error:  # noqa: BLE001  # as above
            self._tell_of(AnswerFailed(question.number, _unexpected(error)))
        else:
            self._tell_of(AnswerEnded(question.number, finish, engine.stats))
        return True

    def _stream(self, engine: Engine, question: _Question) -> Finish:
        """ProgressCallback the steps of an answer, several together where they come quickly."""
        waiting: list[Chunk] = []
        finish: Finish = "cancelled"
        due: float | None = None
        self._asked, self._has_told = monotonic(), False
        if question.number <= self._stopped:
            return finish
        begin = engine.chat if engine.facts.has_chat_template else _continue_text(engine)
        try:
            for chunk in begin(question.turns, on_progress=self._on_progress, **question.options):
                waiting.append(chunk)
                finish = chunk.finish or finish
                if question.number <= self._stopped and not chunk.finish:
                    engine.stop()  # asked for before there was an answer to stop
                due = monotonic() + _first_wait(engine) if due is None else due
                if monotonic() >= due:
                    self._tell_of(StepsArrived(question.number, tuple(waiting), engine.stats))
                    waiting, due = [], monotonic() + self.interval
        finally:  # what came before an engine died is kept too
            if waiting:
                self._tell_of(StepsArrived(question.number, tuple(waiting), engine.stats))
        return finish

    def _on_progress(self, stage: Stage, share: float) -> bool:
        now = monotonic()
        if stage == "prompt" and not self._has_told:
            self._has_told = share < 1 and now - self._asked > PATIENCE
            if not self._has_told:
                return not self._is_closing
        if share >= 1 or now - self._last_progress > PROGRESS_INTERVAL:
            self._last_progress = now
            self._tell_of(EngineProgressed(stage, share))
        return not self._is_closing

    def _tell_of(self, message: Message) -> None:
        if not self._is_closing:
            self._post(message)


def _first_wait(engine: Engine) -> float:
    """Return the seconds to wait with the first words of an answer."""
    return QUICK_WAIT if engine.stats.pass_costs.get(1, QUICK_PASS) < QUICK_PASS else 0.0


def _unexpected(error: Exception) -> str:
    return f"an error of specchat's own ({type(error).__name__}: {error})"


def _continue_text(engine: Engine) -> Callable[..., Any]:
    """Return how to answer where a model has no chat template: by continuing the text."""

    def begin(turns: Sequence[Turn], **options: Any) -> Any:
        options.pop("make_room", None)
        return engine.generate("\n\n".join(turn["content"] for turn in turns), **options)

    return begin
