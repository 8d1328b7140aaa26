"""What the APIs for conversations share: a reply in the making, whole or as a stream of events."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from time import monotonic
from typing import Any, NamedTuple, Protocol

from starlette.requests import Request

from specchat.requests.answer_request import ChatRequest
from specchat.server.answer_check import check_answer
from specchat.server.answer_figures import figures_of
from specchat.server.api_errors import ApiError
from specchat.server.chat_body import ChatBody, chat_requests
from specchat.server.reply_parts import Part, PartEvent, ReplyParts
from specchat.server.service import Answer, Api, Service, client_of
from specchat.sharing.tickets import Update

QUIET_SECONDS = 2.0
"""How often a stream says that an answer goes on while its steps show nothing: a tool call is sent
once it is complete."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply in the making: what was asked, in the engine's terms, and how it is answered."""

    service: Service
    api: Api
    client: str
    model: str
    requests: Sequence[ChatRequest]
    is_verified: bool

    def answer(self, request: ChatRequest) -> AbstractAsyncContextManager[Answer]:
        """Queue a request; the context's value is its answer."""
        return self.service.answer(request, api=self.api, client=self.client, model=self.model)

    async def figures(self, request: ChatRequest, answer: Answer) -> dict[str, Any]:
        """Return the figures of an answer, and what a check of it found if one was asked for."""
        found = figures_of(answer.progress)
        if self.is_verified:
            found["specchat"]["verify"] = await check_answer(self.service, request, answer)
        return found


class Ended(NamedTuple):
    """An answer that is over, with its parts and figures."""

    request: ChatRequest
    answer: Answer
    parts: Sequence[Part]
    figures: dict[str, Any]

    @property
    def stop_string(self) -> str:
        """The string of the request's own `stop` that ended the answer; empty if none did."""
        found = self.answer.stop_string
        return found if found in self.request.stop else ""


class EventWriter(Protocol):
    """Writes an answer as the server-sent events of an API."""

    def begin(self, answer: Answer) -> bytes:
        """Return what a stream begins with."""

    def write(self, happened: PartEvent) -> bytes:
        """Return the events for what happened to a part of the answer."""

    def quiet(self, text: str) -> bytes:
        """Return what shows that the answer goes on; `text` says how far it is."""

    def end(self, ended: Ended) -> bytes:
        """Return what a stream ends with."""

    def failed(self, error: ApiError) -> bytes:
        """Return what a stream ends with if the answer failed."""


class Quiet:
    """Decides when a stream without events should show that its answer goes on."""

    def __init__(self) -> None:
        """Begin with nothing sent."""
        self._sent_at = monotonic()

    def is_due(self, update: Update) -> bool:
        """Return True if an update that shows nothing should be marked in the stream."""
        return not update.chunks or monotonic() - self._sent_at >= QUIET_SECONDS

    def end(self) -> None:
        """Note that something was sent."""
        self._sent_at = monotonic()


def reply_to(request: Request, body: ChatBody, api: Api) -> Reply:
    """Return the reply to a conversation. Raises ApiError or InvalidOption."""
    service: Service = request.app.state.service
    requests, model = chat_requests(body, service)
    client = client_of(request.headers.get("user-agent", ""))
    return Reply(service, api, client, model, requests, bool(body.verify))


async def whole(reply: Reply) -> Ended:
    """Return the answer to the only request of a reply."""
    (request,) = reply.requests
    parts = ReplyParts()
    async with reply.answer(request) as answer:
        async for update in answer.updates():
            parts.add(update.chunks, update.finish)
    return Ended(request, answer, parts.parts, await reply.figures(request, answer))


async def streamed(reply: Reply, writer: EventWriter) -> AsyncGenerator[bytes, None]:
    """Yield the answer to the only request of a reply as events."""
    (request,) = reply.requests
    parts, quiet, has_begun = ReplyParts(), Quiet(), False
    async with reply.answer(request) as answer:
        async for update in answer.updates():
            data = b"" if has_begun else writer.begin(answer)
            happened = parts.add(update.chunks, update.finish)
            data += b"".join(map(writer.write, happened))
            if not happened and quiet.is_due(update):
                data += writer.quiet(progress_text(update))
            if data:
                yield data
                quiet.end()
                has_begun = True
    figures = await reply.figures(request, answer)
    yield writer.end(Ended(request, answer, parts.parts, figures))


def progress_text(update: Update) -> str:
    """Return how far a request is."""
    if update.statistics.generated_tokens:
        return f"writing, {update.statistics.generated_tokens} tokens"
    if update.place:
        return f"queued, {update.place} before this"
    return f"reading the prompt, {update.share:.0%}"
