"""The owner of an engine: a thread loads it, and answers the requests of all clients.

The chat is one client, programs that use `/serve` or `specchat serve` are others. Clients are
served in turn, however many requests each has waiting. Answers that the engine decodes together
share a turn. A turn that takes long lets others in: its answers are stopped between two steps and
go on later from the tokens they have, so with a seed a text is the same as without the others. The
engine keeps what it read of each, so nothing is read twice. While nothing is asked for, the thread
measures the pair and keeps what was read on disk.
"""

import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeVar, cast

from specchat.decoding.chunk import Finish
from specchat.engine.api import Engine, EngineFacts
from specchat.errors import Cancelled, EngineFailed, SpecchatError
from specchat.images.image import Image
from specchat.requests.progress import Progress, Stage
from specchat.sharing.answer_turn import Turn
from specchat.sharing.asked_work import AskedWork
from specchat.sharing.engine_events import EngineEvents, NoEvents
from specchat.sharing.owned_engine import OpenEngine, OwnedEngine
from specchat.sharing.owner_tasks import IdleTime, OwnerCall, SizeQuestion
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


class SharedEngine(AskedWork):
    """An engine with several clients, and the thread that owns it and does what they ask.

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
        owned = OwnedEngine(load, engine, self._events, lambda: not self._is_closing)
        super().__init__(owned, most_waiting)
        self._before, self._log = before, log
        self.reloads = reloads
        self.before_end: Callable[[], object] = lambda: None
        """Called on the owning thread before the engine ends."""
        self._is_settled = threading.Event()  # it is loaded, or never will be
        self._thread = threading.Thread(target=self._run, name="engine owner", daemon=True)
        self._thread.start()

    # --- clients, from any thread

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

    def image_tokens(self, image: Image) -> list[int]:
        """Return an image as tokens, without waiting for answers; raises as the engine does."""
        return self._owned.image_tokens(image)

    @property
    def num_restarts(self) -> int:
        """How often the engine died and was loaded again."""
        return self._owned.num_restarts

    def held_bytes(self) -> int:
        """Return the bytes of the host's memory that closing frees at once, 0 if unknown."""
        return self._owned.held_bytes()

    def has_ended(self) -> bool:
        """Return True if the engine has ended, or its process has and is not started again."""
        return self._is_closing or (not self.reloads and self._owned.has_ended())

    def end(self) -> None:
        """End all answers and then the engine, without waiting for that."""
        self._close_line()
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
        self._close_line()
        self._owned.kill()

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
        is_lost = not self._close_line(error)
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
                self._wait_for_work(SECONDS_TO_RELOAD)

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

    def _take_turn(self, engine: Engine, tickets: Sequence[Ticket]) -> None:
        """Answer for a while; answers that are not over go to the end of the line."""
        left = self._begin_turn(tickets)
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
            while left:
                self._end(left.pop(), None, self._readable(error))
            if isinstance(error, EngineFailed) and not self.reloads:
                raise
        finally:
            self._end_turn(left)

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

    def _measure_for(self, engine: Engine, ticket: Ticket) -> None:
        """Measure what an answer needs to know, until it is given up."""
        options = ticket.request(engine.facts).values()
        if ticket.measures_first or engine.facts.lacks_exactness(options):

            def report(stage: Stage, share: float) -> bool:
                ticket.report(Progress(stage, share))
                return not ticket.is_cancelled

            with self._measuring_for(ticket):
                self._owned.measure(engine, report, only_exactness=not ticket.measures_first)
        ticket.lacks_exactness |= engine.facts.lacks_exactness(options)

    def _readable(self, error: Exception) -> SpecchatError:
        """Return an error of this package for any error; others are bugs, and are logged."""
        if isinstance(error, SpecchatError):
            return error
        return SpecchatError(log_internal_error(error, self._log))
