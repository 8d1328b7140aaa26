"""`/v1/chat/completions`: OpenAI's chat API, with the additions of llama.cpp, vLLM and specchat."""

import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any

from starlette.requests import Request

from specchat.decoding.chunk import Chunk, ToolCall
from specchat.requests.answer_request import ChatRequest
from specchat.server.answer_figures import figures_of, total_usage
from specchat.server.bodies import read
from specchat.server.chat_body import ChatBody
from specchat.server.conversation_replies import Quiet, Reply, progress_text, reply_to
from specchat.server.logprobs import chat_logprobs
from specchat.server.replies import EventStream, Whole, comment, event
from specchat.server.service import Answer, Progress

DONE = event("[DONE]")
FINISHES = {"stop": "stop", "length": "length", "context": "length"}
"""`finish_reason` by how an answer ended."""


@dataclass(frozen=True, slots=True)
class _ChatReply:
    """A reply in the making, and what this API has beside it."""

    reply: Reply
    identity: dict[str, Any]
    wants_usage: bool
    num_logprobs: int | None
    has_live_figures: bool = False
    """Whether each part of a stream has the figures so far: llama-server's `timings_per_token`."""
    done: list[Progress] = field(default_factory=list)

    def record(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return an object of the API with the identity of this reply."""
        return {**self.identity, "object": kind, **fields}

    def logprobs(self, chunks: Sequence[Chunk]) -> dict[str, Any] | None:
        """Return the log probabilities of steps if they were asked for."""
        return None if self.num_logprobs is None else chat_logprobs(chunks, self.num_logprobs)


async def chat_completions(request: Request) -> EventStream | Whole:
    """Answer a conversation."""
    body = await read(request, ChatBody)
    reply = reply_to(request, body, "chat")
    chat = _ChatReply(
        reply,
        {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time()),
            "model": reply.model,
            "system_fingerprint": reply.service.fingerprint(),
        },
        wants_usage=bool(body.stream_options and body.stream_options.include_usage),
        num_logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        has_live_figures=bool(body.timings_per_token),
    )
    return EventStream(_streamed(chat)) if body.stream else Whole(lambda: _whole(chat))


async def _whole(chat: _ChatReply) -> dict[str, Any]:
    """Return the whole reply."""
    reply, choices, figures = chat.reply, list[dict[str, Any]](), dict[str, Any]()
    for index, request in enumerate(reply.requests):
        async with reply.answer(request) as answer:
            steps: list[Chunk] = []
            async for update in answer.updates():
                steps += update.chunks
        chat.done.append(answer.progress)
        figures = await reply.figures(request, answer)
        choice = {
            "index": index,
            "message": message_of(answer),
            "finish_reason": finish_of(answer),
            "logprobs": chat.logprobs(steps),
        }
        choices.append(choice if len(reply.requests) == 1 else {**choice, **figures})
    usage = total_usage(chat.done)
    extra = figures if len(reply.requests) == 1 else {}
    return chat.record("chat.completion", choices=choices, usage=usage, **extra)


async def _streamed(chat: _ChatReply) -> AsyncGenerator[bytes, None]:
    """Yield the reply as server-sent events."""
    for index, request in enumerate(chat.reply.requests):
        async for part in _streamed_choice(chat, index, request):
            yield part
    if chat.wants_usage:
        usage = total_usage(chat.done)
        yield event(chat.record("chat.completion.chunk", choices=[], usage=usage))
    yield DONE


async def _streamed_choice(
    chat: _ChatReply, index: int, request: ChatRequest
) -> AsyncGenerator[bytes, None]:
    def delta(fields: dict[str, Any], finish: str | None = None, **extra: Any) -> bytes:
        choice = {"index": index, "delta": fields, "finish_reason": finish, **extra}
        figures = figures_of(answer.progress) if chat.has_live_figures else {}
        return event(chat.record("chat.completion.chunk", choices=[choice], **figures))

    num_calls, has_begun, quiet = 0, False, Quiet()
    async with chat.reply.answer(request) as answer:
        async for update in answer.updates():
            if not has_begun and (update.chunks or update.is_over):
                has_begun = True
                yield delta({"role": "assistant", "content": ""})
            fields = delta_of(update.chunks, num_calls)
            num_calls = len(answer.tool_calls)
            probabilities = chat.logprobs(update.chunks)
            if fields or (probabilities and update.chunks):
                yield delta(fields, logprobs=probabilities)
                quiet.end()
            elif not update.is_over and quiet.is_due(update):
                yield comment(progress_text(update))
                quiet.end()
    chat.done.append(answer.progress)
    figures = await chat.reply.figures(request, answer)
    choice = {"index": index, "delta": {}, "finish_reason": finish_of(answer)}
    yield event(chat.record("chat.completion.chunk", choices=[choice], **figures))


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
    return {"id": call.id, "type": "function", "function": function}


def finish_of(answer: Answer) -> str:
    """Return the `finish_reason` of an answer."""
    if answer.tool_calls and answer.finish == "stop":
        return "tool_calls"
    return FINISHES[answer.finish or "stop"]
