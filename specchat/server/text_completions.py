"""`/v1/completions`: OpenAI's API for continuing a text, with `echo` and log probabilities."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import time
from typing import Annotated, Any, ClassVar

from msgspec import Meta
from starlette.requests import Request

from specchat.decoding.chunk import Alternative, Chunk
from specchat.requests.answer_request import GenerateRequest
from specchat.requests.gap import Gap
from specchat.server.answer_figures import joint_usage
from specchat.server.api_errors import BAD_REQUEST, ApiError
from specchat.server.api_reply import Ended, EventWriter, Reply
from specchat.server.bodies import SharedFields, options_of, read
from specchat.server.chat_body import Prediction, StreamOptions, choices_of
from specchat.server.chat_completions import DONE, FINISHES
from specchat.server.logprobs import TextLogprobs
from specchat.server.replies import EventStream, Whole, comment, event
from specchat.server.served_answer import SECONDS_TO_COMMENT, ServedAnswer
from specchat.server.service import Service, client_of
from specchat.sharing.prompt_process import PromptProcess

USUAL_TOKENS = 16
"""The `max_tokens` of OpenAI's API and vLLM's."""
MOST_PROMPTS = 256
MOST_BIASES = 1_000_000
"""Biases of all answers, each of which checks its own."""


class TextBody(SharedFields, kw_only=True):
    """A request to continue texts; unknown fields are ignored."""

    PROMPT: ClassVar = "prompt"
    prompt: str | Sequence[Any]
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | bool | None = None
    suffix: str | None = None
    best_of: int | None = None
    prediction: Prediction | None = None
    stream_options: StreamOptions | None = None


@dataclass(slots=True)
class _TextReply:
    """A reply in the making, and what this API has beside it.

    `prompt_numbers` says which prompt each request has; with `is_empty` none is continued.
    """

    reply: Reply[GenerateRequest]
    prompt_numbers: Sequence[int]
    num_logprobs: int | None
    has_echo: bool
    is_empty: bool
    wants_usage: bool
    identity: dict[str, Any]
    num_read: int = 0
    _last: "tuple[int, _Echo] | None" = None

    def record(self, **fields: Any) -> dict[str, Any]:
        """Return an object of the API."""
        return {**self.identity, "system_fingerprint": self.reply.fingerprint, **fields}

    def usage(self) -> dict[str, Any]:
        """Return the usage of all choices, in which each prompt counts once."""
        done = zip(self.prompt_numbers, self.reply.done, strict=not self.is_empty)
        return joint_usage(list(done), self.num_read)

    def scoring(self) -> AbstractContextManager[None]:
        """Return what counts the request as long as a prompt of it is scored."""
        is_scored = self.has_echo and self.num_logprobs is not None
        return self.reply.service.scoring() if is_scored else nullcontext()

    async def echoed(self, index: int) -> "_Echo":
        """Return what is given back of a choice's prompt: read once for all choices of it."""
        number = self.prompt_numbers[index]
        if self._last is None or self._last[0] != number:
            self._last = number, await self._read(self.reply.requests[index])
        return self._last[1]

    async def _read(self, request: GenerateRequest) -> "_Echo":
        """Return a prompt's tokens and texts, with their probabilities if they are asked for."""
        if not (self.has_echo or self.is_empty):
            return _Echo()
        service, count = self.reply.service, self.num_logprobs
        tokens = await service.prompts.tokens(await service.prompts.checked(request))
        if self.is_empty:
            self.num_read += len(tokens)
        if not self.has_echo:
            return _Echo()
        pieces = await service.prompts.call(PromptProcess.detokenize, tokens)
        likely = [] if count is None else await service.score(tokens, max(1, count))
        return _Echo(pieces, tokens, likely)

    def echo_event(self, index: int, echo: "_Echo", logprobs: TextLogprobs | None) -> bytes:
        """Return the event with the prompt of a choice; empty if it is not given back."""
        if not echo.tokens:
            return b""
        return event(self.record(choices=[_choice(index, echo.text, None, logprobs)]))

    def logprobs(self, echo: "_Echo") -> TextLogprobs | None:
        """Return the log probabilities of a choice, to be added to; None if not asked for."""
        if self.num_logprobs is None:
            return None
        collected = TextLogprobs(self.num_logprobs)
        collected.add_prompt(echo.pieces, echo.tokens, echo.alternatives)
        return collected


@dataclass(frozen=True, slots=True)
class _Echo:
    """A prompt to be given back: the texts of its tokens, and the likely ones in their places."""

    pieces: Sequence[bytes] = ()
    tokens: Sequence[int] = ()
    alternatives: Sequence[Sequence[Alternative]] = ()

    @property
    def text(self) -> str:
        """The whole prompt."""
        return b"".join(self.pieces).decode("utf-8", "replace")


async def completions(request: Request) -> EventStream | Whole:
    """Continue one or several texts."""
    service: Service = request.app.state.service
    body, prompts = await read(request, TextBody, _with_prompts)
    if body.suffix:
        prompts = await _filling(prompts, body, service)
    client = client_of(request.headers.get("user-agent", ""))
    text = await service.off_loop(_reply_to, body, prompts, service, client)
    return EventStream(_streamed(text)) if body.stream else Whole(lambda: _whole(text))


def _with_prompts(request: Request, body: TextBody) -> tuple[TextBody, list[str | list[int]]]:
    del request
    return body, prompts_of(body, body.prompt, has_suffix=bool(body.suffix))


async def _filling(
    prompts: list[str | list[int]], body: TextBody, service: Service
) -> list[str | list[int]]:
    """Return prompts that ask for what stands between each text and the suffix."""
    if body.echo:
        raise ApiError(BAD_REQUEST, "echo: not with a suffix", "echo")
    filling = list[str | list[int]]()
    for prompt in prompts:
        if not isinstance(prompt, str):
            raise ApiError(BAD_REQUEST, "prompt must be a text with a suffix", "prompt")
        gap = Gap(prompt, body.suffix or "")
        filling.append(await service.prompts.call(PromptProcess.fill, gap))
    return filling


def _reply_to(
    body: TextBody, prompts: Sequence[str | list[int]], service: Service, client: str
) -> _TextReply:
    """Return the reply to a request. Raises ApiError or InvalidOption."""
    if (body.best_of or 1) > (body.n or 1):
        raise ApiError(BAD_REQUEST, "best_of: only as many as n", "best_of")
    chosen = service.choose(body.model)
    options = options_of(body, chosen, service)
    if not body.max_tokens:  # without an answer, 0 tokens are not decoded
        options["max_tokens"] = USUAL_TOKENS
    count = 1 if body.logprobs is True else body.logprobs
    num_logprobs = None if count is None or count is False else int(count)
    if num_logprobs is not None:
        options["alternatives"] = max(1, num_logprobs)
    prediction = body.prediction.text if body.prediction else ""
    notices = (*body.notices, *chosen.notices)
    requests, numbers = list[GenerateRequest](), list[int]()
    for number, prompt in enumerate(prompts):
        first = GenerateRequest(prompt=prompt, prediction=prediction, **options)
        choices = choices_of(first, body.n or 1, repeats=bool(body.verify))
        requests += choices
        numbers += [number] * len(choices)
    return _TextReply(
        Reply(service, "text", client, chosen.name, requests, bool(body.verify), notices),
        numbers,
        num_logprobs,
        has_echo=bool(body.echo),
        is_empty=body.max_tokens == 0,
        wants_usage=bool(body.stream_options and body.stream_options.include_usage),
        identity={
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time()),
            "model": chosen.name,
        },
    )


def prompts_of(body: SharedFields, given: Any, *, has_suffix: bool) -> list[str | list[int]]:
    """Return the prompts that are given: texts, or lists of tokens; one before a suffix is enough.

    Raises ApiError, for too many of them too.
    """
    prompts: list[Any] = [given] if isinstance(given, str) or _are_tokens(given) else list(given)
    if not has_suffix and not (given and all(prompts)):
        raise ApiError(BAD_REQUEST, "prompt must not be empty", "prompt")
    if not all(isinstance(prompt, str) or _are_tokens(prompt) for prompt in prompts):
        raise ApiError(BAD_REQUEST, "prompt must be texts or lists of token ids", "prompt")
    if len(prompts) > MOST_PROMPTS:
        raise ApiError(BAD_REQUEST, f"prompt: at most {MOST_PROMPTS} at once", "prompt")
    num_answers = len(prompts) * (body.n or 1)
    if num_answers * len(body.logit_bias or ()) > MOST_BIASES:
        message = f"logit_bias: too many for {num_answers} answers at once"
        raise ApiError(BAD_REQUEST, message, "logit_bias")
    return prompts


def _are_tokens(given: Any) -> bool:
    return isinstance(given, list) and all(type(each) is int for each in given)


async def _whole(text: _TextReply) -> dict[str, Any]:
    """Return the whole reply."""
    requests, choices, figures = text.reply.requests, list[dict[str, Any]](), dict[str, Any]()
    for index, request in enumerate(requests):
        with text.scoring():
            echo = await text.echoed(index)
        logprobs = await text.reply.service.off_loop(text.logprobs, echo)
        if text.is_empty:
            choices.append(_choice(index, echo.text, "length", logprobs))
            continue
        ended = await text.reply.whole(request)
        answer, figures = ended.answer, ended.figures
        if logprobs:
            logprobs.add(answer.chunks)
        choice = _choice(index, echo.text + answer.text, _finish_of(answer), logprobs)
        choices.append(choice if len(requests) == 1 else {**choice, **figures})
    extra = figures if len(requests) == 1 else {}
    return text.record(choices=choices, usage=text.usage(), **extra)


async def _streamed(text: _TextReply) -> AsyncGenerator[bytes, None]:
    """Yield the reply as server-sent events."""
    for index, request in enumerate(text.reply.requests):
        with text.scoring():
            reading = asyncio.ensure_future(text.echoed(index))
            try:
                while not (await asyncio.wait([reading], timeout=SECONDS_TO_COMMENT))[0]:
                    yield comment("scoring the prompt")
            finally:
                reading.cancel()  # what the client no longer waits for
        echo = reading.result()
        logprobs = await text.reply.service.off_loop(text.logprobs, echo)
        if text.is_empty:
            ended = event(text.record(choices=[_choice(index, "", "length", None)]))
            yield text.echo_event(index, echo, logprobs) + ended
            continue
        async for data in text.reply.streamed(request, _TextEvents(text, index, echo, logprobs)):
            yield data
    if text.wants_usage:
        yield event(text.record(choices=[], usage=text.usage()))
    yield DONE


class _TextEvents(EventWriter):
    """Writes a choice of a reply, after its echo."""

    def __init__(
        self, text: _TextReply, index: int, echo: _Echo, logprobs: TextLogprobs | None
    ) -> None:
        """Write the choice at an index; `logprobs` are those of the echo."""
        self._text, self._index, self._echo, self._logprobs = text, index, echo, logprobs

    def begin(self, answer: ServedAnswer) -> bytes:
        """Return the event with the echo, if there is one."""
        del answer
        return self._text.echo_event(self._index, self._echo, self._logprobs)

    def write(self, answer: ServedAnswer, chunks: Sequence[Chunk]) -> bytes:
        """Return the event for the text of steps."""
        del answer
        text = "".join(chunk.text for chunk in chunks)
        logprobs = self._logprobs and self._logprobs.following(chunks)
        if not text and not (logprobs and chunks):
            return b""
        return event(self._text.record(choices=[_choice(self._index, text, None, logprobs)]))

    def end(self, ended: Ended) -> bytes:
        """Return the event with the reason and the figures."""
        choice = _choice(self._index, "", _finish_of(ended.answer), None)
        return event(self._text.record(choices=[choice], **ended.figures))


def _finish_of(answer: ServedAnswer) -> str:
    return FINISHES[answer.finish or "stop"]


def _choice(
    index: int, text: str, finish: str | None, probabilities: TextLogprobs | None
) -> dict[str, Any]:
    return {
        "index": index,
        "text": text,
        "finish_reason": finish,
        "logprobs": probabilities.record() if probabilities else None,
    }
