"""The line of a shared engine: who is let in, and who shares a turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic

import pytest

from scripted_chat import FACTS
from specchat.requests.answer_request import GenerateRequest
from specchat.sharing import ticket_line
from specchat.sharing import tickets as tickets_module
from specchat.sharing.ticket_line import TicketLine
from specchat.sharing.tickets import QueueFull, Ticket
from tables import table

TWO_AT_ONCE = replace(FACTS, takes_turns=True, at_once=2)


def tickets(count: int, *, is_served: bool = True) -> list[Ticket]:
    """Return the tickets of as many clients."""
    asked = GenerateRequest(prompt=[5])
    return [
        Ticket(asked, f"{number}{is_served}", lambda: None, is_served=is_served)
        for number in range(count)
    ]


def line_of(waiting: Sequence[Ticket], most_waiting: int = 32) -> TicketLine:
    """Return a line in which these wait, as many as may."""
    line = TicketLine(most_waiting)
    with suppress(QueueFull):
        for number, ticket in enumerate(waiting):
            ticket.number = number + 1
            line.add(ticket)
    return line


def take_turn(line: TicketLine) -> list[Ticket]:
    """Let those in that may, and return those of the next turn, which is then over."""
    line.let_in(TWO_AT_ONCE)
    group = line.group(TWO_AT_ONCE.at_once)
    for ticket in group:
        ticket.begin_turn()
        line.rotate(ticket)
    return group


def test_the_user_of_this_program_is_in_each_turn() -> None:
    """In the first after it asks, beside four that take turns, who share what is left."""
    others, [own] = tickets(6), tickets(1, is_served=False)
    line = line_of(others)
    assert take_turn(line) == others[:2]
    line.add(own)
    assert line.is_urgent
    assert own.place == 1  # whose turn is interrupted
    assert [each.place for each in others[4:]] == [5, 6]
    turns = [take_turn(line) for _ in range(5)]
    assert turns[0][0] is own
    assert all(own in turn for turn in turns)
    shared = [each for turn in turns for each in turn if each is not own]
    assert {others.index(each) for each in shared} == {0, 1, 2, 3}
    assert not line.is_urgent
    assert line.waiting == others[4:]


def test_alone_in_a_turn_the_user_of_this_program_takes_turns_too() -> None:
    """Else another program would wait for the end of a long answer."""
    others, [own] = tickets(2), tickets(1, is_served=False)
    line, facts = line_of([*others, own]), replace(FACTS, takes_turns=True)
    given = list[Ticket]()
    for _ in range(6):
        line.let_in(facts)
        [ticket] = line.group(facts.at_once)
        ticket.begin_turn()
        line.rotate(ticket)
        given.append(ticket)
    assert given == [own, *others] * 2


def test_no_turn_of_others_comes_before_the_first_of_the_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where turns are so long that an answer that was passed over goes before new ones."""
    now, step = [monotonic()], 2.0
    for module in (ticket_line, tickets_module):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    others, [own, late] = tickets(4), tickets(2, is_served=False)
    line, facts = line_of(others), replace(FACTS, takes_turns=True)
    given = list[Ticket]()
    for number in range(10):
        for ticket in {6: [own], 8: [late]}.get(number, []):
            line.add(ticket)
        line.let_in(facts)
        [ticket] = line.group(facts.at_once)
        ticket.begin_turn()
        now[0] += step
        line.rotate(ticket)
        given.append(ticket)
    assert given == [*others, *others[:2], own, others[2], others[3], others[0]]
    line.remove(others[3])
    line.let_in(facts)
    assert line.active[0] is late


def test_nobody_goes_before_an_answer_whose_text_cannot_be_set_aside() -> None:
    """The user of this program is next, but that answer ends first."""
    others, [own] = tickets(3), tickets(1, is_served=False)
    line, facts = line_of(others), replace(FACTS, takes_turns=False)
    line.let_in(facts)
    line.add(own)
    assert not line.is_urgent
    line.let_in(facts)
    assert [*line.active] == others[:1]
    line.remove(others[0])
    line.let_in(facts)
    assert [*line.active] == [own]


@pytest.mark.parametrize("num_free", [1, 4, 8])
def test_only_what_really_waits_counts_in_the_queue(num_free: int) -> None:
    """Beside the free turns two may wait; the user of this program is never refused."""
    served, [own] = tickets(12), tickets(1, is_served=False)
    line = TicketLine(2)
    line.let_in(replace(FACTS, takes_turns=num_free == 4, at_once=num_free))
    for ticket in served[: num_free + 2]:
        line.add(ticket)
    with pytest.raises(QueueFull):
        line.add(served[-1])
    line.add(own)
    assert line.waiting[-1] is own


def let_in_one_by_one(line: TicketLine) -> Iterator[str]:
    """Yield the client whose request is let in next, after the end of the one before."""
    facts = replace(FACTS, takes_turns=False)
    while line.waiting:
        line.let_in(facts)
        [ticket] = line.active
        yield ticket.client
        line.remove(ticket)


def add(line: TicketLine, client: str, number: int) -> None:
    """Let a request of a client wait."""
    ticket = Ticket(GenerateRequest(prompt=[5]), client, lambda: None, is_served=True)
    ticket.number = number
    line.add(ticket)


@table("order", ["aaaabb", "aabbaa", "bbaaaa", "bbcaaaac"])
def test_clients_take_turns_whoever_came_first(order: str) -> None:
    """One of each before the next of the same one, which may have come long before."""
    line = TicketLine(32)
    for number, client in enumerate(order, 1):
        add(line, client, number)
    given = "".join(let_in_one_by_one(line))
    num_clients = len({*order})
    assert sorted(given) == sorted(order)
    assert {*given[:num_clients]} == {*given[num_clients : 2 * num_clients]} == {*order}


def test_new_names_do_not_pass_one_that_waits() -> None:
    """A program could send another one with each request."""
    line = TicketLine(32)
    for number, client in enumerate(["known", "other", "known"], 1):
        add(line, client, number)
    given, names = let_in_one_by_one(line), list[str]()
    for number in range(4, 400):
        add(line, f"new {number}", number)
        names.append(next(given))
        if names.count("known") == 2:
            break
    assert names.count("known") == 2
    assert len(names) <= 6


def test_a_new_client_waits_for_one_of_each_other_at_most() -> None:
    """However many requests these have waiting."""
    line = TicketLine(64)
    for number in range(20):
        add(line, "ab"[number % 2], number + 1)
    given = let_in_one_by_one(line)
    assert [next(given) for _ in range(6)] == list("ababab")
    add(line, "new", 21)
    assert "new" in [next(given) for _ in range(3)]
    assert list(given)[-1] in "ab"
