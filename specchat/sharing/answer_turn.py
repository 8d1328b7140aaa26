"""A turn of an answer that shares the engine with others: it may be interrupted and go on later."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from time import monotonic

from specchat.decoding.chunk import Finish
from specchat.engine.api import Engine
from specchat.errors import EngineFailed
from specchat.requests.answer_request import AnswerRequest
from specchat.requests.progress import Progress, Stage
from specchat.sharing.tickets import Ticket

SLICE_SECONDS = 1.0
"""How long an answer goes on while others wait, before one of them goes on."""
SHARE_ERROR = 0.02
"""A share of a prompt that may be read again without harm: the last token is, for one."""


class Turn:
    """A turn of one answer with the engine."""

    def __init__(self, engine: Engine, ticket: Ticket, is_wanted: Callable[[], bool]) -> None:
        """Prepare a turn; `is_wanted` says whether another request waits for the engine."""
        self._engine, self._ticket, self._is_wanted = engine, ticket, is_wanted
        self._num_emitted = ticket.statistics.generated_tokens
        self._begun = tuple(ticket.begun)
        self._expected = ticket.share_read
        self._ends_at = monotonic() + SLICE_SECONDS
        self._share: float | None = None
        self._is_interrupted = False

    def take(self) -> Finish | None:
        """Decode until the answer ends or its time is up; return None in that case."""
        ticket, num_repeated = self._ticket, len(self._begun)
        ticket.set_place(0)
        with closing(self._engine.begin(self._request())) as updates:
            if ticket.is_cancelled:  # before it had begun, which forgets an earlier stop
                self._engine.stop()
            for update in updates:
                chunks = update.chunks[num_repeated:]
                num_repeated = max(0, num_repeated - len(update.chunks))
                is_interrupted = self._is_interrupted and not ticket.is_cancelled
                if update.finish == "cancelled" and is_interrupted:
                    if steps := chunks[:-1]:  # the last chunk only says that it was stopped
                        ticket.add(steps, update.statistics)
                    ticket.end_turn(update.statistics)
                    return None
                if chunks:
                    ticket.add(chunks, update.statistics)
                if update.finish:
                    return update.finish
                if chunks:  # a turn that only repeats what there is would never get on
                    self._check()
        raise EngineFailed("the answer has no end")

    def _request(self) -> AnswerRequest:
        """Return the request, to be continued from the steps that there are."""
        asked = self._ticket.request(self._engine.facts)
        left = asked.max_tokens and asked.max_tokens - self._num_emitted
        begun = self._begun or asked.begun
        return replace(asked, begun=begun, max_tokens=left, on_progress=self._on_progress)

    def _on_progress(self, stage: Stage, share: float) -> None:
        """Note how much of the prompt is read; a turn ends after another part of it.

        If the engine had no room to keep what it read, the answer is not interrupted any more:
        it would not get on.
        """
        self._ticket.report(Progress(stage, share))
        if stage != "prompt":
            self._check()
            return
        if self._share is None and share < self._expected - SHARE_ERROR:
            self._ticket.may_be_interrupted = False
        has_advanced = self._share is not None and share > self._share
        self._share = share
        if has_advanced:
            self._check()
        elif self._ticket.is_cancelled:
            self._engine.stop()

    def _check(self) -> None:
        """Stop the answer if its time is up and another one waits, or if it is given up."""
        is_due = self._ticket.may_be_interrupted and monotonic() >= self._ends_at
        is_due = is_due and self._is_wanted()
        if self._ticket.is_cancelled or is_due:
            self._is_interrupted = self._is_interrupted or is_due
            self._engine.stop()
