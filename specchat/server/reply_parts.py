"""The parts of an answer in order: reasoning, texts and tool calls, as they begin, grow and end."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from specchat.decoding.chunk import Chunk, Finish, ToolCall
from specchat.requests.answer_request import ChatRequest
from specchat.server.api_errors import ApiError
from specchat.server.api_reply import Ended, EventWriter, Reply
from specchat.server.replies import EventStream, Whole
from specchat.server.served_answer import ServedAnswer

PartKind: TypeAlias = Literal["reasoning", "text", "call"]


@dataclass(slots=True)
class ReplyPart:
    """A part of an answer; the `text` of a tool call are its arguments.

    With `is_cut` the answer ended before the part was whole.
    """

    kind: PartKind
    text: str = ""
    call: ToolCall | None = None
    is_cut: bool = False


class PartEvent(NamedTuple):
    """What happened to the part at a position; `text` is what it has grown by."""

    what: Literal["begin", "grow", "end"]
    position: int
    part: ReplyPart
    text: str = ""


class ReplyParts:
    """Collects the steps of an answer into parts, for APIs whose replies are lists of them.

    A reply with one text takes it from `ServedAnswer`, which has no order of parts.
    """

    def __init__(self) -> None:
        """Start with no rounds."""
        self.parts: list[ReplyPart] = []
        self._is_open = False
        self._events: list[PartEvent] = []

    def add(self, chunks: Iterable[Chunk], finish: Finish | None = None) -> list[PartEvent]:
        """Add steps, which end the answer if there is a `finish`; return what happened to parts.

        An answer without any text or call has one empty text, where many programs look for one.
        """
        for chunk in chunks:
            self._grow("reasoning", chunk.reasoning)
            self._grow("text", chunk.text)
            for call in chunk.tool_calls:
                self._begin(ReplyPart("call", call=call))
                self._extend(call.arguments)
                self._end()
        if finish:
            is_cut = finish != "stop"
            if self._is_open:
                self.parts[-1].is_cut = is_cut
            if all(part.kind == "reasoning" for part in self.parts):
                self._begin(ReplyPart("text", is_cut=is_cut))
            self._end()
        events, self._events = self._events, []
        return events

    def _grow(self, kind: PartKind, text: str) -> None:
        if not text:
            return
        if not self._is_open or self.parts[-1].kind != kind:
            self._begin(ReplyPart(kind))
        self._extend(text)

    def _begin(self, part: ReplyPart) -> None:
        self._end()
        self.parts.append(part)
        self._is_open = True
        self._note("begin")

    def _extend(self, text: str) -> None:
        self.parts[-1].text += text
        latest = self._events[-1] if self._events else None
        if latest is not None and latest.what == "grow" and latest.part is self.parts[-1]:
            text = self._events.pop().text + text
        self._note("grow", text)

    def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._note("end")

    def _note(self, what: Literal["begin", "grow", "end"], text: str = "") -> None:
        self._events.append(PartEvent(what, len(self.parts) - 1, self.parts[-1], text))


class PartWriter(EventWriter):
    """Writes an answer whole, or as events of its parts."""

    def __init__(self) -> None:
        """Begin without parts."""
        self._collected = ReplyParts()

    @property
    def parts(self) -> list[ReplyPart]:
        """The parts of the answer so far."""
        return self._collected.parts

    def write(self, answer: ServedAnswer, chunks: Sequence[Chunk]) -> bytes:
        """Return the events for what steps did to parts."""
        return b"".join(map(self.write_part, self._collected.add(chunks, answer.finish)))

    @abstractmethod
    def write_part(self, happened: PartEvent) -> bytes:
        """Return the events for what happened to a part."""

    @abstractmethod
    def whole(self, ended: Ended) -> dict[str, Any]:
        """Return an answer that is over, whose `parts` are known, as one object."""

    @abstractmethod
    def failed(self, error: ApiError) -> bytes:
        """Return the event that ends the stream of an answer that failed."""

    def reply(self, reply: Reply[ChatRequest], *, is_stream: bool) -> EventStream | Whole:
        """Return the reply to a conversation's only request."""
        (request,) = reply.requests
        if is_stream:
            return EventStream(reply.streamed(request, self), self.failed)

        async def make() -> dict[str, Any]:
            ended = await reply.whole(request)
            self._collected.add(ended.answer.chunks, ended.answer.finish)
            return self.whole(ended)

        return Whole(make)
