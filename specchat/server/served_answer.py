"""An answer that is being sent to a client: what has come of it, and how to wait for more."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from specchat.decoding.chunk import Chunk, Finish, ToolCall
from specchat.decoding.statistics import Statistics
from specchat.errors import Cancelled
from specchat.formats.call_reading import NUMBERED_ID
from specchat.requests.answer_update import Update
from specchat.server.activity import ServedRequest
from specchat.server.line_limit import LineLimit
from specchat.server.prompts import ENDING
from specchat.sharing.tickets import Ticket

SECONDS_TO_COMMENT, SILENT_SECONDS = 2.0, 10.0
"""A stream has a comment if no step comes for this long, at first and later. Before the first one
an error still has a status of its own."""

Observer: TypeAlias = Callable[[ServedRequest], None]
"""Called on the server's own thread when a request begins, advances and ends."""


@dataclass(slots=True)
class ServedAnswer:
    """An answer in progress: what has come of it so far, and how to wait for more."""

    served: ServedRequest
    ticket: Ticket
    _changed: asyncio.Event
    _observe: Observer
    _limit: LineLimit | None = None
    chunks: list[Chunk] = field(default_factory=list)
    finish: Finish | None = None

    @property
    def text(self) -> str:
        """The text so far, without reasoning."""
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return "".join(chunk.reasoning for chunk in self.chunks)

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls so far."""
        return [call for chunk in self.chunks for call in chunk.tool_calls]

    @property
    def tokens(self) -> list[int]:
        """The tokens so far, reasoning included."""
        return [token for chunk in self.chunks for token in chunk.tokens]

    @property
    def stop_string(self) -> str:
        """The stop string that ended the answer; empty if none did."""
        return self.chunks[-1].stop_string if self.chunks else ""

    @property
    def statistics(self) -> Statistics:
        """The statistics so far."""
        return self.served.statistics

    async def updates(self) -> AsyncIterator[Update]:
        """Yield the steps until the answer is over.

        While there are none, an update without steps comes now and then, of which a stream makes a
        comment. Raises the error that the answer failed with, or Cancelled if it was stopped.
        """
        loop = asyncio.get_running_loop()
        silent_until = loop.time() + SECONDS_TO_COMMENT
        alarm = loop.call_at(silent_until, self._changed.set)
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                update = self._limited(self._with_call_ids(self.ticket.take()))
                self._follow(update)
                if update.error is not None:
                    raise update.error
                if update.finish == "cancelled":
                    raise Cancelled(ENDING)
                if update.chunks or update.is_over or loop.time() >= silent_until:
                    yield update
                    silent_until = loop.time() + SILENT_SECONDS
                if update.is_over:
                    return
                if alarm.when() <= loop.time():  # one for many steps: setting it takes time
                    alarm = loop.call_at(silent_until, self._changed.set)
        finally:
            alarm.cancel()

    async def whole(self) -> "ServedAnswer":
        """Wait for the end."""
        async for _ in self.updates():
            pass
        return self

    def _with_call_ids(self, update: Update) -> Update:
        """Return an update whose tool calls have ids that no other answer has.

        Agents tell all calls of a conversation apart by them. They have nine letters or digits,
        because Mistral's templates refuse any others.
        """
        if not any(chunk.tool_calls for chunk in update.chunks):
            return update
        number, chunks = len(self.tool_calls), list[Chunk]()
        for chunk in update.chunks:
            numbered = enumerate(chunk.tool_calls, number)
            calls = tuple([_with_own_id(call, each) for each, call in numbered])
            chunks.append(chunk._replace(tool_calls=calls))
            number += len(calls)
        return replace(update, chunks=tuple(chunks))

    def _limited(self, update: Update) -> Update:
        """Return an update that ends the answer if its text comes to the limit on lines."""
        if self._limit is None:
            return update
        for place, chunk in enumerate(update.chunks):
            kept = self._limit.find_end(chunk.text, update.statistics.decode_s)
            if kept is not None:
                last = chunk._replace(text=chunk.text[:kept])
                return replace(update, chunks=(*update.chunks[:place], last), finish="length")
        return update

    def _follow(self, update: Update) -> None:
        served = self.served
        self.chunks += update.chunks
        served.statistics = update.statistics
        served.place = update.place
        served.share = update.progress.share if update.progress else 0.0
        served.waited_s = self.ticket.waited_s
        if update.is_over:
            self.finish = update.finish
            served.state = "over"
            served.finish = "failed" if update.error else update.finish
            served.error = str(update.error or "")
        elif update.statistics.generated_tokens:
            served.state = "writing"
        elif not update.place:
            served.state = "reading"
        self._observe(served)


def _with_own_id(call: ToolCall, number: int) -> ToolCall:
    """Return a tool call with an id of its own; one that the model wrote is kept."""
    is_numbered = call.id == NUMBERED_ID.format(number)
    return call._replace(id=secrets.token_hex(5)[:9]) if is_numbered else call
