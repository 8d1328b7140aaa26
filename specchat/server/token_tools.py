"""`/tokenize`, `/detokenize` and `/apply-template`, as llama-server and vLLM have them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import JSONResponse

from specchat.errors import ContextFull
from specchat.requests.answer_request import ChatRequest
from specchat.server.api_errors import BAD_REQUEST, ApiError, of_exception
from specchat.server.api_reply import asked_by
from specchat.server.bodies import read
from specchat.server.chat_body import ChatBody
from specchat.server.service import Service
from specchat.sharing.prompt_process import PromptProcess

IMAGE = b"[image]"
"""What is shown of an image, whose tokens are below zero."""


class TokenizeBody(Struct, kw_only=True):
    """A text or a conversation; llama-server calls the text `content`, vLLM `prompt`."""

    content: str | None = None
    prompt: str | None = None
    messages: Sequence[Mapping[str, Any]] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None
    add_generation_prompt: bool | None = None
    add_special: bool | None = None
    add_special_tokens: bool | None = None
    parse_special: bool = True
    with_pieces: bool = False


class TemplateBody(ChatBody, kw_only=True):
    """A conversation; if `add_generation_prompt` is false, no answer begins after it."""

    add_generation_prompt: bool | None = None


class DetokenizeBody(Struct):
    """Tokens."""

    tokens: Sequence[int]


async def tokenize(request: Request) -> JSONResponse:
    """Return the tokens of a text or of a conversation's prompt."""
    service: Service = request.app.state.service
    body, asked = await read(request, TokenizeBody, _with_chat)

    tokens = await (_prompt_of(asked, service) if asked else _tokens_of(body, service))
    pieces: list[bytes] = []
    if body.with_pieces:
        pieces = await _pieces_of(tokens, service)
    return await service.off_loop(_tokenized, tokens, pieces, service.facts.context)


async def detokenize(request: Request) -> JSONResponse:
    """Return the text of tokens."""
    service: Service = request.app.state.service
    tokens = await read(request, DetokenizeBody, lambda _, body: body.tokens)
    pieces = await service.prompts.call(PromptProcess.detokenize, tokens)
    text = b"".join(pieces).decode("utf-8", "replace")
    return JSONResponse({"content": text, "prompt": text})


async def apply_template(request: Request) -> JSONResponse:
    """Return a conversation's prompt as the model gets it, as text and as tokens."""
    service: Service = request.app.state.service
    tokens = await _prompt_of(await read(request, TemplateBody, _asked), service)
    pieces = await _pieces_of(tokens, service)
    text = b"".join(pieces).decode("utf-8", "replace")
    return JSONResponse({"prompt": text, "tokens": tokens})


class _Asked(NamedTuple):
    """A conversation whose prompt is asked for; if it `is_closed`, no answer begins after it."""

    conversation: ChatRequest
    is_closed: bool


def _asked(request: Request, body: TemplateBody) -> _Asked:
    return _Asked(asked_by(request, body), body.add_generation_prompt is False)


def _with_chat(request: Request, body: TokenizeBody) -> tuple[TokenizeBody, _Asked | None]:
    """Return what is to be tokenized, with its conversation if it is one. Raises ApiError."""
    if body.messages is None:
        return body, None
    chat = TemplateBody(
        messages=body.messages,
        tools=body.tools,
        chat_template_kwargs=body.chat_template_kwargs,
        add_generation_prompt=body.add_generation_prompt,
    )
    return body, _asked(request, chat)


async def _prompt_of(asked: _Asked, service: Service) -> list[int]:
    """Return the tokens of a conversation's prompt. Raises what `Prompts` does."""
    return await service.prompts.tokens(asked.conversation, is_closed=asked.is_closed)


async def _tokens_of(body: TokenizeBody, service: Service) -> list[int]:
    """Return the tokens of a text. Raises ApiError."""
    is_for_vllm = body.content is None
    text = body.prompt if is_for_vllm else body.content
    if text is None:
        raise ApiError(BAD_REQUEST, "give content, prompt or messages", "content")
    begins = body.add_special_tokens is not False if is_for_vllm else bool(body.add_special)
    try:
        return await service.prompts.call(
            PromptProcess.tokenize, text, special=body.parse_special, begins=begins
        )
    except ContextFull as error:
        param = "prompt" if is_for_vllm else "content"
        raise replace(of_exception(error), param=param) from None


async def _pieces_of(tokens: Sequence[int], service: Service) -> list[bytes]:
    """Return the text of each token of a prompt; a word stands for those of an image."""
    texts = [token for token in tokens if token >= 0]
    pieces = iter(await service.prompts.call(PromptProcess.detokenize, texts))
    return [
        next(pieces) if token >= 0 else IMAGE if before >= 0 else b""
        for before, token in pairwise([0, *tokens])
    ]


def _tokenized(tokens: Sequence[int], pieces: Sequence[bytes], context: int) -> JSONResponse:
    """Return the reply with tokens, and their texts if there are any."""
    shown = [
        {"id": token, "piece": _text_or_bytes(piece)}
        for token, piece in zip(tokens, pieces, strict=False)
    ]
    size = {"count": len(tokens), "max_model_len": context}
    return JSONResponse({"tokens": shown or tokens, **size})


def _text_or_bytes(piece: bytes) -> str | list[int]:
    """Return a token's text, or its bytes if they are only a part of a character."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
