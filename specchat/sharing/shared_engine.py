"""The owner of an engine: a thread loads it, and answers the requests of all clients.

The chat is one client, programs that use `/serve` or `specchat serve` are others. Clients are
served in turn, however many requests each has waiting. Answers that the engine decodes together
share a turn. A turn that takes long lets others in: its answers are stopped between two steps and
go on later from the tokens they have, so with a seed a text is the same as without the others. The
engine keeps what it read of each, so nothing is read twice. While nothing is asked for, the thread
measures the pair and keeps what was read on disk.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeVar, cast

from specchat.decoding.chunk import Finish
from specchat.engine.api import Engine, EngineFacts
from specchat.errors import Cancelled, EngineFailed, SpecchatError
from specchat.images.image import Image
from specchat.requests.answer_request import ChatRequest
from specchat.requests.progress import Progress, Stage
from specchat.requests.prompt_size import PromptSize
from specchat.sharing.answer_turn import Turn
from specchat.sharing.engine_events import EngineEvents, NoEvents
from specchat.sharing.owned_engine import OpenEngine, OwnedEngine
from specchat.sharing.owner_tasks import IdleTime, OwnerCall, SizeQuestion
from specchat.sharing.ticket_line import TicketLine, most_in_turn
from specchat.sharing.tickets import Ticket
from specchat.system.logs import log_internal_error

LOG = "server.log"
MOST_WAITING = 32
"""Requests that may wait; more are refused."""
IDLE_SECONDS = 0.5
"""How often an idle thread checks that its engine is alive."""
SECONDS_TO_MEASURE = 2.0
"""After how long without a request the pair's passes are measured, if they are not known."""
SECONDS_TO_KEEP = 10.0
"""After how long without a request what was read is kept on disk."""
SECONDS_TO_RELOAD = 10.0
"""After how long a reload that failed is tried again, unless something is asked for before."""
SECONDS_TO_END = 2.5
"""How long an engine may take to end before it is killed."""

Result = TypeVar("Result")


class SharedEngine:
    """An engine with several clients, and the thread that owns it.

    If the engine's process ends by itself, its answers fail. With `reloads` it is loaded again, as
    a server needs; else it is lost, and so are all requests.
    """

    def __init__(
        self,
        load: OpenEngine,
        *,
        engine: Engine | None = None,
        events: EngineEvents | None = None,
        before: "SharedEngine | None" = None,
        reloads: bool = True,
        most_waiting: int = MOST_WAITING,
        log: str = LOG,
    ) -> None:
        """Start the thread: it loads the engine unless `engine` is one already.

        Loading begins once the engine that was there `before` has freed its memory.
        """
        self._events: EngineEvents = events or NoEvents()
        self._owned = OwnedEngine(load, engine, self._events, lambda: not self._is_closing)
        self._before, self._log = before, log
        self.reloads = reloads
        self.before_end: Callable[[], object] = lambda: None
        """Called on the owning thread before the engine ends."""
        self._lock = threading.Condition()
        self._line = TicketLine(most_waiting)
        self._sizing: SizeQuestion | None = None
        self._calls: deque[OwnerCall] = deque()
        self._number = 0
        self.last_error: SpecchatError | None = None
        """What the last answer that failed has failed with."""
        self._current: Sequence[Ticket] = ()
        self._measured_for: Ticket | None = None
        self._is_closing = False
        self._lost: SpecchatError | None = None
        self._is_settled = threading.Event()  # it is loaded, or never will be
        self._thread = threading.Thread(target=self._run, name="engine owner", daemon=True)
        self._thread.start()

    # --- clients, from any thread

    @property
    def facts(self) -> EngineFacts:
        """The facts about the engine, once it is loaded. Raises EngineFailed before."""
        if (facts := self._owned.facts) is None:
            raise EngineFailed("the engine is not loaded")
        return facts

    @property
    def is_loaded(self) -> bool:
        """Whether the engine has been loaded."""
        return self._owned.facts is not None

    def wait_until_loaded(self) -> EngineFacts:
        """Return the facts once the engine is loaded. Raises the error that loading failed with."""
        self._is_settled.wait()
        if (facts := self._owned.facts) is None:
            raise self._lost or Cancelled("the engine is shutting down")
        return facts

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

    def image_tokens(self, image: Image) -> list[int]:
        """Return an image as tokens, without waiting for answers; raises as the engine does."""
        return self._owned.image_tokens(image)

    @property
    def num_restarts(self) -> int:
        """How often the engine died and was loaded again."""
        return self._owned.num_restarts

    @property
    def num_waiting(self) -> int:
        """The requests that have not begun."""
        return len(self._line.waiting)

    @property
    def num_running(self) -> int:
        """The answers that have begun and take turns."""
        return len(self._line.active)

    @property
    def num_refused(self) -> int:
        """The requests refused because too many were waiting."""
        return self._line.num_refused

    def held_bytes(self) -> int:
        """Return the bytes of the host's memory that closing frees at once, 0 if unknown."""
        return self._owned.held_bytes()

    def has_ended(self) -> bool:
        """Return True if the engine has ended, or its process has and is not started again."""
        return self._is_closing or (not self.reloads and self._owned.has_ended())

    def cancel_all(self) -> None:
        """End all answers."""
        with self._lock:
            for ticket in self._line:
                ticket.is_cancelled = True
            self._owned.stop()
            self._lock.notify_all()

    def end(self) -> None:
        """End all answers and then the engine, without waiting for that."""
        self._is_closing = True
        self.cancel_all()

    def wait(self, seconds: float) -> None:
        """Wait until the engine has ended; kill it if that takes longer than some seconds."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            self.kill()
            self._thread.join(seconds)

    def close(self) -> None:
        """End all answers and the engine; kill one that does not end in time."""
        self.end()
        self.wait(SECONDS_TO_END)

    def kill(self) -> None:
        """End all answers and kill the engine's own process."""
        self._is_closing = True
        self._owned.kill()

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

    def _run(self) -> None:
        error: SpecchatError = Cancelled("the engine is shutting down")
        try:
            if self._before is not None:
                self._before.wait(SECONDS_TO_END)
                self._before = None
            facts = self._owned.open()
            self._is_settled.set()
            self._events.loaded(facts)
            self._serve()
        except Cancelled:
            pass
        except Exception as raised:  # noqa: BLE001  # a thread that ends silently is worse
            error = self._readable(raised)
        with self._lock:
            is_lost = not self._is_closing
            self._is_closing = True
            self._lost = error if is_lost else None
        self._is_settled.set()
        self._fail_calls(error)  # those that wait for them may hold what `before_end` closes
        for end in (self.before_end, self._owned.close):
            try:
                end()
            except Exception as raised:  # noqa: BLE001  # what waits must end all the same
                self._readable(raised)
        self._end_all(error, is_lost=is_lost)
        if is_lost:
            self._events.lost(error)

    def _end_all(self, error: SpecchatError, *, is_lost: bool) -> None:
        """End what is asked for; under the lock, so that nothing is added beside it."""
        with self._lock:
            for ticket in self._line:
                ticket.end(None, error) if is_lost else ticket.end("cancelled")
            if self._sizing is not None:
                self._sizing.postpone()
        self._fail_calls(error)

    def _fail_calls(self, error: SpecchatError) -> None:
        with self._lock:
            while self._calls:
                self._calls.popleft().fail(error)

    def _serve(self) -> None:
        """Do what is asked for until the engine is closed. Raises EngineFailed if it is lost."""
        idle = IdleTime()
        while not self._is_closing:
            made, tickets, sizing = self._next(IDLE_SECONDS)
            if made or tickets or sizing:
                self._do(made, tickets, sizing)
                idle = IdleTime()
                continue
            try:
                self._while_idle(self._owned.alive(reloads=self.reloads), idle)
            except EngineFailed:
                if not self.reloads:
                    raise
            except SpecchatError as error:  # a reload failed: it is tried again, but not at once
                self.last_error = error
                with self._lock:
                    self._lock.wait_for(self._is_wanted_now, SECONDS_TO_RELOAD)

    def _do(
        self, made: OwnerCall | None, tickets: Sequence[Ticket], sizing: SizeQuestion | None
    ) -> None:
        """Do one thing that is asked for. Raises EngineFailed if the engine is lost."""
        try:
            engine = self._owned.alive(reloads=self.reloads)
        except Exception as error:
            if made is not None:
                made.fail(self._readable(error))
            elif tickets:
                self._end(tickets[0], None, self._readable(error))
            elif sizing is not None:
                sizing.postpone()
            if not self.reloads:
                raise
            return
        if made is not None:
            made.run(engine, self._readable)
        elif tickets:
            self._take_turn(engine, tickets)
        elif sizing is not None:
            sizing.run(engine, self._readable)

    def _while_idle(self, engine: Engine, idle: IdleTime) -> None:
        """Measure the pair and keep what was read, each once until the next request."""
        seconds = monotonic() - idle.since
        if not idle.is_measured and seconds >= SECONDS_TO_MEASURE:
            idle.is_measured = True  # what did not work now may after the next answer
            self._owned.measure(engine, lambda *_: not self._is_wanted_now())
        if not idle.is_kept and seconds >= SECONDS_TO_KEEP:
            idle.is_kept = True
            self._owned.keep(engine, self._is_wanted_now)

    def _next(
        self, seconds: float
    ) -> tuple[OwnerCall | None, Sequence[Ticket], SizeQuestion | None]:
        """Return what to do next: a call first, then the answers whose turn it is."""
        with self._lock:
            if not self._is_wanted_now():
                self._lock.wait(seconds)
            self._line.drop_cancelled()
            if self._calls:
                return self._calls.popleft(), (), None
            self._line.let_in(most_in_turn(self.facts))
            if self._line.active:
                return None, self._line.group(self.facts.at_once), None
            sizing, self._sizing = self._sizing, None
            aside = None if sizing else self._line.aside
            return None, [aside] if aside else (), sizing

    def _is_wanted_now(self) -> bool:
        """Return True if something is asked for while the thread is idle."""
        return bool(self._has_requests() or self._line.aside or self._is_closing)

    def _take_turn(self, engine: Engine, tickets: Sequence[Ticket]) -> None:
        """Answer for a while; answers that are not over go to the end of the line."""
        with self._lock:
            self._current = left = [each for each in tickets if not each.is_cancelled]
            for ticket in left:
                ticket.begin_turn()
        try:
            for ticket in list(left):
                self._make_ready(engine, ticket)
            left[:] = [ticket for ticket in left if not ticket.is_over]
            if left:
                turn = Turn(engine, list(left), self._is_wanted, self._may_join)
                for ticket, end in turn.take():
                    left.remove(ticket)
                    error = end if isinstance(end, SpecchatError) else None
                    self._end(ticket, None if error else cast(Finish, end), error)
        except Exception as error:
            for ticket in list(left):
                self._end(ticket, None, self._readable(error))
            if isinstance(error, EngineFailed) and not self.reloads:
                raise
        else:
            with self._lock:
                for ticket in left:
                    self._line.rotate(ticket)
        finally:
            with self._lock:
                self._current = ()

    def _make_ready(self, engine: Engine, ticket: Ticket) -> None:
        """Measure what an answer needs to know; end it if that fails or is given up."""
        try:
            self._measure_for(engine, ticket)
        except EngineFailed:
            raise
        except Exception as error:  # noqa: BLE001  # the others in its turn have no part in it
            self._end(ticket, None, self._readable(error))
        if ticket.is_cancelled:
            self._end(ticket, "cancelled")

    def _is_wanted(self) -> bool:
        """Return True if another request waits for the engine, and an answer may be interrupted."""
        has_others = self._line.has_others(self._current)
        return self.facts.takes_turns and bool(has_others or self._calls)

    def _may_join(self) -> bool:
        """Return True if a request waits that could be decoded together with those in turn."""
        return len(self._current) < self.facts.at_once and self._line.could_join(self._current)

    def _end(
        self, ticket: Ticket, finish: Finish | None, error: SpecchatError | None = None
    ) -> None:
        with self._lock:
            self._line.remove(ticket)
        if error is not None:
            self.last_error = error
        ticket.end(finish, error)

    def _measure_for(self, engine: Engine, ticket: Ticket) -> None:
        """Measure what an answer needs to know, until it is given up."""
        options = ticket.request(engine.facts).values()
        if ticket.measures_first or engine.facts.lacks_exactness(options):

            def report(stage: Stage, share: float) -> bool:
                ticket.report(Progress(stage, share))
                return not ticket.is_cancelled

            self._measured_for = ticket
            try:
                self._owned.measure(engine, report, only_exactness=not ticket.measures_first)
            finally:
                self._measured_for = None
        ticket.lacks_exactness |= engine.facts.lacks_exactness(options)

    def _readable(self, error: Exception) -> SpecchatError:
        """Return an error of this package for any error; others are bugs, and are logged."""
        if isinstance(error, SpecchatError):
            return error
        return SpecchatError(log_internal_error(error, self._log))
