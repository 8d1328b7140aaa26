"""The chat as a client of the engine: what comes of its questions reaches the UI thread."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, Literal

from specchat.connection.opening import EngineSource, LoadPair, open_engine
from specchat.decoding.chunk import Finish
from specchat.engine.api import EngineFacts
from specchat.errors import ServerFailed, SpecchatError
from specchat.formats.chat_message import ChatMessage
from specchat.options.declarations import AUTO_THINK
from specchat.requests.answer_request import AnswerRequest, ChatRequest, request_for
from specchat.requests.answer_update import Update
from specchat.requests.progress import Progress, Stage
from specchat.requests.prompt_size import PromptSize
from specchat.sharing.engine_events import EngineEvents
from specchat.sharing.loading import load_in_process
from specchat.sharing.shared_engine import SECONDS_TO_END, SharedEngine
from specchat.sharing.tickets import Ticket

__all__ = ["SECONDS_TO_END", "Aside", "Post", "Question", "Session", "Sizing"]

Post = Callable[..., object]
"""Schedules a call of a function with its arguments on the UI thread."""

CLIENT = "the chat"
"""What the chat is called among the clients that take turns."""
LOG = "chat.log"
PROGRESS_INTERVAL = 0.05
"""Seconds between two reports of loading to the UI thread: there is one for each tensor."""
PROMPT_DELAY = 0.3
"""Seconds before the progress of a prompt is shown; most prompts are read sooner."""
LONGEST_ASIDE = 1000
"""Characters of a text beside the conversation after which it is stopped."""


@dataclass(slots=True)
class Question:
    """A request for one answer, and the ticket with which it is followed."""

    turns: Sequence[ChatMessage]
    options: Mapping[str, Any]
    on_change: Callable[[], object]
    """Called on the UI thread when there is something to take."""
    is_timed: bool = False
    """Whether the answer is compared with another: no other answer interrupts it."""
    measures_first: bool = False
    """Whether the pair is measured before it."""
    ticket: Ticket | None = None
    asked_at: float = 0.0
    shown: Progress | None = None
    """What is shown of the work before the first step."""

    def request(self, facts: EngineFacts) -> AnswerRequest:
        """Return the request to an engine of these facts. Raises InvalidOption."""
        options = self.options
        if not facts.takes_think(options.get("think", AUTO_THINK)):
            options = {**options, "think": AUTO_THINK}  # the value was chosen for another model
        return request_for(self.turns, has_template=facts.has_chat_template, **options)

    def take(self, on_progress: Callable[[Stage, float], object]) -> Update:
        """Return what is new of the answer, and show the progress of what precedes it."""
        if self.ticket is None:
            return Update()
        update = self.ticket.take()
        progress, shown = update.progress, self.shown
        if progress is not None:
            is_late = monotonic() - self.asked_at > PROMPT_DELAY or progress.stage != "prompt"
            if shown is not None or (progress.share < 1 and is_late):
                on_progress(*progress)
                self.shown = progress if progress.share < 1 else None
        elif shown is not None:
            on_progress(shown.stage, 1.0)
            self.shown = None
        return update


@dataclass(frozen=True, slots=True)
class Sizing:
    """A request for the size of a prompt; a newer one replaces it."""

    turns: Sequence[ChatMessage]
    options: Mapping[str, Any]
    on_size: Callable[[PromptSize | None], None]
    """Called with the size; with None if it is not known."""

    def request(self, _: EngineFacts) -> ChatRequest:
        """Return the request to an engine."""
        return ChatRequest(messages=self.turns, make_room=True, **self.options)


@dataclass(slots=True)
class Aside:
    """A request for a short text beside the conversation; any other one ends it."""

    turns: Sequence[ChatMessage]
    options: Mapping[str, Any]
    on_end: Callable[[str, Finish | Literal["failed"]], None]
    """Called with the text and how it ended: "cancelled" where another request came."""
    ticket: Ticket | None = field(default=None, init=False)
    _text: str = field(default="", init=False)
    _is_over: bool = field(default=False, init=False)

    def request(self, facts: EngineFacts) -> AnswerRequest:
        """Return the request to an engine of these facts. Raises InvalidOption."""
        has_template = facts.has_chat_template
        return request_for(self.turns, has_template=has_template, is_aside=True, **self.options)

    def take(self) -> None:
        """Take what is new of the text, and stop it where it is too long."""
        if self.ticket is None or self._is_over:
            return
        update = self.ticket.take()
        self._is_over = update.is_over
        self._text += "".join(chunk.text for chunk in update.chunks)
        if update.is_over:
            self.on_end(self._text, update.finish or "failed")
        elif len(self._text) > LONGEST_ASIDE:
            self.ticket.cancel()


class Session:
    """The chat's use of one loaded pair, which may have other clients too.

    Until the session is closed, events go to the listener and to the callbacks of the question, on
    the UI thread.
    """

    def __init__(
        self,
        source: EngineSource,
        listener: EngineEvents,
        post: Post,
        load: LoadPair = load_in_process,
        before: "Session | None" = None,
    ) -> None:
        """Start loading the pair once the previous session has ended and freed its memory."""
        self._listener, self._post = listener, post
        self._question: Question | None = None
        self._is_closing = False
        self._reported_at = 0.0
        self.engine: SharedEngine = SharedEngine(
            lambda on_progress: open_engine(source, on_progress, load),
            events=self,
            before=before.engine if before else None,
            reloads=False,
            log=LOG,
        )

    @property
    def is_loaded(self) -> bool:
        """Whether the pair is loaded."""
        return self.engine.is_loaded

    def held_bytes(self) -> int:
        """Return the bytes of memory that ending the engine frees, 0 if unknown."""
        return self.engine.held_bytes()

    def has_died(self) -> bool:
        """Return True if the engine has ended by itself, or its server has failed.

        A server may run another model once it is back.
        """
        return self.engine.has_ended() or isinstance(self.engine.last_error, ServerFailed)

    def ask(self, question: Question) -> None:
        """Queue a question; it is answered once the pair is loaded, and no size is told before."""
        self.engine.forget_size()
        self._question, question.asked_at = question, monotonic()
        on_change = partial(self._report, question.on_change)
        ticket = Ticket(
            question.request,
            CLIENT,
            on_change,
            is_timed=question.is_timed,
            measures_first=question.measures_first,
        )
        question.ticket = ticket
        try:
            self.engine.submit(ticket)
        except SpecchatError as error:  # it has just ended
            ticket.end(None, error)

    def size(self, sizing: Sizing) -> None:
        """Ask for a prompt's size, which is told while nothing else is asked for."""
        with suppress(SpecchatError):  # it has ended, as the listener hears
            self.engine.size(sizing.request, partial(self._report, sizing.on_size))

    def write_aside(self, aside: Aside) -> None:
        """Ask for a short text, which is written while nothing else is asked for."""
        aside.ticket = Ticket(aside.request, CLIENT, partial(self._report, aside.take))
        with suppress(SpecchatError):  # as above
            self.engine.submit_aside(aside.ticket)

    def stop(self) -> None:
        """Stop the last answer, whether it is waiting or in progress."""
        if self._question is not None and self._question.ticket is not None:
            self._question.ticket.cancel()

    def close(self) -> None:
        """Ask the engine and its thread to end, without waiting for them."""
        self._is_closing = True
        self.engine.end()

    def wait(self, seconds: float) -> None:
        """Wait for the engine to end; kill it if that takes longer than `seconds`."""
        self.engine.wait(seconds)

    # --- events of the engine, on the thread that owns it

    def progressed(self, stage: Stage, share: float) -> None:
        """Report the progress of loading, unless the last report was just before."""
        now = monotonic()
        if share >= 1 or now - self._reported_at > PROGRESS_INTERVAL:
            self._reported_at = now
            self._report(self._listener.progressed, stage, share)

    def loaded(self, facts: EngineFacts) -> None:
        """Report that the pair is loaded."""
        self._report(self._listener.loaded, facts)

    def measured(self, facts: EngineFacts) -> None:
        """Report that more is known of the pair."""
        self._report(self._listener.measured, facts)

    def lost(self, error: SpecchatError) -> None:
        """Report why the engine is gone."""
        self._report(self._listener.lost, error)

    def _report(self, act: Callable[..., object], *facts: object) -> None:
        """Call a function on the UI thread, unless the session is closed first."""
        self._post(lambda: None if self._is_closing else act(*facts))
