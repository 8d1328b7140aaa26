"""What the APIs share: a reply in the making, whole or as a stream of events."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic
from typing import Any, Generic, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse

from specchat.decoding.chunk import Chunk
from specchat.requests.answer_request import AnswerRequest, AnyRequest, ChatRequest
from specchat.requests.answer_update import Update
from specchat.server.activity import Api, ServedRequest
from specchat.server.answer_check import check_answer
from specchat.server.answer_figures import figures_of
from specchat.server.asked_tools import notices_of_tools
from specchat.server.chat_body import ChatBody, chat_requests
from specchat.server.line_limit import LineLimit
from specchat.server.replies import comment
from specchat.server.served_answer import ServedAnswer
from specchat.server.service import Service, client_of

QUIET_SECONDS = 2.0
"""How often a stream says that an answer goes on while its steps show nothing: a tool call is sent
once it is complete."""


@dataclass(frozen=True)
class Reply(Generic[AnyRequest]):
    """A reply in the making: what was asked, in the engine's terms, and how it is answered.

    `notices` say what of the request the server could not follow. `done` are the requests that are
    over, in the order of `requests`, and `begun` the answers so far. `limit` makes the limit on
    lines that an answer has.
    """

    service: Service
    api: Api
    client: str
    model: str
    requests: Sequence[AnyRequest]
    is_verified: bool
    notices: Sequence[str] = ()
    done: list[ServedRequest] = field(default_factory=list)
    limit: Callable[[], LineLimit | None] = lambda: None
    begun: list[ServedAnswer] = field(default_factory=list)

    @cached_property
    def fingerprint(self) -> str | None:
        """The name of all that the texts depend on beside the request, None if that is not all.

        It is that of the first time it is asked for; before that comes what must be measured. There
        is none if an answer had to begin without that.
        """
        if any(answer.ticket.lacks_exactness for answer in self.begun):
            return None
        return self.service.fingerprint(self.requests)

    async def whole(self, request: AnyRequest) -> "Ended":
        """Return the answer to one of the requests once it is over."""
        async with self._answer(request) as answer:
            self.begun.append(answer)
            await answer.whole()
        return await self._ended(request, answer)

    async def streamed(
        self, request: AnyRequest, writer: "EventWriter"
    ) -> AsyncGenerator[bytes, None]:
        """Yield the answer to one of the requests as events."""
        has_begun, sent_at = False, monotonic()
        async with self._answer(request) as answer:
            self.begun.append(answer)
            async for update in answer.updates():
                data = b""
                if not has_begun and self._can_begin(request, update):
                    data, has_begun = writer.begin(answer), True
                written = writer.write(answer, update.chunks)
                is_quiet = not update.chunks or monotonic() - sent_at >= QUIET_SECONDS
                if is_quiet and not written and not update.is_over:
                    text = progress_text(update)
                    written = writer.quiet(text) if has_begun else comment(text)
                if data or written:
                    yield data + written
                    sent_at = monotonic()
        yield writer.end(await self._ended(request, answer))

    def _can_begin(self, request: AnyRequest, update: Update) -> bool:
        """Return True once what the answer needs to know is measured: the fingerprint follows."""
        has_turn = bool(update.chunks) or update.is_over
        return has_turn or not self.service.facts.lacks_exactness(request.values())

    def _answer(self, request: AnyRequest) -> AbstractAsyncContextManager[ServedAnswer]:
        return self.service.answer(
            request,
            api=self.api,
            client=self.client,
            model=self.model,
            limit=self.limit(),
            notices=self.notices,
        )

    async def _ended(self, request: AnyRequest, answer: ServedAnswer) -> "Ended":
        """Count an answer that is over, and check it if that was asked for."""
        self.done.append(answer.served)
        figures = figures_of(answer.served)
        if self.is_verified:
            figures["specchat"]["verify"] = await check_answer(self.service, request, answer)
        return Ended(request, answer, figures)


class Ended(NamedTuple):
    """An answer that is over, with its figures."""

    request: AnswerRequest
    answer: ServedAnswer
    figures: dict[str, Any]

    @property
    def stop_string(self) -> str:
        """The string of the request's own `stop` that ended the answer; empty if none did."""
        stop_string = self.answer.stop_string
        return stop_string if stop_string in self.request.stop else ""


class EventWriter(ABC):
    """Writes an answer as the server-sent events of an API."""

    def begin(self, answer: ServedAnswer) -> bytes:  # noqa: ARG002
        """Return the events that an answer begins with, if any."""
        return b""

    @abstractmethod
    def write(self, answer: ServedAnswer, chunks: Sequence[Chunk]) -> bytes:
        """Return the events for the latest steps of an answer; empty if they show nothing."""

    def quiet(self, text: str) -> bytes:
        """Return what shows that the answer goes on; `text` says how far it is."""
        return comment(text)

    @abstractmethod
    def end(self, ended: Ended) -> bytes:
        """Return the events that an answer ends with."""


def reply_to(request: Request, body: ChatBody, api: Api) -> Reply[ChatRequest]:
    """Return the reply to a conversation. Raises ApiError or InvalidOption."""
    service: Service = request.app.state.service
    requests, chosen = chat_requests(body, service)
    client = client_of(request.headers.get("user-agent", ""))
    notices = (*body.notices, *chosen.notices, *notices_of_tools(body.tools))
    return Reply(service, api, client, chosen.name, requests, bool(body.verify), notices)


def asked_by(request: Request, body: ChatBody) -> ChatRequest:
    """Return what a conversation asks for, in the engine's terms. Raises as `reply_to` does."""
    (asked, *_), _ = chat_requests(body, request.app.state.service)
    return asked


async def prompt_tokens(request: Request, asked: ChatRequest) -> int:
    """Return how many tokens the prompt of a conversation has. Raises what `Prompts` does."""
    service: Service = request.app.state.service
    return len(await service.prompts.tokens(asked))


async def counted(request: Request, asked: ChatRequest) -> JSONResponse:
    """Return that number as OpenAI's API has it."""
    count = await prompt_tokens(request, asked)
    return JSONResponse({"object": "response.input_tokens", "input_tokens": count})


def progress_text(update: Update) -> str:
    """Return how far a request is."""
    if update.statistics.generated_tokens:
        return f"writing, {update.statistics.generated_tokens} tokens"
    if update.place:
        return f"queued, {update.place} before this"
    share = update.progress.share if update.progress else 0.0
    return f"reading the prompt, {share:.0%}"
