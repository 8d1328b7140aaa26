"""`/infill`: llama-server's API for filling a gap, by which llama.vim and llama.vscode complete."""

import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from msgspec import Struct
from starlette.requests import Request

from specchat.decoding.chunk import Chunk
from specchat.requests.answer_request import GenerateRequest
from specchat.requests.gap import ContextFile, Gap
from specchat.server.api_reply import Ended, EventWriter, Reply
from specchat.server.bodies import SharedFields, options_of, read
from specchat.server.chat_body import MOST_SEED
from specchat.server.line_limit import LineLimit
from specchat.server.replies import EventStream, Whole, event
from specchat.server.server_facts import settings_of
from specchat.server.service import ServedAnswer, Service, client_of
from specchat.sharing.prompt_process import PromptProcess

STOP_TYPES = {"stop": "eos", "length": "limit", "context": "limit"}
"""llama-server's `stop_type` by how an answer ended, unless by a stop string."""


class ExtraFile(Struct):
    """A text beside the one with the gap."""

    text: str
    filename: str = "tmp"


class InfillBody(SharedFields, kw_only=True):
    """A request to fill a gap; unknown fields are ignored."""

    PROMPT: ClassVar = "input_prefix"
    input_prefix: str
    input_suffix: str
    prompt: str | None = None
    input_extra: Sequence[ExtraFile] | None = None
    n_indent: int | None = None
    t_max_predict_ms: float | None = None
    response_fields: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class _InfillReply:
    """A reply in the making.

    With `is_list` several answers were asked for, with `is_silent` none: the prompt is only read.
    """

    reply: Reply[GenerateRequest]
    fields: Sequence[str]
    is_list: bool
    is_silent: bool

    def record(self, ended: Ended, index: int, text: str) -> dict[str, Any]:
        """Return an answer that is over, or those of its fields that are asked for."""
        request, statistics = ended.request, ended.answer.statistics
        word, finish = ended.stop_string, ended.answer.finish or "stop"
        num_tokens = statistics.prompt_tokens + statistics.generated_tokens
        whole = {
            "index": index,
            "content": text,
            "stop": True,
            "stop_type": "word" if word else STOP_TYPES[finish],
            "stopping_word": word,
            "truncated": finish == "context",
            "model": self.reply.model,
            "tokens_predicted": statistics.generated_tokens,
            "tokens_evaluated": statistics.prompt_tokens,
            "tokens_cached": num_tokens,
            "generation_settings": {
                "n_ctx": self.reply.service.facts.context,
                **settings_of(request),
            },
            **ended.figures,
        }
        return _chosen(whole, self.fields) if self.fields else whole


async def infill(request: Request) -> EventStream | Whole:
    """Fill a gap."""
    service: Service = request.app.state.service
    body = await read(request, InfillBody)
    infilled = await _reply_to(body, service, client_of(request.headers.get("user-agent", "")))
    return EventStream(_streamed(infilled)) if body.stream else Whole(lambda: _whole(infilled))


async def _reply_to(body: InfillBody, service: Service, client: str) -> _InfillReply:
    """Return the reply to a request. Raises ApiError or InvalidOption."""
    chosen = service.choose(body.model)
    # the usual samplers of this API keep little but the most likely token
    options = {**options_of(body, chosen, service), "temperature": body.temperature or 0.0}
    is_silent, num_asked = body.max_tokens == 0, body.n or 1
    if is_silent:
        options["max_tokens"] = 1
    count = num_asked if options["temperature"] else 1  # the others would be the same
    if options.get("seed") is None and count > 1:
        options["seed"] = secrets.randbelow(MOST_SEED)
    gap = Gap(
        body.input_prefix + (body.prompt or ""),
        body.input_suffix,
        [ContextFile(each.filename, each.text) for each in body.input_extra or ()],
        options.get("max_tokens"),
        makes_room=True,
    )
    first = GenerateRequest(prompt=await service.prepared(PromptProcess.fill, gap), **options)
    requests = [first]
    if count > 1:
        requests = [replace(first, seed=(first.seed or 0) + index) for index in range(count)]
    most_seconds = (body.t_max_predict_ms or 0) / 1000
    reply = Reply(
        service, "infill", client, chosen.name, requests, is_verified=False,
        notices=(*body.notices, *chosen.notices),
        limit=lambda: LineLimit(body.n_indent or 0, most_seconds),
    )  # fmt: skip
    return _InfillReply(reply, body.response_fields or (), num_asked > 1, is_silent)


async def _whole(infilled: _InfillReply) -> Any:
    """Return the whole reply: an answer, or a list of several."""
    answers: list[dict[str, Any]] = []
    for index, request in enumerate(infilled.reply.requests):
        ended = await infilled.reply.whole(request)
        text = "" if infilled.is_silent else ended.answer.text
        answers.append(infilled.record(ended, index, text))
    return answers if infilled.is_list else answers[0]


async def _streamed(infilled: _InfillReply) -> AsyncGenerator[bytes, None]:
    """Yield the reply as server-sent events."""
    for index, request in enumerate(infilled.reply.requests):
        async for data in infilled.reply.streamed(request, _InfillEvents(infilled, index)):
            yield data


class _InfillEvents(EventWriter):
    """Writes an answer of a reply."""

    def __init__(self, infilled: _InfillReply, index: int) -> None:
        """Write the answer at an index."""
        self._infilled, self._index = infilled, index

    def write(self, answer: ServedAnswer, chunks: Sequence[Chunk]) -> bytes:
        """Return the event for the text of steps."""
        del answer
        text = "".join(chunk.text for chunk in chunks)
        if not text or self._infilled.is_silent:
            return b""
        return event({"index": self._index, "content": text, "stop": False})

    def end(self, ended: Ended) -> bytes:
        """Return the event with the reason and the figures."""
        return event(self._infilled.record(ended, self._index, ""))


def _chosen(whole: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """Return the fields of an answer that are asked for, by their paths, as llama-server does."""
    found: dict[str, Any] = {}
    for path in paths:
        value: Any = whole
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None:
            found[path] = value
    return found
