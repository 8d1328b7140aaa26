"""What clients ask of an engine, and what of it the thread that owns the engine does next."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

from specchat.decoding.chunk import Finish
from specchat.engine.api import Engine, EngineFacts
from specchat.errors import EngineFailed, SpecchatError
from specchat.requests.answer_request import ChatRequest
from specchat.requests.prompt_size import PromptSize
from specchat.sharing.owned_engine import OwnedEngine
from specchat.sharing.owner_tasks import OwnerCall, SizeQuestion
from specchat.sharing.ticket_line import TicketLine
from specchat.sharing.tickets import Ticket

Result = TypeVar("Result")


class AskedWork:
    """Answers, calls and sizes that clients ask for from any thread, and their end.

    All of it changes under one lock. Nothing more may be asked for once it `_is_closing`, because
    the engine was `_lost` if that says why.
    """

    def __init__(self, owned: OwnedEngine, most_waiting: int) -> None:
        """Begin with nothing; what is given up stops the engine."""
        self._owned = owned
        self._line = TicketLine(most_waiting)
        self._calls: deque[OwnerCall] = deque()
        self._was_call = False
        self._is_closing = False
        self._lost: SpecchatError | None = None
        self.last_error: SpecchatError | None = None
        """What the last answer that failed has failed with."""
        self._lock = threading.Condition()
        self._sizing: SizeQuestion | None = None
        self._number = 0
        self._current: Sequence[Ticket] = ()
        self._measured_for: Ticket | None = None

    # --- clients, from any thread

    @property
    def facts(self) -> EngineFacts:
        """The facts about the engine, once it is loaded. Raises EngineFailed before."""
        if (facts := self._owned.facts) is None:
            raise EngineFailed("the engine is not loaded")
        return facts

    @property
    def num_waiting(self) -> int:
        """The requests that have not begun."""
        return len(self._line.waiting)

    @property
    def num_running(self) -> int:
        """The answers that have begun and take turns."""
        return len(self._line.active)

    def submit(self, ticket: Ticket) -> None:
        """Queue a request. Raises QueueFull, or EngineFailed once closed."""
        with self._lock:
            self._require_open()
            self._take_over(ticket)
            self._line.add(ticket)
            self._wake()

    def submit_aside(self, ticket: Ticket) -> None:
        """Queue a request that is answered while nothing else is asked for, which ends it."""
        with self._lock:
            self._require_open()
            self._take_over(ticket)
            ticket.may_be_interrupted = False
            if self._has_requests():
                ticket.end("cancelled")
            else:
                self._wake()
                self._line.aside = ticket

    def size(
        self,
        asked: Callable[[EngineFacts], ChatRequest],
        on_size: Callable[[PromptSize | None], None],
    ) -> None:
        """Report how much of the context a conversation would take, once nothing else is asked for.

        None if that is not known, and first where something else is asked for. A newer question of
        this kind replaces one that waits.
        """
        with self._lock:
            self._require_open()
            self._sizing = SizeQuestion(asked, on_size)
            self._wake()

    def forget_size(self) -> None:
        """Drop a question for a size that waits."""
        with self._lock:
            self._sizing = None

    def call(self, act: Callable[[Engine], Result]) -> Result:
        """Do something with the engine between two answers' turns, and wait for the result."""
        made = OwnerCall(act)
        with self._lock:
            self._require_open()
            self._calls.append(made)
            self._wake()
        return cast(Result, made.result())

    def cancel_all(self) -> None:
        """End all answers."""
        with self._lock:
            for ticket in self._line:
                ticket.is_cancelled = True
            self._owned.stop()
            self._lock.notify_all()

    def _take_over(self, ticket: Ticket) -> None:
        self._number += 1
        ticket.number = self._number
        ticket.on_cancel = lambda: self._cancel(ticket)  # type: ignore[method-assign]

    def _has_requests(self) -> bool:
        """Return True if anything but a text beside the conversations is asked for."""
        return bool(not self._line.is_empty or self._calls or self._sizing)

    def _wake(self) -> None:
        """End what is only done while nothing is asked for, and wake the thread."""
        if self._sizing is not None and (self._calls or not self._line.is_empty):
            self._sizing.postpone()
        if (aside := self._line.aside) is not None:
            self._line.aside = None
            aside.is_cancelled = True
            if aside not in self._current:
                aside.end("cancelled")
            else:
                self._owned.stop()
        self._lock.notify_all()

    def _require_open(self) -> None:
        if self._is_closing:
            raise self._lost or EngineFailed("the engine is shutting down")

    def _cancel(self, ticket: Ticket) -> None:
        """Stop an answer in progress; one that has no turn now leaves its place at once.

        So does one that waits while what another needs to know is measured.
        """
        with self._lock:
            others = [each for each in self._current if each is not ticket]
            if ticket not in self._current or self._measured_for in others:
                self._line.drop_cancelled(in_turn=others)
            elif others:  # the others go on
                self._owned.pause()
            else:
                self._owned.stop()
            self._lock.notify_all()

    # --- the owning thread

    def _next(
        self, seconds: float
    ) -> tuple[OwnerCall | None, Sequence[Ticket], SizeQuestion | None]:
        """Return what to do next: a call first, then the answers whose turn it is.

        After a call the answers have a turn first: those that follow hold them up no longer.
        """
        with self._lock:
            if not self._is_wanted_now():
                self._lock.wait(seconds)
            self._line.drop_cancelled()
            self._line.let_in(self.facts)
            self._was_call = bool(self._calls and not (self._was_call and self._line.active))
            if self._was_call:
                return self._calls.popleft(), (), None
            if self._line.active:
                return None, self._line.group(self.facts.at_once), None
            sizing, self._sizing = self._sizing, None
            aside = None if sizing else self._line.aside
            return None, [aside] if aside else (), sizing

    def _is_wanted_now(self) -> bool:
        """Return True if something is asked for while the thread is idle."""
        with self._lock:
            return bool(self._has_requests() or self._line.aside or self._is_closing)

    def _is_wanted(self) -> bool:
        """Return True if another request waits for the engine, and an answer may be interrupted."""
        with self._lock:
            has_others = self._line.has_others(self._current)
            return self.facts.takes_turns and bool(has_others or self._calls)

    def _may_join(self) -> bool:
        """Return True if a request waits that could be decoded together with those in turn.

        The user of this program waits for no end of a turn.
        """
        with self._lock:
            is_room = len(self._current) < self.facts.at_once
            return (is_room and self._line.could_join(self._current)) or self._line.is_urgent

    def _begin_turn(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Begin a turn of those that are not given up; return them."""
        with self._lock:
            self._current = left = [each for each in tickets if not each.is_cancelled]
            for ticket in left:
                ticket.begin_turn()
        return left

    def _end_turn(self, left: Sequence[Ticket]) -> None:
        """End a turn; the answers that are left go to the end of the line."""
        with self._lock:
            for ticket in left:
                self._line.rotate(ticket)
            self._current = ()

    @contextmanager
    def _measuring_for(self, ticket: Ticket) -> Iterator[None]:
        """Measure for an answer meanwhile: no other one that is given up stops that."""
        with self._lock:
            self._measured_for = ticket
        try:
            yield
        finally:
            with self._lock:
                self._measured_for = None

    def _wait_for_work(self, seconds: float) -> None:
        """Wait until something is asked for, or some time has passed."""
        with self._lock:
            self._lock.wait_for(self._is_wanted_now, seconds)

    def _close_line(self, error: SpecchatError | None = None) -> bool:
        """Take nothing more, from any thread; return whether that was so before.

        With an error the engine was lost, unless it was closed before.
        """
        with self._lock:
            was_closing, self._is_closing = self._is_closing, True
            if not was_closing:
                self._lost = error
            self._lock.notify_all()
        return was_closing

    def _end(
        self, ticket: Ticket, finish: Finish | None, error: SpecchatError | None = None
    ) -> None:
        """End an answer, with an error if it failed."""
        with self._lock:
            self._line.remove(ticket)
            self.last_error = error or self.last_error
        ticket.end(finish, error)

    def _end_all(self, error: SpecchatError, *, is_lost: bool) -> None:
        """End what is asked for; under the lock, so that nothing is added beside it."""
        with self._lock:
            for ticket in self._line:
                ticket.end(None, error) if is_lost else ticket.end("cancelled")
            if self._sizing is not None:
                self._sizing.postpone()
        self._fail_calls(error)

    def _fail_calls(self, error: SpecchatError) -> None:
        """End the calls that wait."""
        with self._lock:
            while self._calls:
                self._calls.popleft().fail(error)
