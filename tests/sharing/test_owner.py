"""The thread that owns an engine: nothing that is asked for is lost, whenever something ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scripted_chat import FACTS
from specchat.decoding.chunk import Chunk, Finish
from specchat.decoding.statistics import Statistics
from specchat.engine.api import Engine
from specchat.errors import EngineFailed, ModelWontLoad, SpecchatError
from specchat.requests.answer_request import AnswerRequest, ChatRequest, GenerateRequest
from specchat.requests.answer_update import Update
from specchat.requests.prompt_size import PromptSize
from specchat.sharing import engine_host, shared_engine
from specchat.sharing.engine_events import NoEvents
from specchat.sharing.lent_images import BorrowedImages
from specchat.sharing.shared_engine import SharedEngine
from specchat.sharing.ticket_line import most_in_turn
from specchat.sharing.tickets import Ticket
from specchat.tui.controllers.session import Aside
from tables import table

QUESTION = ChatRequest(messages=[{"role": "user", "content": "?"}])


class Held(Engine):
    """Answers in steps, each of which it is let to take; a stop counts from `begin` on."""

    def __init__(self) -> None:
        """Begin with no step allowed."""
        self.facts = FACTS
        self.steps = threading.Semaphore(0)
        self.has_begun, self.may_begin = threading.Event(), threading.Event()
        self.may_begin.set()
        self.num_steps = 3
        self.is_dead = False
        self.close_error: Exception | None = None
        self.is_keeping = threading.Event()
        self.checked_in: set[threading.Thread] = set()
        self._is_stopped = False

    def begin(self, request: AnswerRequest) -> Generator[Update]:
        """Forget an earlier stop, as real engines do."""
        self.has_begun.set()
        assert self.may_begin.wait(60)
        self._is_stopped = False
        return self._answer()

    def _answer(self) -> Generator[Update]:
        statistics = Statistics(drafter="suffix", prompt_tokens=9, notices=("a notice",))
        for number in range(self.num_steps):
            while not self.steps.acquire(timeout=0.01):
                if self._is_stopped:
                    yield Update((Chunk("", finish="cancelled"),), statistics, finish="cancelled")
                    return
            finish: Finish | None = "stop" if number == self.num_steps - 1 else None
            statistics.generated_tokens += 1
            yield Update((Chunk("a", finish=finish),), statistics, finish=finish)

    def size(self, request: ChatRequest) -> PromptSize:
        """Return a size."""
        return PromptSize(7)

    def stop(self) -> None:
        """Stop the answer in progress."""
        self._is_stopped = True

    def forget(self) -> None:
        """Nothing is remembered."""

    def keep(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Keep without end, until stopped."""
        self.is_keeping.set()
        until(is_stopped)

    def score(
        self, *_: object, is_stopped: Callable[[], bool] = lambda: False, **__: object
    ) -> Any:
        """Score without end, until stopped."""
        until(is_stopped)

    def has_ended(self) -> bool:
        """Return True once it is dead."""
        return self.is_dead

    def check(self) -> None:
        """Fail once it is dead; real engines read the last message of their process."""
        self.checked_in.add(threading.current_thread())
        if self.is_dead:
            raise EngineFailed("it died")

    def close(self) -> None:
        """Fail if that is wanted."""
        if self.close_error is not None:
            raise self.close_error


class Clocked(Held):
    """Writes without end, by a clock of its own; going on with an answer takes some of its time."""

    STEP = 1 / 16

    def __init__(self, seconds_to_go_on: float) -> None:
        """Begin with no turn."""
        super().__init__()
        self.facts = replace(FACTS, takes_turns=True)
        self.now, self.seconds_to_go_on = 0.0, seconds_to_go_on
        self.turns: list[int] = []
        """The steps of each turn."""

    def begin(self, request: AnswerRequest) -> Generator[Update]:
        """Begin a turn."""
        self.has_begun.set()
        assert self.may_begin.wait(60)
        self._is_stopped = False
        self.turns.append(0)
        return self._turn(request)

    def _turn(self, request: AnswerRequest) -> Generator[Update]:
        statistics = Statistics(prompt_tokens=9)
        if request.begun:
            self.now += self.seconds_to_go_on
            yield Update(tuple(request.begun), statistics)
        while not self._is_stopped:
            self.now += self.STEP
            statistics.decode_s += self.STEP
            self.turns[-1] += 1
            yield Update((Chunk("a"),), statistics)
        yield Update((Chunk("", finish="cancelled"),), statistics, finish="cancelled")


def asked(engine: SharedEngine, client: str = "a", *, is_served: bool = True) -> Ticket:
    """Submit a question."""
    ticket = Ticket(QUESTION, client, lambda: None, is_served=is_served)
    engine.submit(ticket)
    return ticket


def until(is_true: Callable[[], object], seconds: float = 60) -> None:
    """Wait for something that another thread does, even while a busy machine collects garbage."""
    deadline = monotonic() + seconds
    while not is_true():
        assert monotonic() < deadline
        sleep(0.005)


def test_a_size_is_unknown_while_others_are_answered_and_told_afterwards() -> None:
    """Neither an answer nor a call of another client loses it; a newer one replaces it."""
    held, sizes, newer = Held(), list[PromptSize | None](), list[PromptSize | None]()
    engine = SharedEngine(lambda _: held)
    ticket = asked(engine, "another")
    assert held.has_begun.wait(60)
    engine.size(lambda _: QUESTION, sizes.append)
    engine.size(lambda _: QUESTION, newer.append)
    assert (sizes, newer) == ([None], [None])
    held.steps.release(3)
    until(lambda: ticket.is_over)
    engine.call(lambda _: None)
    until(lambda: len(newer) > 1)
    engine.close()
    assert (sizes, newer) == ([None], [None, PromptSize(7)])


def test_an_answer_has_its_turn_between_two_calls() -> None:
    """Those that score texts follow each other without a pause."""
    held, order = Held(), list[str]()
    held.steps.release(3)
    engine = SharedEngine(lambda _: held)
    engine.wait_until_loaded()
    is_asked = threading.Event()

    def first(_: Engine) -> None:
        assert is_asked.wait(60)
        order.append("call")

    def later(_: Engine) -> None:
        order.append("answered" if held.has_begun.is_set() else "waiting")

    callers = [threading.Thread(target=engine.call, args=(act,)) for act in (first, later)]
    callers[0].start()
    until(lambda: engine._is_wanted_now() is False)  # it is being done
    callers[1].start()
    until(lambda: engine._calls)
    ticket = asked(engine)
    is_asked.set()
    for caller in callers:
        caller.join(60)
    until(lambda: ticket.is_over)
    engine.close()
    assert order == ["call", "answered"]


def test_an_answer_keeps_what_its_statistics_say_between_two_turns() -> None:
    """What drafts and what was noticed do not go while another client has a turn."""
    ticket = Ticket(QUESTION, "a", lambda: None)
    statistics = Statistics(drafter="suffix", prompt_tokens=9, notices=("a notice",), left_out=2)
    ticket.add([Chunk("a")], statistics)
    ticket.end_turn(statistics)
    found = ticket.take().statistics
    assert (found.drafter, found.notices, found.left_out) == ("suffix", ("a notice",), 2)


@pytest.mark.parametrize(
    ("seconds_to_go_on", "num_steps"), [(1 / 32, 8), (1 / 8, 20), (1, 32), (4, 64)]
)
def test_a_turn_is_longer_where_going_on_takes_long(
    seconds_to_go_on: float, num_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a second, or ten times what going on takes; two seconds at most, or as long as that."""
    clocked = Clocked(seconds_to_go_on)
    monkeypatch.setattr("specchat.sharing.answer_turn.monotonic", lambda: clocked.now)
    clocked.may_begin.clear()
    engine = SharedEngine(lambda _: clocked)
    tickets = [asked(engine, client) for client in ("a", "b")]
    assert clocked.has_begun.wait(60)
    clocked.may_begin.set()
    until(lambda: len(clocked.turns) > 4)
    for ticket in tickets:
        ticket.cancel()
    engine.close()
    assert clocked.turns[:4] == [8, 8, num_steps, num_steps]


class Prompting(Clocked):
    """Reads prompts without end, in parts; going on with one takes some of the clock's time."""

    def _turn(self, request: AnswerRequest) -> Generator[Update]:
        share = 0.001 * sum(self.turns)
        assert request.on_progress is not None
        if sum(self.turns):
            self.now += self.seconds_to_go_on
        request.on_progress("prompt", share)
        while not self._is_stopped:
            self.now += self.STEP
            share += 0.001
            self.turns[-1] += 1
            request.on_progress("prompt", share)
        yield Update((Chunk("", finish="cancelled"),), Statistics(), finish="cancelled")


def test_a_turn_that_reads_a_prompt_is_longer_too_where_going_on_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time of another one's turn is not long ago when it goes on."""
    clocked = Prompting(1.0)
    monkeypatch.setattr("specchat.sharing.answer_turn.monotonic", lambda: clocked.now)
    monkeypatch.setattr("specchat.sharing.ticket_line.MOST_SECONDS_PASSED_OVER", 1e9)
    clocked.may_begin.clear()
    engine = SharedEngine(lambda _: clocked)
    tickets = [asked(engine, client) for client in ("a", "b")]
    assert clocked.has_begun.wait(60)
    clocked.may_begin.set()
    until(lambda: len(clocked.turns) > 4)
    for ticket in tickets:
        ticket.cancel()
    engine.close()
    assert clocked.turns[2:4] == [32, 32]


def test_the_time_to_the_first_token_has_the_turns_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A prompt is interrupted; between its turns others are served."""
    start = monotonic()
    now = [start]
    monkeypatch.setattr("specchat.sharing.tickets.monotonic", lambda: now[0])
    ticket = Ticket(QUESTION, "a", lambda: None)
    now[0] += 2
    ticket.begin_turn()
    now[0] += 1
    ticket.end_turn(Statistics(prompt_tokens=9, prompt_s=1.0))
    now[0] += 10
    ticket.begin_turn()
    first = Statistics(prompt_tokens=9, generated_tokens=1, time_to_first_token_s=0.5)
    ticket.add([Chunk("a")], first)
    assert ticket.waited_s == pytest.approx(2)
    assert ticket.statistics.time_to_first_token_s == pytest.approx(11.5)
    ticket.end_turn(first)
    now[0] += 10
    ticket.begin_turn()
    ticket.add([Chunk("b")], Statistics(prompt_tokens=9, generated_tokens=1))
    assert ticket.statistics.time_to_first_token_s == pytest.approx(11.5)


class Measured(Held):
    """Decodes two answers together, and measures which drafts repeat until it may end or stops."""

    def __init__(self) -> None:
        """Know nothing yet."""
        super().__init__()
        self.facts = replace(FACTS, takes_turns=True, at_once=2, repeatable_draft=None)
        self.is_measuring, self.may_end = threading.Event(), threading.Event()
        self.learns = True

    def prepare(self, on_progress: Any = None, *, only_exactness: bool = False) -> bool:
        """Measure."""
        assert only_exactness
        self._is_stopped = False
        self.is_measuring.set()
        until(lambda: self.may_end.is_set() or self._is_stopped)
        if self._is_stopped:
            return False
        if self.learns:
            self.facts = replace(self.facts, repeatable_draft=3)
        return self.learns

    def pause(self) -> None:
        """Stop."""
        self.stop()


def two_with_seeds(engine: Measured) -> tuple[SharedEngine, Ticket, Ticket]:
    """Return a shared engine that measures for the first of two requests of a turn."""
    may_load = threading.Event()

    def load(_: object) -> Engine:
        assert may_load.wait(60)
        return engine

    shared = SharedEngine(load)
    tickets = [Ticket(replace(QUESTION, seed=1), client, lambda: None) for client in "ab"]
    for ticket in tickets:
        shared.submit(ticket)
    may_load.set()
    assert engine.is_measuring.wait(60)
    return shared, tickets[0], tickets[1]


def test_one_that_leaves_does_not_end_what_is_measured_for_another() -> None:
    """It ends at once; the other one begins with what it needs to know."""
    engine = Measured()
    shared, first, second = two_with_seeds(engine)
    second.cancel()
    until(lambda: second.is_over)
    assert not engine._is_stopped
    engine.may_end.set()
    assert engine.has_begun.wait(60)
    assert engine.facts.repeatable_draft == 3
    assert not first.lacks_exactness
    first.cancel()
    until(lambda: first.is_over)
    shared.close()


def test_one_that_leaves_ends_what_is_measured_for_it() -> None:
    """The other one then measures for itself."""
    engine = Measured()
    shared, first, second = two_with_seeds(engine)
    engine.is_measuring.clear()
    first.cancel()
    until(lambda: first.is_over)
    assert engine.is_measuring.wait(60)
    engine.may_end.set()
    assert engine.has_begun.wait(60)
    assert not second.lacks_exactness
    shared.close()


def test_an_answer_that_begins_unmeasured_knows_it() -> None:
    """Memory was short, or the machine busy."""
    engine = Measured()
    engine.learns = False
    engine.may_end.set()
    shared = SharedEngine(lambda _: engine)
    ticket = Ticket(replace(QUESTION, seed=1), "a", lambda: None)
    shared.submit(ticket)
    assert engine.has_begun.wait(60)
    assert ticket.lacks_exactness
    shared.close()


def test_how_many_take_turns_follows_the_engine() -> None:
    """A pair that was loaded again may hold fewer texts, and measured passes may not gain."""
    take = [
        replace(FACTS, takes_turns=takes_turns, at_once=at_once)
        for takes_turns in (True, False)
        for at_once in (1, 3, 8)
    ]
    assert list(map(most_in_turn, take)) == [4, 4, 8, 1, 3, 8]
    held = Held()
    held.facts = replace(FACTS, at_once=2)
    engine = SharedEngine(lambda _: held)
    engine.wait_until_loaded()
    held.facts = replace(FACTS, at_once=1)
    tickets = [asked(engine, client) for client in ("a", "b", "c")]
    assert held.has_begun.wait(60)
    assert engine.num_running == 1
    held.facts = replace(FACTS, at_once=1, takes_turns=True)
    tickets[0].cancel()
    until(lambda: engine.num_running == 2)
    engine.close()


class Recording(Held):
    """Decodes up to two answers together, and notes what it was asked for."""

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__()
        self.facts = replace(FACTS, takes_turns=True, at_once=2)
        self.asked: list[Sequence[AnswerRequest]] = []

    def begin(self, request: AnswerRequest) -> Generator[Update]:
        """Note it."""
        self.asked.append([request])
        return super().begin(request)

    def begin_together(self, requests: Sequence[AnswerRequest]) -> Generator[tuple[int, Update]]:
        """Note them, and end all."""
        self.asked.append(requests)
        for number in range(len(requests)):
            yield number, Update((Chunk("a", finish="stop"),), finish="stop")


def test_what_pays_decides_where_others_wait_for_drafts() -> None:
    """An answer by itself drafts as much as it was asked to; all parts of it have its number."""
    held = Recording()
    engine = SharedEngine(lambda _: held)
    engine.wait_until_loaded()
    given = [
        Ticket(replace(QUESTION, draft_length=length), str(length), lambda: None)
        for length in (9, 0)
    ]
    engine.submit(given[0])
    assert held.has_begun.wait(60)
    engine.submit(given[1])
    held.steps.release()
    until(lambda: all(each.is_over for each in given))
    assert [[each.draft_length for each in requests] for requests in held.asked] == [
        [9],
        [0, "auto"],
    ]
    numbers = [[each.part_of for each in requests] for requests in held.asked]
    assert numbers == [[given[0].number], [given[1].number, given[0].number]]
    assert all(each.number for each in given)
    engine.close()


def test_the_user_of_this_program_waits_for_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of a turn nor of an answer, though other programs have all turns, and wait."""
    monkeypatch.setattr("specchat.sharing.answer_turn.SLICE_SECONDS", 600.0)
    held = Held()
    held.facts, held.num_steps = replace(FACTS, takes_turns=True), 100
    engine = SharedEngine(lambda _: held)
    engine.wait_until_loaded()
    others = [asked(engine, str(number)) for number in range(7)]
    assert held.has_begun.wait(60)
    until(lambda: engine.num_running == 4)
    own = asked(engine, "the chat", is_served=False)
    held.steps.release()
    until(lambda: own.num_turns)
    assert engine.num_running == 5
    assert [each.num_turns for each in others] == [1, 0, 0, 0, 0, 0, 0]
    assert not any(each.is_over for each in others)
    engine.close()


def test_an_answer_has_waited_until_its_first_turn() -> None:
    """Not only until it is one of those that take turns."""
    held = Held()
    engine = SharedEngine(lambda _: held)
    first = asked(engine, "a")
    assert held.has_begun.wait(60)
    second, third = asked(engine, "b"), asked(engine, "c")
    first.cancel()
    until(lambda: second.num_turns)
    assert second.waited_s > 0
    assert (third.num_turns, third.waited_s) == (0, 0.0)
    second.cancel()
    until(lambda: third.num_turns)
    assert third.waited_s > second.waited_s
    third.cancel()
    until(lambda: third.is_over)
    engine.close()


def test_a_stop_just_before_an_answer_begins_is_not_lost() -> None:
    """Engines forget earlier stops when they begin; no step follows."""
    held = Held()
    held.may_begin.clear()
    engine = SharedEngine(lambda _: held)
    ticket = asked(engine)
    assert held.has_begun.wait(60)
    ticket.cancel()
    held.may_begin.set()
    until(lambda: ticket.is_over)
    engine.close()
    assert ticket.take().statistics.generated_tokens == 0


def test_a_cancelled_answer_in_its_turn_gets_its_last_steps() -> None:
    """Another client's cancel at that moment ends only its own."""
    held = Held()
    engine = SharedEngine(lambda _: held)
    first = asked(engine, "a")
    assert held.has_begun.wait(60)
    second = asked(engine, "b")
    first.is_cancelled = True  # as `cancel` does first
    second.cancel()
    assert second.is_over
    assert not first.is_over
    first.cancel()
    until(lambda: first.is_over)
    engine.close()


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_is_kept_waits_for_what_is_asked(
    is_closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever it is asked; and for the end."""
    monkeypatch.setattr(shared_engine, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(shared_engine, "SECONDS_TO_KEEP", 0.0)
    held = Held()
    held.steps.release(held.num_steps)
    engine = SharedEngine(lambda _: held)
    assert held.is_keeping.wait(60)
    if not is_closed:
        ticket = asked(engine)
        until(lambda: ticket.is_over)
        assert ticket.take().finish == "stop"
    engine.close()


@table("method", sorted(engine_host.STOPPED_METHODS))
def test_a_stop_before_the_process_has_begun_is_not_lost(method: Any) -> None:
    """Stops arrive on a connection of their own, so that one may be there first."""
    ours, theirs = Pipe()
    stops = SimpleQueue[engine_host.Stop]()  # a closed connection would end this process
    stops.put(engine_host.Stop(1))
    ours.send(engine_host.MethodCall(1, method, ()))
    ours.send(engine_host.CLOSE)
    connection = cast(Connection, SimpleNamespace(recv=stops.get))
    host = engine_host._Host(theirs, connection, BorrowedImages(theirs))
    host.serve(Held())
    assert ours.recv() == engine_host.Returned(1, None)


class Reading(Held):
    """Writes a step of one answer, then reads a part of another's prompt until it is let go on."""

    def __init__(self) -> None:
        """Read nothing yet."""
        super().__init__()
        self.is_reading, self.may_go_on = threading.Event(), threading.Event()

    def begin_together(self, requests: Sequence[AnswerRequest]) -> Generator[tuple[int, Update]]:
        """Answer two requests."""
        chunks = [Chunk("one", (1,)), Chunk("two", (2,)), Chunk("three", (3,))]
        for chunk in chunks:  # as fast as messages are not
            yield 0, Update((chunk,))
        yield 1, Update()
        self.is_reading.set()
        assert self.may_go_on.wait(60)
        yield 0, Update((Chunk("", finish="stop"),), finish="stop")
        yield 1, Update((Chunk("", finish="stop"),), finish="stop")


def test_steps_do_not_wait_while_the_prompt_of_another_is_read() -> None:
    """Steps that follow each other fast are sent together, but before a pass over a prompt."""
    ours, theirs = Pipe()
    engine, host = Reading(), engine_host._Host(theirs, theirs, BorrowedImages(theirs))
    asked = engine_host.Decode(1, (GenerateRequest("?"), GenerateRequest("?")))
    answering = threading.Thread(target=host._answer, args=(engine, asked))
    answering.start()
    assert engine.is_reading.wait(60)
    said = ""
    while "three" not in said and ours.poll(0):
        sent = ours.recv()
        said += "".join(chunk.text for chunk in sent.update.chunks)
    engine.may_go_on.set()
    answering.join(60)
    assert said == "onetwothree"


def test_only_the_owner_reads_why_an_engine_has_ended() -> None:
    """Two threads that read one connection would each get a part of a message."""
    held = Held()
    held.may_begin.clear()
    engine = SharedEngine(lambda _: held, reloads=False)
    ticket = asked(engine)
    assert held.has_begun.wait(60)
    held.is_dead = True
    assert engine.has_ended()
    ticket.cancel()
    held.may_begin.set()
    engine.close()
    assert held.checked_in == {engine._thread}


def test_callers_do_not_wait_for_what_is_closed_first() -> None:
    """A server's thread may wait for such a call, and closing the port for that thread."""
    held = Held()
    engine = SharedEngine(lambda _: held)
    engine.wait_until_loaded()
    is_failed = threading.Event()

    def call() -> None:
        with pytest.raises(SpecchatError):
            engine.call(lambda _: None)
        is_failed.set()

    asked(engine)
    assert held.has_begun.wait(60)
    caller = threading.Thread(target=call)
    caller.start()
    until(lambda: engine._calls)
    was_failed = list[bool]()
    engine.before_end = lambda: was_failed.append(is_failed.wait(60))
    engine.close()
    caller.join()
    assert was_failed == [True]


def test_requests_end_even_if_closing_the_engine_fails() -> None:
    """No client waits for ever."""
    held = Held()
    held.close_error = OSError("a bug")
    engine = SharedEngine(lambda _: held)
    tickets = [asked(engine, client) for client in ("a", "b")]
    assert held.has_begun.wait(60)
    engine.close()
    assert all(ticket.is_over for ticket in tickets)


def test_a_reload_that_fails_is_not_tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would load a large model for ever; a request tries it again."""
    monkeypatch.setattr(shared_engine, "IDLE_SECONDS", 0.01)
    first, loads = Held(), list[None]()

    def load(_: object) -> Engine:
        loads.append(None)
        if len(loads) > 1:
            raise ModelWontLoad("no memory")
        return first

    engine = SharedEngine(load)
    engine.wait_until_loaded()
    first.is_dead = True
    until(lambda: len(loads) == 2)
    sleep(0.2)
    assert len(loads) == 2
    assert isinstance(engine.last_error, ModelWontLoad)
    ticket = asked(engine)
    until(lambda: ticket.is_over)
    assert isinstance(ticket.take().error, ModelWontLoad)
    engine.close()


def test_the_end_of_a_text_beside_the_conversation_is_told_once() -> None:
    """Though a ticket announces its end after what came before."""
    ends: list[Any] = []
    aside = Aside(QUESTION.messages, {}, lambda *end: ends.append(end))
    changes: list[None] = []
    aside.ticket = Ticket(aside.request, "the chat", lambda: changes.append(None))
    aside.ticket.add([Chunk("A title")], Statistics())
    aside.ticket.end("stop")
    for _ in changes:
        aside.take()
    assert (len(changes), ends) == (2, [("A title", "stop")])


def test_a_question_asked_while_a_reload_fails_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It woke the owner when that was not waiting yet."""
    monkeypatch.setattr(shared_engine, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(shared_engine, "SECONDS_TO_RELOAD", 1000.0)
    first, second = Held(), Held()
    second.steps = threading.Semaphore(9)
    loads, may_fail = list[None](), threading.Event()

    def load(_: object) -> Engine:
        loads.append(None)
        if len(loads) == 2:
            assert may_fail.wait(60)
            raise ModelWontLoad("no memory")
        return first if len(loads) == 1 else second

    engine = SharedEngine(load)
    engine.wait_until_loaded()
    first.is_dead = True
    until(lambda: len(loads) == 2)
    ticket = asked(engine)
    may_fail.set()
    until(lambda: ticket.is_over)
    assert ticket.take().error is None
    engine.close()


def test_what_a_reload_found_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new engine may have another plan."""
    monkeypatch.setattr(shared_engine, "IDLE_SECONDS", 0.01)
    engines = [Held(), Held()]
    engines[1].facts = replace(FACTS, plan="another")
    plans: list[str] = []

    class Events(NoEvents):
        def measured(self, facts: Any) -> None:
            plans.append(facts.plan)

    left = iter(engines)
    engine = SharedEngine(lambda _: next(left), events=Events())
    engine.wait_until_loaded()
    engines[0].is_dead = True
    until(lambda: plans)
    engine.close()
    assert plans == ["another"]
