"""`/v1/chat/completions`: OpenAI's chat API, with the additions of llama.cpp, vLLM and specchat."""

import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from time import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from specchat.decoding.chunk import Chunk, ToolCall
from specchat.requests.answer_request import ChatRequest
from specchat.server.answer_figures import figures_of, total_usage
from specchat.server.api_reply import Ended, EventWriter, Reply, asked_by, counted, reply_to
from specchat.server.bodies import read
from specchat.server.chat_body import ChatBody
from specchat.server.logprobs import chat_logprobs
from specchat.server.replies import EventStream, Whole, event
from specchat.server.served_answer import ServedAnswer

DONE = event("[DONE]")
FINISHES = {"stop": "stop", "length": "length", "context": "length"}
"""`finish_reason` by how an answer ended."""


@dataclass(frozen=True, slots=True)
class _ChatReply:
    """A reply in the making, and what this API has beside it."""

    reply: Reply[ChatRequest]
    identity: dict[str, Any]
    wants_usage: bool
    num_logprobs: int | None
    has_live_figures: bool = False
    """Whether each part of a stream has the figures so far: llama-server's `timings_per_token`."""

    def record(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return an object of the API with the identity of this reply."""
        fingerprint = self.reply.fingerprint
        return {**self.identity, "object": kind, "system_fingerprint": fingerprint, **fields}

    def logprobs(self, chunks: Sequence[Chunk]) -> dict[str, Any] | None:
        """Return the log probabilities of steps if they were asked for."""
        return None if self.num_logprobs is None else chat_logprobs(chunks, self.num_logprobs)


async def chat_completions(request: Request) -> EventStream | Whole:
    """Answer a conversation."""
    return await read(request, ChatBody, _replied)


def _replied(request: Request, body: ChatBody) -> EventStream | Whole:
    reply = reply_to(request, body, "chat")
    chat = _ChatReply(
        reply,
        {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time()),
            "model": reply.model,
        },
        wants_usage=bool(body.stream_options and body.stream_options.include_usage),
        num_logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        has_live_figures=bool(body.timings_per_token),
    )
    return EventStream(_streamed(chat)) if body.stream else Whole(lambda: _whole(chat))


async def count_chat_tokens(request: Request) -> JSONResponse:
    """Return how many tokens the prompt of a conversation has, as llama-server does."""
    return await counted(request, await read(request, ChatBody, asked_by))


async def _whole(chat: _ChatReply) -> dict[str, Any]:
    """Return the whole reply."""
    requests, choices, figures = chat.reply.requests, list[dict[str, Any]](), dict[str, Any]()
    for index, request in enumerate(requests):
        ended = await chat.reply.whole(request)
        figures = ended.figures
        choice = {
            "index": index,
            "message": message_of(ended.answer),
            "finish_reason": finish_of(ended.answer),
            "logprobs": chat.logprobs(ended.answer.chunks),
        }
        choices.append(choice if len(requests) == 1 else {**choice, **figures})
    usage = total_usage(chat.reply.done)
    extra = figures if len(requests) == 1 else {}
    return chat.record("chat.completion", choices=choices, usage=usage, **extra)


async def _streamed(chat: _ChatReply) -> AsyncGenerator[bytes, None]:
    """Yield the reply as server-sent events."""
    for index, request in enumerate(chat.reply.requests):
        async for data in chat.reply.streamed(request, _ChatEvents(chat, index)):
            yield data
    if chat.wants_usage:
        usage = total_usage(chat.reply.done)
        yield event(chat.record("chat.completion.chunk", choices=[], usage=usage))
    yield DONE


class _ChatEvents(EventWriter):
    """Writes a choice of a reply."""

    def __init__(self, chat: _ChatReply, index: int) -> None:
        """Write the choice at an index."""
        self._chat, self._index = chat, index

    def begin(self, answer: ServedAnswer) -> bytes:
        """Return the event with the role."""
        delta = {"role": "assistant", "content": "", "refusal": None}
        return self._event(delta, self._live_figures(answer))

    def write(self, answer: ServedAnswer, chunks: Sequence[Chunk]) -> bytes:
        """Return the event for what steps add to the message."""
        fields, logprobs = delta_of(answer, chunks), self._chat.logprobs(chunks)
        if not fields and not (logprobs and chunks):
            return b""
        return self._event(fields, self._live_figures(answer), logprobs=logprobs)

    def end(self, ended: Ended) -> bytes:
        """Return the event with the reason and the figures."""
        return self._event({}, ended.figures, finish_reason=finish_of(ended.answer))

    def _live_figures(self, answer: ServedAnswer) -> dict[str, Any]:
        return figures_of(answer.served) if self._chat.has_live_figures else {}

    def _event(self, delta: dict[str, Any], figures: dict[str, Any], **extra: Any) -> bytes:
        choice = {"index": self._index, "delta": delta, "logprobs": None, "finish_reason": None}
        usage = {"usage": None} if self._chat.wants_usage else {}
        chunk = {"choices": [{**choice, **extra}], **usage, **figures}
        return event(self._chat.record("chat.completion.chunk", **chunk))


def message_of(answer: ServedAnswer) -> dict[str, Any]:
    """Return an answer as a message; reasoning is in both fields that clients read."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.reasoning:
        message |= {"reasoning_content": answer.reasoning, "reasoning": answer.reasoning}
    if answer.tool_calls:
        message["content"] = answer.text or None
        message["tool_calls"] = [call_of(call) for call in answer.tool_calls]
    return message


def delta_of(answer: ServedAnswer, chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Return what the latest steps of an answer add to its message."""
    text = "".join(chunk.text for chunk in chunks)
    reasoning = "".join(chunk.reasoning for chunk in chunks)
    calls = [call for chunk in chunks for call in chunk.tool_calls]
    fields: dict[str, Any] = {}
    if reasoning:
        fields |= {"reasoning_content": reasoning, "reasoning": reasoning}
    if text:
        fields["content"] = text
    if calls:
        numbered = enumerate(calls, len(answer.tool_calls) - len(calls))
        fields["tool_calls"] = [{"index": index, **call_of(call)} for index, call in numbered]
    return fields


def call_of(call: ToolCall) -> dict[str, Any]:
    """Return a tool call as OpenAI's API has it."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def finish_of(answer: ServedAnswer) -> str:
    """Return the `finish_reason` of an answer."""
    if answer.tool_calls and answer.finish == "stop":
        return "tool_calls"
    return FINISHES[answer.finish or "stop"]
