"""Steps of an answer become parts in order; a quiet stream shows that its answer goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from specchat.decoding.chunk import Chunk, ToolCall
from specchat.decoding.statistics import Statistics
from specchat.requests.answer_request import GenerateRequest
from specchat.requests.answer_update import Update
from specchat.requests.progress import Progress
from specchat.server import api_reply
from specchat.server.activity import ServedRequest
from specchat.server.api_reply import Ended, EventWriter, Reply, progress_text
from specchat.server.reply_parts import PartEvent, ReplyParts
from specchat.server.served_answer import ServedAnswer
from tables import table

CALL = ToolCall("look", '{"at": 1}', "c1")
STEP = Chunk("", (1,))


def told(events: list[PartEvent]) -> list[tuple[Any, ...]]:
    """Return what happened in short."""
    return [(each.position, each.part.kind, each.what, each.text) for each in events]


def test_parts_follow_one_another_in_the_order_of_the_steps() -> None:
    """What steps of one update add to a part is told at once."""
    parts = ReplyParts()

    begun = parts.add([Chunk("", reasoning="H"), Chunk("", reasoning="m"), Chunk("So", (1,))])
    called = parts.add(
        [Chunk("."), Chunk("", tool_calls=(CALL,)), Chunk("!", finish="stop")], "stop"
    )

    assert told(begun) == [
        (0, "reasoning", "begin", ""),
        (0, "reasoning", "grow", "Hm"),
        (0, "reasoning", "end", ""),
        (1, "text", "begin", ""),
        (1, "text", "grow", "So"),
    ]
    assert told(called) == [
        (1, "text", "grow", "."),
        (1, "text", "end", ""),
        (2, "call", "begin", ""),
        (2, "call", "grow", CALL.arguments),
        (2, "call", "end", ""),
        (3, "text", "begin", ""),
        (3, "text", "grow", "!"),
        (3, "text", "end", ""),
    ]
    assert [each.text for each in parts.parts] == ["Hm", "So.", CALL.arguments, "!"]


@table(
    ("chunks", "kinds"),
    [
        ([], ["text"]),
        ([Chunk("", reasoning="Hm")], ["reasoning", "text"]),
        ([Chunk("", tool_calls=(CALL,))], ["call"]),
    ],
)
def test_an_answer_without_text_or_call_has_an_empty_text(
    chunks: list[Chunk], kinds: list[str]
) -> None:
    """Many programs read the first text without looking whether there is one."""
    parts = ReplyParts()
    events = parts.add(chunks, "stop")

    assert [each.kind for each in parts.parts] == kinds
    assert sum(each.what == "begin" for each in events) == len(kinds)
    assert sum(each.what == "end" for each in events) == len(kinds)


def test_what_was_open_at_the_limit_is_cut() -> None:
    """A call is whole as soon as it is there."""
    text, called = ReplyParts(), ReplyParts()
    text.add([Chunk("So")], "length")
    called.add([Chunk("", tool_calls=(CALL,))], "length")

    assert [each.is_cut for each in (*text.parts, *called.parts)] == [True, False]


def update(*chunks: Chunk, place: int = 0, share: float = 0.0, tokens: int = 0) -> Update:
    """Return what is new of a request."""
    statistics, progress = Statistics(generated_tokens=tokens), Progress("prompt", share)
    return Update(chunks, statistics, progress, place)


class TextWriter(EventWriter):
    """Writes only texts, as an API that sends a tool call once it is complete."""

    def begin(self, answer: ServedAnswer) -> bytes:
        """Return a mark."""
        return b"begin "

    def write(self, answer: ServedAnswer, chunks: Sequence[Chunk]) -> bytes:
        """Return the text of steps."""
        return "".join(chunk.text for chunk in chunks).encode()

    def end(self, ended: Ended) -> bytes:
        """Return a mark."""
        return b"end"


def streamed(*updates: Update) -> list[str]:
    """Return what is sent of an answer with these updates."""

    async def updating() -> AsyncIterator[Update]:
        for each in updates:
            yield each

    served = ServedRequest(1, "curl", "text", "demo", began=0.0)
    answer = SimpleNamespace(served=served, updates=updating)
    facts = SimpleNamespace(lacks_exactness=lambda _: False)
    service: Any = SimpleNamespace(answer=lambda *_, **__: nullcontext(answer), facts=facts)
    request = GenerateRequest("Hello")
    reply = Reply(service, "text", "curl", "demo", [request], is_verified=False)

    async def sent() -> list[str]:
        return [data.decode() async for data in reply.streamed(request, TextWriter())]

    return asyncio.run(sent())


def test_a_stream_without_events_shows_now_and_then_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At once if no step came for long, else after a while."""
    quiet, busy = update(place=2), update(STEP, tokens=7)
    text = update(Chunk("So"))
    begun = "begin : queued, 2 before this\n\n"
    assert streamed(quiet, busy, text) == [begun, "So", "end"]
    monkeypatch.setattr(api_reply, "QUIET_SECONDS", 0.0)
    assert streamed(quiet, busy, text) == [begun, ": writing, 7 tokens\n\n", "So", "end"]


def test_progress_is_the_place_then_the_prompt_then_the_tokens() -> None:
    """In the words of comments in a stream."""
    assert progress_text(update(place=2)) == "queued, 2 before this"
    assert progress_text(update(share=0.5)) == "reading the prompt, 50%"
    assert progress_text(update(STEP, share=1.0, tokens=7)) == "writing, 7 tokens"
