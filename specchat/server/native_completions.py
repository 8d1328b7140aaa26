"""`/completion` and `/infill`: llama-server's own API for continuing texts and filling gaps.

llama.vim and llama.vscode complete by the latter.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from msgspec import Struct
from starlette.requests import Request

from specchat.decoding.chunk import Chunk
from specchat.requests.answer_request import GenerateRequest
from specchat.requests.gap import ContextFile, Gap
from specchat.server.api_reply import Ended, EventWriter, Reply
from specchat.server.bodies import SharedFields, options_of, read
from specchat.server.chat_body import choices_of
from specchat.server.line_limit import LineLimit
from specchat.server.logprobs import native_logprobs
from specchat.server.replies import EventStream, Whole, event
from specchat.server.served_answer import ServedAnswer
from specchat.server.server_facts import settings_of
from specchat.server.service import ChosenModel, Service, client_of
from specchat.server.text_completions import prompts_of
from specchat.sharing.prompt_process import PromptProcess

MOST_LIKELY = 20
"""The tokens with their probabilities that are given at each place, at most."""
STOP_TYPES = {"stop": "eos", "length": "limit", "context": "limit"}
"""llama-server's `stop_type` by how an answer ended, unless by a stop string."""


class ExtraFile(Struct):
    """A text beside the one with the gap."""

    text: str
    filename: str = "tmp"


class NativeFields(SharedFields, kw_only=True):
    """What this API has beside the fields of all; unknown fields are ignored."""

    n_indent: int | None = None
    t_max_predict_ms: float | None = None
    response_fields: Sequence[str] | None = None
    n_probs: int | None = None
    return_tokens: bool | None = None

    @property
    def num_likely(self) -> int:
        """How many likely tokens are given at each place."""
        return min(max(self.n_probs or 0, 0), MOST_LIKELY)


class CompletionBody(NativeFields, kw_only=True):
    """A request to continue texts."""

    PROMPT: ClassVar = "prompt"
    prompt: str | Sequence[Any]


class InfillBody(NativeFields, kw_only=True):
    """A request to fill a gap."""

    PROMPT: ClassVar = "input_prefix"
    input_prefix: str
    input_suffix: str
    prompt: str | None = None
    input_extra: Sequence[ExtraFile] | None = None


@dataclass(frozen=True, slots=True)
class _NativeReply:
    """A reply in the making.

    With `is_list` several answers were asked for, with `is_silent` none: the prompt is only read.
    """

    reply: Reply[GenerateRequest]
    body: NativeFields
    is_list: bool

    @property
    def is_silent(self) -> bool:
        """Whether the prompt is only read."""
        return self.body.max_tokens == 0

    def part(self, chunks: Sequence[Chunk], index: int, *, has_tokens: bool) -> dict[str, Any]:
        """Return the text of steps, with its tokens and their probabilities if asked for."""
        if self.is_silent:
            chunks = ()
        tokens = [token for chunk in chunks for token in chunk.tokens] if has_tokens else []
        part = {"index": index, "content": "".join(chunk.text for chunk in chunks)}
        part["tokens"] = tokens
        if self.body.num_likely:
            part["completion_probabilities"] = native_logprobs(chunks, self.body.num_likely)
        return part

    def record(self, ended: Ended, part: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer that is over, or those of its fields that are asked for."""
        request, statistics = ended.request, ended.answer.statistics
        word, finish = ended.stop_string, ended.answer.finish or "stop"
        num_tokens = statistics.prompt_tokens + statistics.generated_tokens
        whole = {
            **part,
            "stop": True,
            "stop_type": "word" if word else STOP_TYPES[finish],
            "stopping_word": word,
            "truncated": finish == "context",
            "has_new_line": "\n" in ended.answer.text,
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
        fields = self.body.response_fields
        return _chosen(whole, fields) if fields else whole


async def completion(request: Request) -> EventStream | Whole:
    """Continue one or several texts."""
    return await read(request, CompletionBody, _continued)


async def infill(request: Request) -> EventStream | Whole:
    """Fill a gap."""
    service: Service = request.app.state.service
    body, chosen, options = await read(request, InfillBody, _with_options)
    gap = Gap(
        body.input_prefix + (body.prompt or ""),
        body.input_suffix,
        [ContextFile(each.filename, each.text) for each in body.input_extra or ()],
        options.get("max_tokens"),
        makes_room=True,
    )
    tokens = await service.prompts.call(PromptProcess.fill, gap)
    return await service.off_loop(
        lambda: _replied(request, body, chosen, [GenerateRequest(tokens, **options)])
    )


def _continued(request: Request, body: CompletionBody) -> EventStream | Whole:
    service: Service = request.app.state.service
    chosen = service.choose(body.model)
    options = _options_of(body, chosen, service)
    prompts = prompts_of(body, body.prompt, has_suffix=False)
    return _replied(request, body, chosen, [GenerateRequest(each, **options) for each in prompts])


def _with_options(
    request: Request, body: InfillBody
) -> tuple[InfillBody, ChosenModel, dict[str, Any]]:
    service: Service = request.app.state.service
    chosen = service.choose(body.model)
    # the usual samplers of this endpoint keep little but the most likely token
    usual = {"temperature": body.temperature or 0.0}
    return body, chosen, {**_options_of(body, chosen, service), **usual}


def _options_of(body: NativeFields, chosen: ChosenModel, service: Service) -> dict[str, Any]:
    """Return the options of an answer; one of no tokens writes one that is not sent."""
    options = options_of(body, chosen, service)
    if body.num_likely:
        options["alternatives"] = body.num_likely
    return {**options, "max_tokens": 1} if body.max_tokens == 0 else options


def _replied(
    request: Request, body: NativeFields, chosen: ChosenModel, asked: Sequence[GenerateRequest]
) -> EventStream | Whole:
    """Return the reply to requests, each of which has `n` answers; only one if all are the same."""
    num_asked, requests = body.n or 1, list[GenerateRequest]()
    for each in asked:
        requests += choices_of(each, 1 if each.is_greedy else num_asked)
    most_seconds = (body.t_max_predict_ms or 0) / 1000
    client = client_of(request.headers.get("user-agent", ""))
    too_many = f"n_probs: the {MOST_LIKELY} most likely tokens are given"
    notices = [too_many] if (body.n_probs or 0) > MOST_LIKELY else []
    reply = Reply(
        request.app.state.service, "native", client, chosen.name, requests, is_verified=False,
        notices=(*body.notices, *chosen.notices, *notices),
        limit=lambda: LineLimit(body.n_indent or 0, most_seconds),
    )  # fmt: skip
    is_list = num_asked * len(asked) > 1
    native = _NativeReply(reply, body, is_list)
    return EventStream(_streamed(native)) if body.stream else Whole(lambda: _whole(native))


async def _whole(native: _NativeReply) -> Any:
    """Return the whole reply: an answer, or a list of several."""
    answers: list[dict[str, Any]] = []
    for index, request in enumerate(native.reply.requests):
        ended = await native.reply.whole(request)
        has_tokens = bool(native.body.return_tokens)
        part = native.part(ended.answer.chunks, index, has_tokens=has_tokens)
        answers.append(native.record(ended, part))
    return answers if native.is_list else answers[0]


async def _streamed(native: _NativeReply) -> AsyncGenerator[bytes, None]:
    """Yield the reply as server-sent events."""
    for index, request in enumerate(native.reply.requests):
        async for data in native.reply.streamed(request, _NativeEvents(native, index)):
            yield data


class _NativeEvents(EventWriter):
    """Writes an answer of a reply."""

    def __init__(self, native: _NativeReply, index: int) -> None:
        """Write the answer at an index."""
        self._native, self._index = native, index
        self._held: list[Chunk] = []
        """Steps that have shown no text yet."""

    def write(self, answer: ServedAnswer, chunks: Sequence[Chunk]) -> bytes:
        """Return the event for the text of steps."""
        del answer
        self._held += chunks
        part = self._native.part(self._held, self._index, has_tokens=True)
        if not part["content"]:
            return b""
        self._held.clear()
        return event({**part, "stop": False})

    def end(self, ended: Ended) -> bytes:
        """Return the event with the reason and the figures."""
        part = self._native.part(self._held, self._index, has_tokens=True)
        return event(self._native.record(ended, part))


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
