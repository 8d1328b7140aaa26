"""What all APIs of the server share: the engine, the models' names, requests in progress."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import time
from typing import Any, TypeVar

from specchat import __version__, drafter_registry
from specchat.decoding.chunk import Alternative
from specchat.engine.api import Engine, EngineFacts
from specchat.errors import Cancelled, SpecchatError
from specchat.requests.answer_request import AnswerRequest
from specchat.server.activity import Activity, Api, ServedRequest
from specchat.server.api_errors import NOT_FOUND, ApiError
from specchat.server.body_room import BodyRoom
from specchat.server.image_setup import ImageSetup
from specchat.server.line_limit import LineLimit
from specchat.server.prompts import ENDING, Prompts, done_on
from specchat.server.served_answer import Observer, ServedAnswer
from specchat.sharing.answer_turn import SLICE_SECONDS
from specchat.sharing.shared_engine import SharedEngine
from specchat.sharing.tickets import QueueFull, Ticket

Result = TypeVar("Result")
PLAIN_NAME = "plain"
"""What plain decoding is called in a model's name."""
MOST_SCORING = 32
"""Requests whose prompts are scored at a time, each of which may have hundreds."""
CLIENT = re.compile(r"[\w.-]+")
CLIENT_NAMES = {"claude-cli": "claude", "codex_cli_rs": "codex", "codex_exec": "codex"}
"""What clients are called that name themselves otherwise in User-Agent."""


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """A model as a request names it: the name to answer with, and the options it stands for.

    `notices` say that another one was asked for.
    """

    name: str
    options: Mapping[str, Any]
    notices: Sequence[str] = ()


class Service:
    """One loaded pair, served to clients.

    `defaults` are the options of answers for which a request says nothing. With `is_strict`, a
    request for any other model is refused.
    """

    def __init__(
        self,
        engine: SharedEngine,
        target: Path,
        name: str,
        defaults: Mapping[str, Any] | None = None,
        *,
        is_strict: bool = False,
    ) -> None:
        """Serve an engine with this target under a name."""
        self.engine = engine
        self.prompts = Prompts(engine, target)
        self.body_room = BodyRoom()
        self._reading = ThreadPoolExecutor(1, "bodies")
        self.name, self.file_name = name, target.name
        self.defaults = dict(defaults or {})
        self.is_strict = is_strict
        self.image_setup = ImageSetup(engine)
        self.created = int(time())
        self.activity = Activity()
        self.observers: list[Observer] = [self.activity.observe]
        self._number = self._num_scoring = 0
        self._tickets: set[Ticket] = set()
        self._is_ending = False

    @property
    def facts(self) -> EngineFacts:
        """The facts about the loaded pair."""
        facts = self.engine.facts
        if facts.takes_images and (reason := self.image_setup.off_reason):
            return replace(facts, images_off_reason=reason)
        return facts

    def model_names(self) -> tuple[str, ...]:
        """Return the names of the pair: its own, and those that name a drafter."""
        loaded = self.facts.draft_kind if not self.facts.draft_off_reason else ""
        if self.facts.speculation_off_reason:
            return (self.name,)
        drafters = [
            each for each in drafter_registry.working(loaded) if each != drafter_registry.AUTO
        ]
        return (self.name, *(f"{self.name}:{each}" for each in (PLAIN_NAME, *drafters)))

    def choose(self, named: str | None) -> ChosenModel:
        """Return the model that a request names; any unknown name means the loaded pair.

        Raises ApiError for such a name with `is_strict`.
        """
        if not named:
            return ChosenModel(self.name, {})
        if named in self.model_names():
            _, _, drafter = named[len(self.name) :].partition(":")
            drafter = drafter_registry.PLAIN if drafter == PLAIN_NAME else drafter
            return ChosenModel(named, {"drafter": drafter} if drafter else {})
        if self.is_strict:
            raise self.unknown_model(named)
        return ChosenModel(self.name, {}, [f"unknown model {named!r:.80}: answered by {self.name}"])

    def unknown_model(self, named: str) -> ApiError:
        """Return the error for a name that this server does not have."""
        message = f"no model {named!r:.80}: this server has {self.name}"
        return ApiError(NOT_FOUND, message, "model", "model_not_found")

    def fingerprint(self, requests: Sequence[AnswerRequest]) -> str | None:
        """Return a name for all that answers with a seed depend on beside their requests.

        That is the target, this build of specchat, and which drafts keep the bits of plain
        decoding. None if one of them has drafts that may not, as then its text need not repeat.
        """
        facts = self.facts
        if any(each.seed is not None and not facts.repeats(each.values()) for each in requests):
            return None
        exact = facts.exact_draft, facts.repeatable_draft
        parts = (facts.target, facts.target_file_bytes, __version__, facts.plan, exact)
        return "fp_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:12]

    @asynccontextmanager
    async def answer(
        self,
        request: AnswerRequest,
        *,
        api: Api,
        client: str,
        model: str,
        limit: LineLimit | None = None,
        notices: Sequence[str] = (),
    ) -> AsyncIterator[ServedAnswer]:
        """Check a request, queue it and yield its answer, up to a limit; leaving gives it up.

        `notices` say what of the request changes nothing.

        Raises what is wrong with it, before its turn: ContextFull, InvalidOption, TemplateError;
        QueueFull; or Cancelled if the server ends.
        """
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def on_change() -> None:
            with suppress(RuntimeError):  # the loop may have been closed
                loop.call_soon_threadsafe(changed.set)

        self._number += 1
        served = ServedRequest(self._number, client, api, model, time(), notices=tuple(notices))
        try:
            request = await self.prompts.checked(request)
        except (QueueFull, Cancelled):
            raise
        except SpecchatError as error:
            served.state, served.finish, served.error = "over", "failed", str(error)
            self._observe(served)
            raise
        ticket = Ticket(request, client, on_change, is_served=True)
        self._submit(ticket)
        served.place = ticket.place
        self._observe(served)
        try:
            yield ServedAnswer(served, ticket, changed, self._observe, limit)
        finally:
            self._tickets.discard(ticket)
            if not ticket.is_over:
                ticket.cancel()
            if served.finish is None:
                served.state, served.finish = "over", "cancelled"
                self._observe(served)

    def _submit(self, ticket: Ticket) -> None:
        """Queue a request. Raises QueueFull, or Cancelled if the server ends."""
        if not self._is_ending:
            self.engine.submit(ticket)
            self._tickets.add(ticket)
        if self._is_ending:  # perhaps since it was looked at
            ticket.cancel()
            raise Cancelled(ENDING)

    async def off_loop(self, act: Callable[..., Result], *given: Any) -> Result:
        """Call a function whose work grows with a request: streams go on meanwhile."""

        def do() -> Result:
            if self._is_ending:
                raise Cancelled(ENDING)
            return act(*given)

        return await done_on(self._reading, do)

    @contextmanager
    def scoring(self) -> Iterator[None]:
        """Count a request whose prompts are scored, which no queue holds. Raises QueueFull."""
        if self._num_scoring >= MOST_SCORING:
            raise QueueFull(f"{self._num_scoring} requests are being scored: try again later")
        self._num_scoring += 1
        try:
            yield
        finally:
            self._num_scoring -= 1

    async def score(self, tokens: Sequence[int], count: int) -> list[tuple[Alternative, ...]]:
        """Return the likely tokens in the place of each of a text's, as `Engine.score` does.

        Answers have their turns meanwhile; leaving gives it up. Raises Cancelled if the server
        ends.
        """
        found, is_left = list[tuple[Alternative, ...]](), False

        def part(engine: Engine) -> list[tuple[Alternative, ...]]:
            return engine.score(
                tokens,
                count,
                first=len(found),
                seconds=SLICE_SECONDS,
                is_stopped=lambda: is_left or self._is_ending,
            )

        try:
            while len(found) < len(tokens):
                found += await asyncio.to_thread(self.engine.call, part)
        except Cancelled:
            raise Cancelled(ENDING) from None
        finally:
            is_left = True
        return found

    def end(self) -> None:
        """End the answers in progress, and refuse new ones; the engine stays."""
        self._is_ending = True
        for ticket in tuple(self._tickets):
            ticket.cancel()
        self.prompts.close()
        self._reading.shutdown(wait=False)

    def _observe(self, served: ServedRequest) -> None:
        for observer in self.observers:
            observer(served)


def client_of(user_agent: str) -> str:
    """Return a short name for the program that asks, by its User-Agent."""
    match = CLIENT.match(user_agent)
    name = match[0].lower() if match else "unknown"
    return CLIENT_NAMES.get(name, name)[:20]
