"""`/v1/completions`: OpenAI's API for continuing a text, with `echo` and log probabilities."""

import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from time import time
from typing import Annotated, Any

from msgspec import Meta
from starlette.requests import Request

from specchat.decoding.chunk import Alternative
from specchat.engine.api import Engine
from specchat.requests.answer_request import GenerateRequest
from specchat.server.answer_check import check_answer
from specchat.server.answer_figures import figures_of, joint_usage
from specchat.server.api_errors import BAD_REQUEST, ApiError
from specchat.server.bodies import SharedFields, options_of, read
from specchat.server.chat_body import MOST_SEED, Prediction, StreamOptions
from specchat.server.chat_completions import DONE, FINISHES
from specchat.server.conversation_replies import Quiet, progress_text
from specchat.server.logprobs import TextLogprobs
from specchat.server.replies import EventStream, Whole, comment, event
from specchat.server.service import Answer, Progress, Service, client_of

USUAL_TOKENS = 16
"""The `max_tokens` of OpenAI's API and vLLM's."""
MOST_PROMPTS = 256


class TextBody(SharedFields, kw_only=True):
    """A request to continue texts; unknown fields are ignored."""

    prompt: str | Sequence[Any]
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | bool | None = None
    suffix: str | None = None
    best_of: int | None = None
    prediction: Prediction | None = None
    stream_options: StreamOptions | None = None


@dataclass(slots=True)
class _TextReply:
    """A reply in the making: a request for each choice, with the number of its prompt."""

    service: Service
    client: str
    model: str
    requests: Sequence[tuple[int, GenerateRequest]]
    num_logprobs: int | None
    has_echo: bool
    is_empty: bool
    is_verified: bool
    wants_usage: bool
    identity: dict[str, Any]
    done: list[tuple[int, Progress]] = field(default_factory=list)
    num_scored: int = 0

    def record(self, **fields: Any) -> dict[str, Any]:
        """Return an object of the API."""
        return {**self.identity, **fields}

    def usage(self) -> dict[str, Any]:
        """Return the usage of all choices, in which each prompt counts once."""
        return joint_usage(self.done, self.num_scored)

    async def echoed(self, request: GenerateRequest) -> "_Echo":
        """Return the prompt's tokens and texts, with their probabilities if they are asked for."""
        if not self.has_echo:
            return _Echo()
        count = self.num_logprobs

        def read_prompt(engine: Engine) -> _Echo:
            tokens = tokens_of(engine, request.prompt)
            found = engine.score(tokens, max(1, count)) if count is not None else []
            return _Echo(engine.detokenize(tokens), tokens, found)

        return await self.service.call(read_prompt)

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
    body = await read(request, TextBody)
    reply = _reply_to(body, service, client_of(request.headers.get("user-agent", "")))
    return EventStream(_streamed(reply)) if body.stream else Whole(lambda: _whole(reply))


def tokens_of(engine: Engine, prompt: str | Sequence[int]) -> list[int]:
    """Return the tokens of a prompt."""
    return engine.tokenize(prompt) if isinstance(prompt, str) else list(prompt)


def _reply_to(body: TextBody, service: Service, client: str) -> _TextReply:
    """Return the reply to a request. Raises ApiError or InvalidOption."""
    if body.suffix:
        raise ApiError(BAD_REQUEST, "suffix: filling in the middle is not supported")
    if (body.best_of or 1) > (body.n or 1):
        raise ApiError(BAD_REQUEST, "best_of: only as many as n", "best_of")
    chosen = service.choose(body.model)
    options = options_of(body, chosen, service)
    is_empty = body.max_tokens == 0
    options["max_tokens"] = body.max_tokens or USUAL_TOKENS
    count = 1 if body.logprobs is True else body.logprobs
    num_logprobs = None if count is None or count is False else int(count)
    if num_logprobs is not None:
        options["alternatives"] = max(1, num_logprobs)
    prompts, num_choices = _prompts(body.prompt), body.n or 1
    if options.get("seed") is None and (body.verify or num_choices > 1):
        options["seed"] = secrets.randbelow(MOST_SEED)
    prediction = body.prediction.text if body.prediction else ""
    requests: list[tuple[int, GenerateRequest]] = []
    for number, prompt in enumerate(prompts):
        first = GenerateRequest(prompt=prompt, prediction=prediction, **options)
        for index in range(num_choices):
            seed = None if first.seed is None else first.seed + index
            requests.append((number, replace(first, seed=seed)))
    return _TextReply(
        service,
        client,
        chosen.name,
        requests,
        num_logprobs,
        has_echo=bool(body.echo),
        is_empty=is_empty,
        is_verified=bool(body.verify),
        wants_usage=bool(body.stream_options and body.stream_options.include_usage),
        identity={
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time()),
            "model": chosen.name,
            "system_fingerprint": service.fingerprint(),
        },
    )


def _prompts(given: Any) -> list[str | list[int]]:
    """Return the prompts of a request: texts, or lists of tokens."""
    found: list[Any] = [given] if isinstance(given, str) or _are_tokens(given) else list(given)
    if not given or not all(found):
        raise ApiError(BAD_REQUEST, "prompt must not be empty", "prompt")
    if not all(isinstance(each, str) or _are_tokens(each) for each in found):
        raise ApiError(BAD_REQUEST, "prompt must be texts or lists of token ids", "prompt")
    if len(found) > MOST_PROMPTS:
        raise ApiError(BAD_REQUEST, f"prompt: at most {MOST_PROMPTS} at once", "prompt")
    return found


def _are_tokens(given: Any) -> bool:
    return isinstance(given, list) and all(type(each) is int for each in given)


async def _whole(reply: _TextReply) -> dict[str, Any]:
    choices: list[dict[str, Any]] = []
    figures: dict[str, Any] = {}
    for index, (number, request) in enumerate(reply.requests):
        echo = await reply.echoed(request)
        probabilities = reply.logprobs(echo)
        if reply.is_empty:
            reply.num_scored += len(echo.tokens)
            choices.append(_choice(index, echo.text, "length", probabilities))
            continue
        async with _answer(reply, request) as answer:
            async for update in answer.updates():
                if probabilities:
                    probabilities.add(update.chunks)
        figures = await _figures(reply, number, request, answer)
        choices.append(
            _choice(
                index, echo.text + answer.text, FINISHES[answer.finish or "stop"], probabilities
            )
        )
        if len(reply.requests) > 1:
            choices[-1] |= figures
    extra = figures if len(reply.requests) == 1 else {}
    return reply.record(choices=choices, usage=reply.usage(), **extra)


async def _streamed(reply: _TextReply) -> AsyncGenerator[bytes, None]:
    for index, (number, request) in enumerate(reply.requests):
        echo = await reply.echoed(request)
        probabilities = reply.logprobs(echo)
        if echo.tokens:
            yield event(reply.record(choices=[_choice(index, echo.text, None, probabilities)]))
        if reply.is_empty:
            reply.num_scored += len(echo.tokens)
            yield event(reply.record(choices=[_choice(index, "", "length", None)]))
            continue
        quiet = Quiet()
        async with _answer(reply, request) as answer:
            async for update in answer.updates():
                text = "".join(chunk.text for chunk in update.chunks)
                fresh = probabilities and probabilities.following(update.chunks)
                if text or (fresh and update.chunks):
                    yield event(reply.record(choices=[_choice(index, text, None, fresh)]))
                    quiet.end()
                elif not update.is_over and quiet.is_due(update):
                    yield comment(progress_text(update))
                    quiet.end()
        figures = await _figures(reply, number, request, answer)
        ended = _choice(index, "", FINISHES[answer.finish or "stop"], None)
        yield event(reply.record(choices=[ended], **figures))
    if reply.wants_usage:
        yield event(reply.record(choices=[], usage=reply.usage()))
    yield DONE


def _answer(reply: _TextReply, request: GenerateRequest) -> Any:
    return reply.service.answer(request, api="text", client=reply.client, model=reply.model)


async def _figures(
    reply: _TextReply, number: int, request: GenerateRequest, answer: Answer
) -> dict[str, Any]:
    """Count an answer, and return its figures."""
    reply.done.append((number, answer.progress))
    found = figures_of(answer.progress)
    if reply.is_verified:
        found["specchat"]["verify"] = await check_answer(reply.service, request, answer)
    return found


def _choice(
    index: int, text: str, finish: str | None, probabilities: TextLogprobs | None
) -> dict[str, Any]:
    return {
        "index": index,
        "text": text,
        "finish_reason": finish,
        "logprobs": probabilities.record() if probabilities else None,
    }
