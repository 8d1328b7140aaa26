"""Who is answered next: the line of requests that wait, and those that take turns."""

from collections import deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from time import monotonic

from specchat.engine.api import EngineFacts
from specchat.sharing.tickets import QueueFull, Ticket

MOST_SECONDS_PASSED_OVER = 3.0
"""How long new requests may go before an answer that waits for a turn: longer than a usual turn."""
MOST_IN_TURN = 4
"""Answers that take turns; the others wait until one of these has ended."""
MOST_CLIENTS = 100
"""Clients that are remembered."""


def most_in_turn(facts: EngineFacts) -> int:
    """Return how many answers may be in progress: texts that cannot be set aside stay in memory."""
    return max(MOST_IN_TURN if facts.takes_turns else 1, facts.at_once)


class TicketLine:
    """The tickets of a shared engine, which guards them with its lock.

    Clients are let in one after the other, however many requests each has waiting: first the one
    that was let in longest ago, or that came then with a new name, as names come from outside. The
    user of this program goes before those of others: in the line, into a turn, and beyond the
    number of answers that take turns. An `aside` is answered while there is nothing else.
    """

    def __init__(self, most_waiting: int) -> None:
        """Begin with an empty line."""
        self.waiting: list[Ticket] = []
        self.active: deque[Ticket] = deque()
        """Those that have begun; the first one has the next turn."""
        self.aside: Ticket | None = None
        self._most_in_turn = self._most_of_own = MOST_IN_TURN
        self._most_waiting = most_waiting
        self._num_let_in = 0
        self._last_turns: dict[str, int] = {}
        """By client: the number of its last turn. A new one comes just before the latest."""

    def __iter__(self) -> Iterator[Ticket]:
        """Yield all tickets."""
        aside = [self.aside] if self.aside else []
        return iter([*self.active, *self.waiting, *aside])

    @property
    def is_empty(self) -> bool:
        """Whether there is none but perhaps an aside."""
        return not (self.waiting or self.active)

    @property
    def may_let_in(self) -> bool:
        """Whether a waiting ticket could take turns now."""
        return self._lets_in(len(self.active))

    @property
    def is_urgent(self) -> bool:
        """Whether the user of this program waits, and could take turns now."""
        return self.may_let_in and not self._in_order()[0].is_served

    def _lets_in(self, num_active: int) -> bool:
        """Whether the next ticket that waits may take turns beside so many."""
        if not self.waiting:
            return False
        is_served = self._in_order()[0].is_served
        return num_active < (self._most_in_turn if is_served else self._most_of_own)

    def has_others(self, than: Collection[Ticket]) -> bool:
        """Whether another ticket than these could have a turn now."""
        return self.may_let_in or any(each not in than for each in self.active)

    def could_join(self, group: Collection[Ticket]) -> bool:
        """Whether another ticket than these could be decoded together with them."""
        others = [each for each in self.active if each not in group]
        return self.may_let_in or any(each.may_be_interrupted for each in others)

    def group(self, most: int) -> list[Ticket]:
        """Return the tickets of the next turn: the first, and those decoded together with it."""
        first, *others = self.active
        if not first.may_be_interrupted:
            return [first]
        joining = [each for each in others if each.may_be_interrupted]
        joining.sort(key=lambda each: each.is_served)
        return [first, *joining[: max(0, most - 1)]]

    def add(self, ticket: Ticket) -> None:
        """Let a ticket wait; those that a free turn is about to take do not count.

        Raises QueueFull.
        """
        num_free = max(0, self._most_in_turn - len(self.active))
        if ticket.is_served and len(self.waiting) - num_free >= self._most_waiting:
            raise QueueFull(f"{self._most_waiting} requests are waiting: try again later")
        self.waiting.append(ticket)
        self._remember(ticket.client, self._last_turns.get(ticket.client, self._num_let_in - 1))
        self.tell_places()

    def _remember(self, client: str, last_turn: int) -> None:
        self._last_turns.pop(client, None)
        self._last_turns[client] = last_turn
        if len(self._last_turns) > MOST_CLIENTS:
            del self._last_turns[next(iter(self._last_turns))]

    def remove(self, ticket: Ticket) -> None:
        """Take a ticket out, wherever it is."""
        with suppress(ValueError):
            self.active.remove(ticket)
        with suppress(ValueError):
            self.waiting.remove(ticket)
        if self.aside is ticket:
            self.aside = None

    def drop_cancelled(self, in_turn: Collection[Ticket] = ()) -> None:
        """End the tickets that were given up, but those in their turn, which ends them itself."""
        for ticket in [each for each in self if each.is_cancelled and each not in in_turn]:
            self.remove(ticket)
            ticket.end("cancelled")
        self.tell_places()

    def let_in(self, facts: EngineFacts) -> None:
        """Let waiting requests take turns, before those that have had one.

        Where texts can be set aside, the user of this program need not wait for an end.
        Short ones that come again and again could keep such a one from going on for ever, so one
        that was passed over for too long goes first, but for the user's first turn.
        """
        self._most_in_turn, new = most_in_turn(facts), list[Ticket]()
        self._most_of_own = self._most_in_turn + facts.takes_turns
        while self._lets_in(len(self.active) + len(new)):
            new.append(ticket := self._in_order()[0])
            self.waiting.remove(ticket)
            self._num_let_in += 1
            self._remember(ticket.client, self._num_let_in)
            ticket.idle_since = monotonic()
        first = [each for each in self.active if not each.num_turns]
        first = sorted([*first, *new], key=lambda each: each.is_served)
        later = [each for each in self.active if each.num_turns]
        self.active = deque([*first, *later])
        oldest = min(self.active, key=lambda each: each.idle_since, default=None)
        may_pass = not (first and not first[0].is_served)
        if oldest and may_pass and monotonic() - oldest.idle_since > MOST_SECONDS_PASSED_OVER:
            self.active.remove(oldest)
            self.active.appendleft(oldest)
        self.tell_places()

    def rotate(self, ticket: Ticket) -> None:
        """Put a ticket behind the others: its turn is over, but not its answer."""
        ticket.idle_since = monotonic()
        self.active.remove(ticket)
        self.active.append(ticket)

    def tell_places(self) -> None:
        """Tell each waiting ticket how many answers come before it."""
        order, is_urgent = self._in_order(), self.is_urgent
        for place, ticket in enumerate(order, max(1, len(self.active))):
            ticket.set_place(1 if is_urgent and ticket is order[0] else place)

    def _in_order(self) -> list[Ticket]:
        """Return the waiting requests, one of each client in turn."""
        counts: dict[str, int] = {}
        order: list[tuple[bool, int, int, int, Ticket]] = []
        for ticket in self.waiting:
            turn = counts[ticket.client] = counts.get(ticket.client, 0) + 1
            last = self._last_turns.get(ticket.client, 0)
            order.append((ticket.is_served, turn, last, ticket.number, ticket))
        return [ticket for *_, ticket in sorted(order, key=lambda each: each[:4])]
