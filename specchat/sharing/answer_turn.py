"""A turn of answers that share the engine: they may be interrupted and go on later."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TypeAlias

from specchat.decoding.chunk import Finish
from specchat.engine.api import Engine
from specchat.errors import EngineFailed, SpecchatError
from specchat.requests.answer_request import AnswerRequest
from specchat.requests.answer_update import Update
from specchat.requests.progress import Progress, Stage
from specchat.sharing.tickets import Ticket

SLICE_SECONDS, MOST_SLICE_SECONDS = 0.5, 2.0
"""How long answers go on while others wait, before one of them goes on."""
LEAST_TIMES = 10
"""A slice lasts at least this many times what going on took, most of it for setting one text aside
and restoring another, but not more than MOST_SLICE_SECONDS, or than going on took."""
SHARE_ERROR = 0.02
"""A share of a prompt that may be read again without harm: the last token is, for one."""

End: TypeAlias = tuple[Ticket, Finish | SpecchatError]
"""An answer that is over, and why."""


class Turn:
    """A turn of one answer with the engine, or of several that are decoded together."""

    def __init__(
        self,
        engine: Engine,
        tickets: Sequence[Ticket],
        is_wanted: Callable[[], bool],
        may_join: Callable[[], bool],
    ) -> None:
        """Prepare a turn.

        `is_wanted` says whether another request waits for the engine, and `may_join` whether one
        could be decoded together with these.
        """
        self._engine, self._is_wanted, self._may_join = engine, is_wanted, may_join
        self._parts = [_Part(ticket) for ticket in tickets]
        self._left = set(range(len(self._parts)))
        """The numbers of the answers that have not ended."""
        self._began = monotonic()
        self._ends_at = self._began + SLICE_SECONDS
        self._must_lengthen = any(part.begun or part.expected for part in self._parts)
        self._is_interrupted = False

    def take(self) -> Iterator[End]:
        """Decode until all answers end or their time is up; yield those that end."""
        left = self._left
        for part in self._parts:
            part.ticket.set_place(0)
        with closing(self._updates()) as updates:
            if self._has_cancelled:  # before it had begun, which forgets an earlier stop
                self._engine.stop()
            for number, update in updates:
                self._lengthen()
                part = self._parts[number]
                goes_on = update.finish == "cancelled" and self._goes_on(part)
                has_advanced = part.add(update, goes_on=goes_on)
                if goes_on:
                    part.ticket.end_turn(update.statistics)
                    left.discard(number)
                elif end := update.error or update.finish:
                    left.discard(number)
                    yield part.ticket, end
                elif has_advanced:  # a turn that only repeats what there is would never get on
                    self._check()
                if not left:
                    return
        raise EngineFailed("the answer has no end")

    def _updates(self) -> Generator[tuple[int, Update]]:
        """Begin the answers, and yield their updates with their numbers."""
        requests = [self._request(part) for part in self._parts]
        if len(requests) > 1:
            return self._engine.begin_together(requests)
        return _numbered(self._engine.begin(requests[0]))

    def _request(self, part: "_Part") -> AnswerRequest:
        """Return a request, to be continued from the steps that there are.

        Where others wait for its drafts, too, what pays decides how long they are.
        """
        asked = part.ticket.request(self._engine.facts)
        left = asked.max_tokens and asked.max_tokens - part.num_emitted
        begun, on_progress = part.begun or asked.begun, partial(self._on_progress, part)
        length = asked.draft_length and "auto" if len(self._parts) > 1 else asked.draft_length
        return replace(
            asked,
            begun=begun,
            max_tokens=left,
            draft_length=length,
            part_of=part.ticket.number,
            on_progress=on_progress,
        )

    def _lengthen(self) -> None:
        """Lengthen the turn at its first news if it took long to go on with an answer.

        No prompt is read by then: steps that there are come first, and how much is read of one.
        """
        if self._must_lengthen:
            self._must_lengthen = False
            seconds = monotonic() - self._began
            most = max(MOST_SLICE_SECONDS, seconds)  # at worst, half the time is for writing
            self._ends_at = monotonic() + max(SLICE_SECONDS, min(LEAST_TIMES * seconds, most))

    @property
    def _has_cancelled(self) -> bool:
        return any(self._parts[number].ticket.is_cancelled for number in self._left)

    def _goes_on(self, part: "_Part") -> bool:
        """Whether an answer that was stopped goes on in a later turn.

        One that was given up stopped the others, too, and may have ended before them.
        """
        is_given_up = any(each.ticket.is_cancelled for each in self._parts)
        return (self._is_interrupted or is_given_up) and not part.ticket.is_cancelled

    def _on_progress(self, part: "_Part", stage: Stage, share: float) -> None:
        """Note how much of a prompt is read; a turn ends after another part of it.

        If the engine had no room to keep what it read, the answer is not interrupted any more:
        it would not get on.
        """
        ticket = part.ticket
        self._lengthen()
        ticket.report(Progress(stage, share))
        if stage != "prompt":
            self._check()
            return
        if part.share is None and share < part.expected - SHARE_ERROR:
            ticket.may_be_interrupted = False
        has_advanced = part.share is not None and share > part.share
        part.share = share
        if has_advanced:
            self._check()
        elif ticket.is_cancelled:
            self._engine.stop()

    def _check(self) -> None:
        """Stop the answers if another one waits and their time is up, or if one is given up."""
        tickets = [self._parts[number].ticket for number in self._left]
        is_due = all(ticket.may_be_interrupted for ticket in tickets) and (
            self._may_join() or (monotonic() >= self._ends_at and self._is_wanted())
        )
        if self._has_cancelled and len(tickets) == 1:
            self._engine.stop()
        elif is_due or self._has_cancelled:
            self._is_interrupted = self._is_interrupted or is_due
            self._engine.pause()


class _Part:
    """An answer in a turn."""

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.begun = tuple(ticket.begun)
        self.num_emitted = ticket.statistics.generated_tokens
        self.expected = ticket.share_read
        """How much of the prompt was read before this turn."""
        self.share: float | None = None
        self._num_repeated = len(self.begun)

    def add(self, update: Update, *, goes_on: bool) -> bool:
        """Add the steps of an update to the ticket; return whether there are new ones."""
        chunks = update.chunks[self._num_repeated :]
        self._num_repeated = max(0, self._num_repeated - len(update.chunks))
        if goes_on:
            chunks = chunks[:-1]  # the last one only says that it was stopped
        if chunks:
            self.ticket.add(chunks, update.statistics)
        return bool(chunks)


def _numbered(updates: Generator[Update]) -> Generator[tuple[int, Update]]:
    """Yield the updates of a single answer with its number."""
    with closing(updates):
        for update in updates:
            yield 0, update
