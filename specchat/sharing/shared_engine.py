"""One engine for several clients: a thread owns it, and requests take turns.

Clients are served in turn, however many requests each has waiting. An answer that takes long lets
others in: it is stopped between two steps and goes on later from the tokens it has, so with a seed
its text is the same as without the others. The engine keeps what it read of each, so nothing is
read twice. If the engine dies, its answers fail and it is loaded again.
"""

import gc
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar, cast

from specchat.decoding.chunk import Finish
from specchat.engine.api import Engine, EngineFacts
from specchat.errors import Cancelled, EngineFailed, SpecchatError
from specchat.requests.answer_request import AnswerRequest
from specchat.requests.progress import ProgressCallback
from specchat.sharing.answer_turn import Turn
from specchat.sharing.tickets import QueueFull, Ticket
from specchat.system.logs import log_internal_error

LOG = "server.log"
MOST_SECONDS_PASSED_OVER = 2.0
"""How long new requests may go before an answer that waits for a turn."""
MOST_IN_TURN = 4
"""Answers that take turns; the others wait until one of these has ended."""
MOST_CLIENTS = 100
"""Clients whose last turn is remembered; names of programs come from outside."""
IDLE_SECONDS = 0.5
"""How often an idle thread checks that its engine is alive."""
SECONDS_TO_MEASURE = 2.0
"""After how long without a request the pair's passes are measured, if they are not known."""

Result = TypeVar("Result")
Load = Callable[[ProgressCallback], Engine]
"""Loads the engine; it gives up when the callback returns False."""


class SharedEngine:
    """An engine whose requests come from several clients, and the thread that owns it."""

    def __init__(
        self,
        load: Load,
        *,
        most_waiting: int = 32,
        on_progress: ProgressCallback | None = None,
    ) -> None:
        """Load the engine. Raises as `Engine.load` does."""
        self._load = load
        self._most_waiting = most_waiting
        self._lock = threading.Condition()
        self._waiting: list[Ticket] = []
        self._active: deque[Ticket] = deque()
        self._calls: deque[Call] = deque()
        self._served: dict[str, int] = {}
        self._number = 0
        self.num_refused = 0
        """The requests refused because too many were waiting."""
        self.num_restarts = 0
        """How often the engine died and was loaded again."""
        self._current: Ticket | None = None
        self._is_closing = False
        self._engine: Engine | None = load(on_progress or (lambda *_: None))
        self.facts: EngineFacts = self._engine.facts
        self._thread = threading.Thread(target=self._run, name="shared engine", daemon=True)
        self._thread.start()

    def submit(self, request: AnswerRequest, client: str, on_change: Callable[[], None]) -> Ticket:
        """Queue a request. Raises QueueFull, or EngineFailed once closed."""
        with self._lock:
            self._require_open()
            if len(self._waiting) >= self._most_waiting:
                self.num_refused += 1
                raise QueueFull(f"{len(self._waiting)} requests are waiting: try again later")
            self._number += 1
            ticket = Ticket(request, client, on_change, number=self._number)
            ticket.on_cancel = lambda: self._cancel(ticket)  # type: ignore[method-assign]
            self._waiting.append(ticket)
            self._tell_places()
            self._lock.notify_all()
        return ticket

    def call(self, act: Callable[[Engine], Result]) -> Result:
        """Do something with the engine between two answers' turns, and wait for the result."""
        made = Call(act)
        with self._lock:
            self._require_open()
            self._calls.append(made)
            self._lock.notify_all()
        return cast(Result, made.result())

    @property
    def num_waiting(self) -> int:
        """The requests that have not begun."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """The answers that have begun and take turns."""
        return len(self._active)

    def close(self) -> None:
        """End all answers and the engine."""
        self._end_thread()
        if self._engine is not None:
            self._engine.close()

    def release(self) -> Engine:
        """End all answers, and return the engine. Raises EngineFailed if it has ended by itself."""
        self._end_thread()
        if self._engine is None:
            raise EngineFailed("the engine has ended by itself")
        return self._engine

    def kill(self) -> None:
        """End all answers and kill the engine's own process, from any thread."""
        self._is_closing = True
        if self._engine is not None:
            self._engine.kill()

    def held_bytes(self) -> int:
        """Return the bytes of the host's memory that closing frees at once, 0 if unknown."""
        return self._engine.held_bytes() if self._engine is not None else 0

    def _end_thread(self) -> None:
        with self._lock:
            self._is_closing = True
        self.cancel_all()
        self._thread.join()

    def cancel_all(self) -> None:
        """End all answers."""
        with self._lock:
            for ticket in (*self._active, *self._waiting):
                ticket.is_cancelled = True
            if self._engine is not None:
                self._engine.stop()
            self._lock.notify_all()

    def _require_open(self) -> None:
        if self._is_closing:
            raise EngineFailed("the engine is shutting down")

    def _cancel(self, ticket: Ticket) -> None:
        """Stop an answer in progress; one that has no turn now leaves its place at once."""
        with self._lock:
            if self._current is not ticket:
                self._drop_cancelled()
                self._tell_places()
            elif self._engine is not None:
                self._engine.stop()
            self._lock.notify_all()

    # --- the owning thread ---

    def _run(self) -> None:
        since, is_measured = monotonic(), False
        while not self._is_closing:
            made, ticket = self._next(IDLE_SECONDS)
            if made is None and ticket is None:
                is_due = not is_measured and monotonic() - since >= SECONDS_TO_MEASURE
                is_measured = is_measured or is_due
                self._while_idle(is_due=is_due)
                continue
            try:
                engine = self._loaded()
            except Exception as error:  # noqa: BLE001  # the client must receive every error
                if made is not None:
                    made.fail(_readable(error))
                elif ticket is not None:
                    self._end(ticket, None, _readable(error))
                continue
            if made is not None:
                made.run(engine)
            elif ticket is not None:
                self._take_turn(engine, ticket)
            since, is_measured = monotonic(), False
        for ticket in (*self._active, *self._waiting):
            ticket.end("cancelled")
        for made in self._calls:
            made.fail(Cancelled("the engine is shutting down"))

    def _next(self, seconds: float) -> "tuple[Call | None, Ticket | None]":
        """Return what to do next: a call first, then the answer whose turn it is."""
        with self._lock:
            if not (self._calls or self._active or self._waiting or self._is_closing):
                self._lock.wait(seconds)
            self._drop_cancelled()
            if self._calls:
                return self._calls.popleft(), None
            self._let_in()
            self._tell_places()
            return None, self._active[0] if self._active else None

    def _let_in(self) -> None:
        """Let waiting requests take turns, before those that have had one.

        Short ones that come again and again could keep such a one from going on for ever, so one
        that was passed over for too long goes first.
        """
        new: list[Ticket] = []
        while self._waiting and len(self._active) + len(new) < MOST_IN_TURN:
            new.append(ticket := self._in_order()[0])
            self._waiting.remove(ticket)
            self._served.pop(ticket.client, None)
            self._served[ticket.client] = ticket.number
            if len(self._served) > MOST_CLIENTS:
                del self._served[next(iter(self._served))]
            ticket.idle_since = monotonic()
            ticket.waited_s = ticket.idle_since - ticket.queued_at
        first = [each for each in self._active if not each.num_turns]
        later = [each for each in self._active if each.num_turns]
        self._active = deque([*first, *new, *later])
        oldest = min(self._active, key=lambda each: each.idle_since, default=None)
        if oldest and monotonic() - oldest.idle_since > MOST_SECONDS_PASSED_OVER:
            self._active.remove(oldest)
            self._active.appendleft(oldest)

    def _drop_cancelled(self) -> None:
        for ticket in [each for each in (*self._active, *self._waiting) if each.is_cancelled]:
            with suppress(ValueError):
                self._active.remove(ticket)
            with suppress(ValueError):
                self._waiting.remove(ticket)
            ticket.end("cancelled")

    def _in_order(self) -> list[Ticket]:
        """Return the waiting requests, one of each client in turn, the least recent one first."""
        counts: dict[str, int] = {}
        order: list[tuple[int, int, int, Ticket]] = []
        for ticket in self._waiting:
            turn = counts[ticket.client] = counts.get(ticket.client, 0) + 1
            order.append((turn, self._served.get(ticket.client, 0), ticket.number, ticket))
        return [ticket for *_, ticket in sorted(order, key=lambda each: each[:3])]

    def _tell_places(self) -> None:
        for place, ticket in enumerate(self._in_order(), max(1, len(self._active))):
            ticket.report(place, 0.0)

    def _take_turn(self, engine: Engine, ticket: Ticket) -> None:
        """Answer for a while; an answer that is not over goes to the end of the line."""
        with self._lock:
            if ticket.is_cancelled:
                return
            self._current = ticket
            ticket.num_turns += 1
        try:
            turn = Turn(engine, ticket, self._is_wanted)
            finish = turn.take()
        except Exception as error:  # noqa: BLE001  # the client must receive every error
            self._end(ticket, None, _readable(error))
        else:
            if finish is not None:
                self._end(ticket, finish)
            else:
                with self._lock:
                    ticket.idle_since = monotonic()
                    self._active.rotate(-1)
        finally:
            with self._lock:
                self._current = None
        self.facts = engine.facts

    def _is_wanted(self) -> bool:
        """Return True if another request waits for the engine, and an answer may be interrupted."""
        if not self.facts.takes_turns:
            return False
        has_room = len(self._active) < MOST_IN_TURN
        return bool(len(self._active) > 1 or self._calls or (self._waiting and has_room))

    def _end(
        self, ticket: Ticket, finish: Finish | None, error: SpecchatError | None = None
    ) -> None:
        with self._lock, suppress(ValueError):
            self._active.remove(ticket)
        ticket.end(finish, error)

    def _loaded(self) -> Engine:
        """Return the engine, loaded again if its process has died."""
        if self._engine is not None:
            try:
                self._engine.check()
            except EngineFailed:
                self._engine.close()
                self._engine = None
        if self._engine is None:
            self._engine = self._load(lambda *_: not self._is_closing)
            gc.collect()  # errors hold the dead engine in cycles, and it holds descriptors
            self.num_restarts += 1
            self.facts = self._engine.facts
        return self._engine

    def _while_idle(self, *, is_due: bool) -> None:
        """Load a dead engine again; measure what is not known of the pair."""
        with suppress(SpecchatError):
            engine = self._loaded()
            if is_due:
                engine.prepare(lambda *_: not (self._waiting or self._calls or self._is_closing))
                self.facts = engine.facts


class Call:
    """Something to do with the engine on its own thread, and its outcome."""

    def __init__(self, act: Callable[[Engine], Any]) -> None:
        """Prepare to do it."""
        self._act = act
        self._done = threading.Event()
        self._result: Any = None
        self._error: SpecchatError | None = None

    def run(self, engine: Engine) -> None:
        """Do it."""
        try:
            self._result = self._act(engine)
        except Exception as error:  # noqa: BLE001  # the caller must receive every error
            self._error = _readable(error)
        self._done.set()

    def fail(self, error: SpecchatError) -> None:
        """End without having done it."""
        self._error = error
        self._done.set()

    def result(self) -> Any:
        """Wait for it; return its result or raise its error."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result


def _readable(error: Exception) -> SpecchatError:
    """Return an error of this package for any error."""
    if isinstance(error, SpecchatError):
        return error
    return EngineFailed(log_internal_error(error, LOG))
