"""`/v1/chat/completions`: OpenAI's chat API, with the additions of llama.cpp, vLLM and specchat."""

import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any

from starlette.requests import Request

from specchat.decoding.chunk import Chunk, ToolCall
from specchat.engine.api import ChatRequest
from specchat.server.answer_check import check_answer
from specchat.server.answer_figures import figures_of, total_usage
from specchat.server.bodies import read
from specchat.server.chat_body import ChatBody, chat_requests
from specchat.server.logprobs import chat_logprobs
from specchat.server.replies import EventStream, Whole, comment, event
from specchat.server.service import Answer, Progress, Service, client_of

DONE = event("[DONE]")
FINISHES = {"stop": "stop", "length": "length", "context": "length", "cancelled": "stop"}
"""`finish_reason` by how an answer ended."""


@dataclass(slots=True)
class _Reply:
    """A reply in the making: what was asked, and what identifies it."""

    service: Service
    requests: Sequence[ChatRequest]
    client: str
    model: str
    wants_usage: bool
    num_logprobs: int | None
    is_verified: bool
    identity: dict[str, Any] = field(default_factory=dict)
    done: list[Progress] = field(default_factory=list)

    def answer(self, request: ChatRequest) -> Any:
        """Queue a request; an asynchronous context with its answer."""
        return self.service.answer(request, api="chat", client=self.client, model=self.model)

    def record(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return an object of the API with the identity of this reply."""
        return {**self.identity, "object": kind, **fields}

    def logprobs(self, chunks: Sequence[Chunk]) -> dict[str, Any] | None:
        """Return the log probabilities of steps if they were asked for."""
        return None if self.num_logprobs is None else chat_logprobs(chunks, self.num_logprobs)

    async def figures(self, request: ChatRequest, answer: Answer) -> dict[str, Any]:
        """Return the figures of an answer, and what a check of it found if one was asked for."""
        found = figures_of(answer.progress)
        if self.is_verified:
            found["specchat"]["verify"] = await check_answer(self.service, request, answer)
        return found


async def chat_completions(request: Request) -> EventStream | Whole:
    """Answer a conversation."""
    service: Service = request.app.state.service
    body = await read(request, ChatBody)
    requests, model = chat_requests(body, service)
    reply = _Reply(
        service,
        requests,
        client_of(request.headers.get("user-agent", "")),
        model,
        bool(body.stream_options and body.stream_options.include_usage),
        (body.top_logprobs or 0) if body.logprobs else None,
        bool(body.verify),
    )
    reply.identity = {
        "id": f"chatcmpl-{secrets.token_hex(12)}",
        "created": int(time()),
        "model": model,
        "system_fingerprint": service.fingerprint(),
    }
    return EventStream(_streamed(reply)) if body.stream else Whole(lambda: _whole(reply))


async def _whole(reply: _Reply) -> dict[str, Any]:
    """Return the whole reply."""
    choices: list[dict[str, Any]] = []
    figures: dict[str, Any] = {}
    for index, request in enumerate(reply.requests):
        async with reply.answer(request) as answer:
            steps: list[Chunk] = []
            async for update in answer.updates():
                steps += update.chunks
        reply.done.append(answer.progress)
        figures = await reply.figures(request, answer)
        choice = {
            "index": index,
            "message": message_of(answer),
            "finish_reason": finish_of(answer),
            "logprobs": reply.logprobs(steps),
        }
        choices.append(choice if len(reply.requests) == 1 else {**choice, **figures})
    usage = total_usage(reply.done)
    extra = figures if len(reply.requests) == 1 else {}
    return reply.record("chat.completion", choices=choices, usage=usage, **extra)


async def _streamed(reply: _Reply) -> AsyncGenerator[bytes, None]:
    """Yield the reply as server-sent events."""
    for index, request in enumerate(reply.requests):
        async for part in _streamed_choice(reply, index, request):
            yield part
    if reply.wants_usage:
        usage = total_usage(reply.done)
        yield event(reply.record("chat.completion.chunk", choices=[], usage=usage))
    yield DONE


async def _streamed_choice(
    reply: _Reply, index: int, request: ChatRequest
) -> AsyncGenerator[bytes, None]:
    def delta(fields: dict[str, Any], finish: str | None = None, **extra: Any) -> bytes:
        choice = {"index": index, "delta": fields, "finish_reason": finish, **extra}
        return event(reply.record("chat.completion.chunk", choices=[choice]))

    num_calls, has_begun = 0, False
    async with reply.answer(request) as answer:
        async for update in answer.updates():
            if not has_begun and (update.chunks or update.is_over):
                has_begun = True
                yield delta({"role": "assistant", "content": ""})
            fields = delta_of(update.chunks, num_calls)
            num_calls = len(answer.tool_calls)
            probabilities = reply.logprobs(update.chunks)
            if fields or (probabilities and update.chunks):
                yield delta(fields, logprobs=probabilities)
            elif not update.is_over:
                yield comment(update_text(update.place, update.share))
    reply.done.append(answer.progress)
    figures = await reply.figures(request, answer)
    choice = {"index": index, "delta": {}, "finish_reason": finish_of(answer)}
    yield event(reply.record("chat.completion.chunk", choices=[choice], **figures))


def message_of(answer: Answer) -> dict[str, Any]:
    """Return an answer as a message; reasoning is in both fields that clients read."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.reasoning:
        message |= {"reasoning_content": answer.reasoning, "reasoning": answer.reasoning}
    if answer.tool_calls:
        message["content"] = answer.text or None
        message["tool_calls"] = [call_of(each) for each in answer.tool_calls]
    return message


def delta_of(chunks: Sequence[Chunk], num_calls: int) -> dict[str, Any]:
    """Return what steps add to a message, of which `num_calls` tool calls were sent before."""
    text = "".join(chunk.text for chunk in chunks)
    reasoning = "".join(chunk.reasoning for chunk in chunks)
    calls = [call for chunk in chunks for call in chunk.tool_calls]
    fields: dict[str, Any] = {}
    if reasoning:
        fields |= {"reasoning_content": reasoning, "reasoning": reasoning}
    if text:
        fields["content"] = text
    if calls:
        fields["tool_calls"] = [
            {"index": index, **call_of(call)} for index, call in enumerate(calls, num_calls)
        ]
    return fields


def call_of(call: ToolCall) -> dict[str, Any]:
    """Return a tool call as OpenAI's API has it."""
    function = {"name": call.name, "arguments": call.arguments}
    return {
        "id": call.id or f"call_{secrets.token_hex(8)}",
        "type": "function",
        "function": function,
    }


def finish_of(answer: Answer) -> str:
    """Return the `finish_reason` of an answer."""
    if answer.tool_calls and answer.finish == "stop":
        return "tool_calls"
    return FINISHES[answer.finish or "stop"]


def update_text(place: int, share: float) -> str:
    """Return how far a request is, for a comment in a stream."""
    return f"queued, {place} before this" if place else f"reading the prompt, {share:.0%}"
