"""Clients that leave, engines that die, queues that are full, readers that are slow."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psutil
import pytest

from server.conftest import LONG, SECONDS, Running, StartServer, until
from server.raw_http import Reply, connect, read_reply
from specchat.engine.api import Engine
from specchat.server.activity import ServedRequest
from specchat.sharing.ticket_line import MOST_IN_TURN
from specchat.sharing.tickets import Ticket

FEW_STEPS = 20
"""Steps that may have been on their way to the server when an answer is given up, of 1,500."""
PROMPT = "What is specchat? " * 250


@dataclass
class Watch:
    """The requests of a server since the watch began: their tickets and how far they are."""

    tickets: list[Ticket] = field(default_factory=list)
    steps_at_cancel: dict[int, int] = field(default_factory=dict)
    do_when: Callable[[ServedRequest], None] | None = None

    def observe(self, progress: ServedRequest) -> None:
        """Do what is to be done at this stage of a request."""
        if self.do_when is not None:
            self.do_when(progress)

    def places(self) -> list[int]:
        """Return the places of those that are not over."""
        return [each.place for each in self.tickets if not each.is_over]

    def steps(self) -> int:
        """Return how many steps there are in all."""
        return sum(each.statistics.steps for each in self.tickets)

    def has_more_steps(self, count: int) -> bool:
        """Return True if there are more steps than that."""
        return self.steps() > count

    def late_steps(self) -> list[int]:
        """Return how many steps came after each answer that was given up."""
        return [
            each.statistics.steps - self.steps_at_cancel[each.number]
            for each in self.tickets
            if each.number in self.steps_at_cancel
        ]


@contextmanager
def watching(server: Running) -> Iterator[Watch]:
    """Watch the requests of a server."""
    made, service = Watch(), server.service
    submit = service.engine.submit

    def watched(ticket: Ticket) -> None:
        submit(ticket)
        made.tickets.append(ticket)
        cancel = ticket.cancel

        def counted() -> None:
            made.steps_at_cancel[ticket.number] = ticket.statistics.steps
            cancel()

        ticket.cancel = counted  # type: ignore[method-assign]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service.engine, "submit", watched)
        service.observers.append(made.observe)
        yield made
        service.observers.remove(made.observe)


@pytest.fixture
def watch(demo_server: Running) -> Iterator[Watch]:
    """Watch the requests of the server during a test."""
    with watching(demo_server) as made:
        yield made


def is_idle(server: Running) -> bool:
    """Return True if no request is left in the server or its engine."""
    engine = server.service.engine
    return not (engine.num_running or engine.num_waiting or server.service._tickets)


def sent(server: Running, **fields: Any) -> Any:
    """Send a request on a connection of its own, and return that."""
    messages = [{"role": "user", "content": "What is specchat?"}]
    body = json.dumps({"messages": messages, **LONG, **fields}).encode()
    connection = connect(server.address)
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: application/json\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    connection.sendall(head.encode() + body)
    return connection


def leave_when(
    server: Running, watch: Watch, is_due: Callable[[ServedRequest], bool], **fields: Any
) -> None:
    """Send a request, and leave once it has come to a stage."""
    left = threading.Event()

    def leave(progress: ServedRequest) -> None:
        if is_due(progress) and not left.is_set():
            left.set()
            connection.close()

    connection = sent(server, **fields)
    watch.do_when = leave
    assert left.wait(SECONDS), "the stage was not reached"
    watch.do_when = None
    until(lambda: is_idle(server), "a free engine")


READING = {"messages": [{"role": "user", "content": PROMPT}]}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("stage", "fields"),
    [
        (lambda each: each.state == "reading" and 0 < each.share < 1, READING),
        (lambda each: each.state == "writing", {}),
        (lambda each: each.state == "writing" and each.number % 2 == 0, {"n": 4, "max_tokens": 9}),
        (
            lambda each: each.api == "check" and each.state == "writing",
            {"verify": True, "max_tokens": 99},
        ),
    ],
    ids=["prefilling", "writing", "another choice", "verifying"],
)
def test_a_client_that_leaves_frees_the_engine(
    demo_server: Running,
    watch: Watch,
    is_stream: bool,
    stage: Callable[[ServedRequest], bool],
    fields: dict[str, Any],
) -> None:
    """At any stage, streaming or not: within a step, and all further ones are not begun."""
    leave_when(demo_server, watch, stage, stream=is_stream, **fields)

    assert watch.steps_at_cancel
    assert max(watch.late_steps()) <= FEW_STEPS
    assert demo_server.chat(max_tokens=2)["usage"]["completion_tokens"] == 2


@contextmanager
def held(server: Running) -> Iterator[None]:
    """Keep the engine from every request."""
    free, holds = threading.Event(), threading.Event()

    def hold(engine: Engine) -> None:
        del engine
        holds.set()
        free.wait(SECONDS)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(server.service.engine.call, hold)
        assert holds.wait(SECONDS)
        try:
            yield
        finally:
            free.set()
            holding.result()


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_client_that_leaves_the_queue_leaves_it_at_once(
    demo_server: Running, watch: Watch, is_stream: bool
) -> None:
    """While the engine is busy with others; those behind it move up."""
    engine = demo_server.service.engine

    def is_waiting(count: int) -> bool:
        return engine.num_waiting == count

    with held(demo_server):
        connections = [sent(demo_server, stream=is_stream, max_tokens=1)]
        for number in range(1, 4):
            until(partial(is_waiting, number), "a queued request")
            connections.append(sent(demo_server, stream=is_stream, max_tokens=1))
        until(lambda: watch.places() == [1, 2, 3, 4], "the places of all four")
        connections[1].close()
        until(lambda: watch.places() == [1, 2, 3], "a place less")
    for connection in (connections[0], *connections[2:]):
        assert read_reply(connection).status == 200
        connection.close()
    until(lambda: is_idle(demo_server), "a free engine")
    assert watch.tickets[1].statistics.steps == 0


def test_short_requests_do_not_keep_a_long_answer_from_going_on(
    demo_server: Running, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many come one after the other, and though each goes first when it is new."""
    monkeypatch.setattr("specchat.sharing.answer_turn.SLICE_SECONDS", 0.02)
    monkeypatch.setattr("specchat.sharing.ticket_line.MOST_SECONDS_PASSED_OVER", 0.1)
    long = sent(demo_server, stream=True)
    until(lambda: watch.has_more_steps(0), "a step")
    ticket = watch.tickets[0]
    is_over = threading.Event()

    def keep_asking() -> None:
        while not is_over.is_set():
            with closing(sent(demo_server, max_tokens=8)) as connection:
                read_reply(connection)

    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            pool.submit(keep_asking)
        until(lambda: demo_server.service.engine.num_running > 1, "other answers")
        for _ in range(3):
            steps = ticket.statistics.steps
            until(partial(_has_gone_on, ticket, steps), "another step of the long answer")
        is_over.set()
    long.close()
    until(lambda: is_idle(demo_server), "a free engine")


def test_new_requests_have_their_first_turns_in_order(demo_server: Running, watch: Watch) -> None:
    """One that has been let in is not passed over by those that come after it."""
    ended: list[int] = []

    def note(progress: ServedRequest) -> None:
        if progress.state == "over" and progress.number not in ended:
            ended.append(progress.number)

    def are_sent(count: int) -> bool:
        return len(watch.tickets) == count

    watch.do_when = note
    with held(demo_server):
        connections = []
        for number in range(1, MOST_IN_TURN + 4):
            connections.append(sent(demo_server, max_tokens=1))
            until(partial(are_sent, number), "a queued request")
    for connection in connections:
        assert read_reply(connection).status == 200
        connection.close()
    until(lambda: len(ended) == len(connections), "the end of all")
    assert ended == sorted(ended)


def _has_gone_on(ticket: Ticket, steps: int) -> bool:
    return ticket.statistics.steps > steps + 5 or ticket.is_over


def test_a_full_queue_refuses_what_is_too_much(
    demo_server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 64 requests at once, 4 take turns and 8 wait; the others may try again later."""
    monkeypatch.setattr(demo_server.service.engine._line, "_most_waiting", 8)
    with ThreadPoolExecutor(64) as pool, held(demo_server):
        connections = [
            sent(demo_server, stream=bool(number % 2), max_tokens=3) for number in range(64)
        ]
        replies = [pool.submit(read_reply, each) for each in connections]
        until(lambda: sum(each.done() for each in replies) >= 52, "52 refusals")
        refused = [each.result() for each in replies if each.done()]
    answered = [each.result() for each in replies if each.result() not in refused]
    for connection in connections:
        connection.close()

    assert len(refused) == 52
    assert {each.status for each in refused} == {503}
    assert all(int(each.headers["retry-after"]) > 0 for each in refused)
    assert {json.loads(each.body)["error"]["code"] for each in refused} == {"queue_full"}
    assert [each.status for each in answered] == [200] * 12
    assert demo_server.chat(max_tokens=2)["usage"]["completion_tokens"] == 2


def test_a_slow_reader_does_not_hold_the_engine(demo_server: Running, watch: Watch) -> None:
    """Its answer comes to its end and waits for it; others are answered meanwhile."""
    slow = sent(demo_server, stream=True, logprobs=True, top_logprobs=20, max_tokens=400)
    assert demo_server.chat(max_tokens=2)["usage"]["completion_tokens"] == 2
    until(lambda: watch.tickets[0].is_over, "the end of the answer")
    time.sleep(0.05)
    received = b""
    while b"data: [DONE]" not in received:
        part = slow.recv(1 << 20)
        assert part
        received += part
    slow.close()
    assert received.count(b'"bytes"') >= 400 * 20
    until(lambda: is_idle(demo_server), "a free engine")


@pytest.mark.slow
def test_nothing_of_those_who_left_is_kept(demo_server: Running, watch: Watch) -> None:
    """Neither tasks nor connections, threads, descriptors or tickets."""
    process, state = psutil.Process(), demo_server.server.server_state
    counts = []
    for _ in range(3):
        for is_stream in (True, False) * 4:
            leave_when(demo_server, watch, lambda each: each.state == "writing", stream=is_stream)
        watch.tickets.clear()
        until(lambda: not state.tasks, "the end of all tasks")
        until(lambda: len(state.connections) <= 1, "closed connections")  # the fixture's client
        gc.collect()
        tickets = sum(isinstance(each, Ticket) for each in gc.get_objects())
        counts.append((process.num_fds(), process.num_threads(), tickets))
    for figures in zip(*counts, strict=True):
        assert not figures[0] < figures[1] < figures[2], figures


# --- the engine's death -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mortal(start_server: StartServer) -> Running:
    """Return a server whose engine may be killed."""
    return start_server()


@pytest.mark.slow
def test_a_dead_engine_is_one_error_and_the_next_request_works(mortal: Running) -> None:
    """In a stream, or as status 500; an answer that waited for its turn goes on."""
    counts = []
    for is_stream in (True, False, True):
        with watching(mortal) as watch:
            connections = [sent(mortal, stream=is_stream) for _ in range(2)]
            until(lambda: any(each.statistics.steps for each in watch.tickets), "a step")
            engine: Any = mortal.service.engine._owned._engine
            engine.kill()
            until(lambda: any(each.is_over for each in watch.tickets), "the end of an answer")
            steps = watch.steps()
            assert sum(each.is_over for each in watch.tickets) == 1
            until(partial(watch.has_more_steps, steps), "another step of the other")
            first = watch.tickets[0].is_over
            failed, other = connections if first else reversed(connections)
            other.close()
            _require_one_error(read_reply(failed), is_stream=is_stream)
            failed.close()
        assert mortal.chat(max_tokens=2)["usage"]["completion_tokens"] == 2
        until(lambda: is_idle(mortal), "a free engine")
        gc.collect()
        process = psutil.Process()
        counts.append((process.num_fds(), process.num_threads(), len(process.children())))
    for figures in zip(*counts, strict=True):
        assert not figures[0] < figures[1] < figures[2], figures


def _require_one_error(reply: Reply, *, is_stream: bool) -> None:
    """Check that a reply ends in one error, which says that the engine failed."""
    assert reply.body.count(b'"error"') == 1
    assert reply.status == (200 if is_stream else 500)
    body = reply.body.rpartition(b"data: ")[2] if is_stream else reply.body
    error, _ = json.JSONDecoder().raw_decode(body.decode())
    assert error["error"]["code"] == "engine_failed"
    assert "engine process" in error["error"]["message"]
