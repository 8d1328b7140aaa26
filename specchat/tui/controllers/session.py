"""The thread that waits for the engine process, so that the screen never does."""

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal, Protocol

from specchat.connection.opening import EngineSource, Load, open_engine
from specchat.decoding.chunk import Chunk, Finish
from specchat.decoding.statistics import Statistics
from specchat.engine.api import Engine, EngineFacts
from specchat.errors import Cancelled, EngineFailed, ServerFailed, SpecchatError
from specchat.formats.chat_message import ChatMessage
from specchat.options.declarations import AUTO_THINK
from specchat.requests.answer_request import ChatRequest
from specchat.requests.progress import Stage
from specchat.requests.prompt_size import PromptSize
from specchat.sharing.process_engine import ProcessEngine
from specchat.system.logs import log_internal_error

Post = Callable[..., object]
"""Schedules a call of a function with its arguments on the UI thread."""

LOG = "chat.log"
PROGRESS_INTERVAL = 0.05
"""Seconds between two progress reports."""
PROMPT_DELAY = 0.3
"""Seconds before the first progress report of a prompt; most prompts are read sooner."""
IDLE_SECONDS = 0.5
"""How often an idle session checks that its engine is alive."""
SECONDS_TO_MEASURE = 2.0
"""After how long without a question the pair's passes are measured, if they are not known."""
SECONDS_TO_KEEP = 10.0
"""After how long without a question what was read is kept on disk."""
LONGEST_ASIDE = 1000
"""Characters of a text beside the conversation after which it is stopped."""
SECONDS_TO_END = 3.0
"""How long an engine may take to end before it is killed."""


@dataclass(slots=True)
class Question:
    """A request to a session for one answer."""

    turns: Sequence[ChatMessage]
    options: dict[str, Any]
    on_steps: Callable[[], None]
    """Called when there are steps to take."""
    on_end: Callable[[Finish | Literal["failed"], Statistics, str], None]
    """Called at the end with the finish, the statistics, and the reason if it failed."""
    explain: Callable[[SpecchatError], str] = str
    """Returns an error as text, with what the user can do about it."""
    is_timed: bool = False
    """Whether the answer is compared with another: the pair is measured before it."""
    is_stopped: bool = False


@dataclass(frozen=True, slots=True)
class Sizing:
    """A request to a session for the size of a prompt; a newer request replaces it."""

    turns: Sequence[ChatMessage]
    options: Mapping[str, Any]
    on_size: Callable[[PromptSize | None], None]
    """Called with the size; with None if it is not known."""


@dataclass(frozen=True, slots=True)
class Aside:
    """A request to a session for a short text beside the conversation; any other one ends it."""

    turns: Sequence[ChatMessage]
    options: Mapping[str, Any]
    on_end: Callable[[str, Finish | Literal["failed"]], None]
    """Called with the text and how it ended: "cancelled" where another request came."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request to a session to go on with another engine, which is made of its own."""

    make: Callable[[Engine], Engine]
    """Called on the session's thread."""
    on_end: Callable[[str], None]
    """Called with "", or with the reason why the engine stays as it is."""


class Listener(Protocol):
    """Gets the events of a session, on the UI thread."""

    def progressed(self, stage: Stage, share: float) -> None:
        """Report the progress of loading or of reading a prompt, from 0 to 1."""

    def loaded(self, facts: EngineFacts) -> None:
        """Report that the pair is loaded."""

    def measured(self, facts: EngineFacts) -> None:
        """Report that more is known of the pair."""

    def lost(self, reason: str) -> None:
        """Report that the pair could not be loaded, or that the engine has ended."""


class Session:
    """A loaded pair with its thread; it answers questions one after the other.

    Until the session is closed, events go to the listener and to the callbacks of the question.
    """

    def __init__(
        self,
        source: EngineSource,
        listener: Listener,
        post: Post,
        load: Load = ProcessEngine,
        before: "Session | None" = None,
    ) -> None:
        """Start loading the pair once the previous session has ended and freed its memory."""
        self._source = source
        self._listener = listener
        self._post = post
        self._load = load
        self._before = before
        self._questions: queue.SimpleQueue[Question | Sizing | Aside | Exchange | None] = (
            queue.SimpleQueue()
        )
        self._last: Question | None = None
        self._has_aside = False
        self._engine: Engine | None = None
        self._is_closing = self._has_failed_server = False
        self._last_progress = 0.0
        self._asked_at, self._has_reported = 0.0, False
        self._steps: list[Chunk] = []
        self._steps_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="engine session", daemon=True)
        self._thread.start()

    @property
    def is_loaded(self) -> bool:
        """Whether the pair is loaded."""
        return self._engine is not None

    def held_bytes(self) -> int:
        """Return the bytes of memory that ending the engine frees, 0 if unknown."""
        return self._engine.held_bytes() if self._engine is not None else 0

    def has_died(self) -> bool:
        """Return True if the engine's process has ended by itself, or its server has failed.

        A server may run another model once it is back.
        """
        if self._has_failed_server:
            return True
        try:
            if self._engine is not None:
                self._engine.check()
        except EngineFailed:
            return True
        return False

    def ask(self, question: Question) -> None:
        """Queue a question; it is answered once the pair is loaded."""
        self._last = question
        self._end_aside()
        self._questions.put(question)

    def size(self, sizing: Sizing) -> None:
        """Queue a request for a prompt's size, which is answered while no question waits."""
        self._end_aside()
        self._questions.put(sizing)

    def write_aside(self, aside: Aside) -> None:
        """Queue a request for a short text, which is written while nothing else is asked for."""
        self._questions.put(aside)

    def exchange(self, exchange: Exchange) -> None:
        """Queue an exchange of the engine, which comes after the questions before it."""
        self._end_aside()
        self._questions.put(exchange)

    def _end_aside(self) -> None:
        """Stop a text that is written beside the conversation."""
        if self._has_aside and self._engine is not None:
            self._engine.stop()

    def stop(self) -> None:
        """Stop the last answer, whether it is waiting or in progress."""
        if self._last is not None:
            self._last.is_stopped = True
        if self._engine is not None:
            self._engine.stop()

    def take_steps(self) -> tuple[list[Chunk], Statistics]:
        """Return the steps that arrived since the last call, and the statistics so far."""
        with self._steps_lock:
            steps, self._steps = self._steps, []
        return steps, self._engine.stats if self._engine else Statistics()

    def close(self) -> None:
        """Ask the engine and its thread to end, without waiting for them."""
        self._is_closing = True
        self.stop()
        self._questions.put(None)

    def wait(self, seconds: float) -> None:
        """Wait for the engine to end; kill it if that takes longer than `seconds`."""
        self._thread.join(seconds)
        if self._thread.is_alive() and self._engine is not None:
            self._engine.kill()
            self._thread.join(seconds)

    def _run(self) -> None:
        if self._before is not None:
            self._before.wait(SECONDS_TO_END)
            self._before = None
        try:
            engine = open_engine(self._source, self._on_progress, self._load)
        except Cancelled:
            return
        except Exception as error:  # noqa: BLE001  # a thread that ends silently is worse
            self._report(self._lost, reason_of(error))
            return
        self._engine = engine
        self._report(self._listener.loaded, engine.facts)
        try:
            while not self._is_closing and (asked := self._next(self._engine)) is not None:
                if isinstance(asked, Exchange):
                    is_left = self._exchange(self._engine, asked)
                else:
                    is_left = self._answer(self._engine, asked)
                if not is_left:
                    return
        finally:
            self._engine.close()

    def _next(self, engine: Engine) -> Question | Exchange | None:
        """Wait for a question; return None if the session is closed or the engine has ended.

        The engine measures the pair meanwhile, until a request comes, and tells sizes.
        """
        since, is_done, is_kept = monotonic(), False, False
        while True:
            try:
                asked = self._questions.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                asked = None
                try:
                    engine.check()
                    idle = monotonic() - since
                    if not is_done and idle >= SECONDS_TO_MEASURE:
                        is_done = True  # what did not work now may after the next answer
                        self._measure(engine, lambda *_: self._questions.empty())
                    if not is_kept and idle >= SECONDS_TO_KEEP:
                        is_kept = True
                        self._keep(engine)
                except EngineFailed as error:
                    self._report(self._lost, str(error))
                    return None
                continue
            if isinstance(asked, Sizing):
                self._size(engine, asked)
            elif isinstance(asked, Aside):
                self._write_aside(engine, asked)
            else:
                return asked
            since, is_done, is_kept = monotonic(), False, False  # it may have interrupted either

    def _exchange(self, engine: Engine, exchange: Exchange) -> bool:
        """Go on with another engine; return False if there is none any more."""
        try:
            self._engine = exchange.make(engine)
        except Exception as error:  # noqa: BLE001  # as above
            self._report(exchange.on_end, reason_of(error))
            if isinstance(error, EngineFailed):
                self._report(self._lost, str(error))
                return False
        else:
            self._report(exchange.on_end, "")
        return True

    def _size(self, engine: Engine, sizing: Sizing) -> None:
        """Report the size of a prompt, unless another request is waiting."""
        if not self._questions.empty():
            return
        try:
            size = engine.size(ChatRequest(messages=sizing.turns, make_room=True, **sizing.options))
        except Exception as error:  # noqa: BLE001  # the next question says what is wrong
            reason_of(error)
            size = None
        self._report(sizing.on_size, size)

    def _write_aside(self, engine: Engine, aside: Aside) -> None:
        """Write a short text, and report it, until another request comes."""
        text, finish = "", "cancelled"
        self._has_aside = True
        try:
            if self._questions.empty():
                for chunk in engine.answer(aside.turns, is_aside=True, **aside.options):
                    text, finish = text + chunk.text, chunk.finish or finish
                    if not self._questions.empty() or len(text) > LONGEST_ASIDE:
                        engine.stop()
        except Exception as error:  # noqa: BLE001  # only a title is missing
            reason_of(error)
            finish = "failed"
        finally:
            self._has_aside = False
        self._report(aside.on_end, text, finish)

    def _keep(self, engine: Engine) -> None:
        """Keep what was read on disk, unless another request comes."""
        self._has_aside = True
        try:
            if self._questions.empty():
                engine.keep()
        except EngineFailed:
            raise
        except SpecchatError as error:  # the conversation is only read again
            reason_of(error)
        finally:
            self._has_aside = False

    def _measure(self, engine: Engine, on_progress: Callable[[Stage, float], bool]) -> None:
        """Let the engine measure the pair while the callback allows it; report what it found."""
        before = engine.facts
        engine.prepare(on_progress)
        if engine.facts != before:
            self._report(self._listener.measured, engine.facts)

    def _answer(self, engine: Engine, question: Question) -> bool:
        """Stream one answer; return False if the engine is gone."""
        try:
            finish = self._stream(engine, question)
        except Exception as error:  # noqa: BLE001  # as above
            reason = reason_of(error, question.explain)
            self._has_failed_server = isinstance(error, ServerFailed)
            self._report(question.on_end, "failed", engine.stats, reason)
            if isinstance(error, EngineFailed):
                self._report(self._lost, str(error))
                return False
        else:
            self._report(question.on_end, finish, engine.stats, "")
        return True

    def _stream(self, engine: Engine, question: Question) -> Finish:
        """Collect the steps of an answer, and announce them unless an announcement is pending."""
        finish: Finish = "cancelled"
        self._asked_at, self._has_reported = monotonic(), False
        if question.is_stopped:
            return finish
        if question.is_timed:
            self._measure(
                engine,
                lambda stage, share: self._on_progress(stage, share) and not question.is_stopped,
            )
            if question.is_stopped:
                return finish
        options = question.options
        if not engine.facts.takes_think(options.get("think", AUTO_THINK)):
            options = {**options, "think": AUTO_THINK}  # the value was chosen for another model
        answer = engine.answer(question.turns, on_progress=self._on_progress, **options)
        for chunk in answer:
            finish = chunk.finish or finish
            if question.is_stopped and not chunk.finish:
                engine.stop()  # the stop came before the answer had begun
            with self._steps_lock:
                self._steps.append(chunk)
                is_first = len(self._steps) == 1
            if is_first:
                self._report(question.on_steps)
        return finish

    def _on_progress(self, stage: Stage, share: float) -> bool:
        now = monotonic()
        if stage == "prompt" and not self._has_reported:
            self._has_reported = share < 1 and now - self._asked_at > PROMPT_DELAY
            if not self._has_reported:
                return not self._is_closing
        if share >= 1 or now - self._last_progress > PROGRESS_INTERVAL:
            self._last_progress = now
            self._report(self._listener.progressed, stage, share)
        return not self._is_closing

    def _report(self, act: Callable[..., None], *facts: object) -> None:
        """Call a function on the UI thread, unless the session is closed first."""
        self._post(lambda: None if self._is_closing else act(*facts))

    def _lost(self, reason: str) -> None:
        """Fail the last answer unless it has ended, then report why the engine is gone."""
        if self._last is not None:
            self._last.on_end("failed", Statistics(), reason)
        self._listener.lost(reason)


def reason_of(error: Exception, explain: Callable[[SpecchatError], str] = str) -> str:
    """Return why something failed; errors other than our own are bugs, and are logged."""
    return explain(error) if isinstance(error, SpecchatError) else log_internal_error(error, LOG)
