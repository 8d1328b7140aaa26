"""What all APIs of the server share: the engine, the models' names, requests in progress."""

import asyncio
import hashlib
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from time import monotonic, time
from typing import Any, TypeAlias, TypeVar

from specchat import __version__, drafter_registry
from specchat.decoding.chunk import Alternative, Chunk, Finish, ToolCall
from specchat.decoding.statistics import Statistics
from specchat.engine.api import Engine, EngineFacts
from specchat.errors import Cancelled, SpecchatError
from specchat.formats.call_reading import NUMBERED_ID
from specchat.images.text_only import TEXT_ONLY
from specchat.requests.answer_request import AnswerRequest
from specchat.requests.answer_update import Update
from specchat.server.activity import Activity, Api, ServedRequest
from specchat.server.api_errors import NOT_FOUND, ApiError
from specchat.server.body_room import BodyRoom
from specchat.server.line_limit import LineLimit
from specchat.server.prompts import ENDING, Prompts, done_on
from specchat.sharing.answer_turn import SLICE_SECONDS
from specchat.sharing.shared_engine import SharedEngine
from specchat.sharing.tickets import QueueFull, Ticket
from specchat.system.clone import set_up_images

Result = TypeVar("Result")
PLAIN_NAME = "plain"
"""What plain decoding is called in a model's name."""
SECONDS_TO_COMMENT, SILENT_SECONDS = 2.0, 10.0
"""A stream has a comment if no step comes for this long, at first and later. Before the first one
an error still has a status of its own."""
RETRY_SECONDS = 300.0
"""How long after a failed set-up of images one that comes has it tried again, which takes minutes.
"""
CLIENT = re.compile(r"[\w.-]+")
CLIENT_NAMES = {"claude-cli": "claude", "codex_cli_rs": "codex", "codex_exec": "codex"}
"""What clients are called that name themselves otherwise in User-Agent."""


Observer: TypeAlias = Callable[[ServedRequest], None]
"""Called on the server's own thread when a request begins, advances and ends."""


@dataclass(slots=True)
class ServedAnswer:
    """An answer in progress: what has come of it so far, and how to wait for more."""

    served: ServedRequest
    ticket: Ticket
    _changed: asyncio.Event
    _observe: Observer
    _limit: LineLimit | None = None
    chunks: list[Chunk] = field(default_factory=list)
    finish: Finish | None = None

    @property
    def text(self) -> str:
        """The text so far, without reasoning."""
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return "".join(chunk.reasoning for chunk in self.chunks)

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls so far."""
        return [call for chunk in self.chunks for call in chunk.tool_calls]

    @property
    def tokens(self) -> list[int]:
        """The tokens so far, reasoning included."""
        return [token for chunk in self.chunks for token in chunk.tokens]

    @property
    def stop_string(self) -> str:
        """The stop string that ended the answer; empty if none did."""
        return self.chunks[-1].stop_string if self.chunks else ""

    @property
    def statistics(self) -> Statistics:
        """The statistics so far."""
        return self.served.statistics

    async def updates(self) -> AsyncIterator[Update]:
        """Yield the steps until the answer is over.

        While there are none, an update without steps comes now and then, of which a stream makes a
        comment. Raises the error that the answer failed with, or Cancelled if it was stopped.
        """
        loop = asyncio.get_running_loop()
        silent_until = loop.time() + SECONDS_TO_COMMENT
        alarm = loop.call_at(silent_until, self._changed.set)
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                update = self._limited(self._with_call_ids(self.ticket.take()))
                self._follow(update)
                if update.error is not None:
                    raise update.error
                if update.finish == "cancelled":
                    raise Cancelled(ENDING)
                if update.chunks or update.is_over or loop.time() >= silent_until:
                    yield update
                    silent_until = loop.time() + SILENT_SECONDS
                if update.is_over:
                    return
                if alarm.when() <= loop.time():  # one for many steps: setting it takes time
                    alarm = loop.call_at(silent_until, self._changed.set)
        finally:
            alarm.cancel()

    async def whole(self) -> "ServedAnswer":
        """Wait for the end."""
        async for _ in self.updates():
            pass
        return self

    def _with_call_ids(self, update: Update) -> Update:
        """Return an update whose tool calls have ids that no other answer has.

        Agents tell all calls of a conversation apart by them. They have nine letters or digits,
        because Mistral's templates refuse any others.
        """
        if not any(chunk.tool_calls for chunk in update.chunks):
            return update
        number, chunks = len(self.tool_calls), list[Chunk]()
        for chunk in update.chunks:
            numbered = enumerate(chunk.tool_calls, number)
            calls = tuple([_with_own_id(call, each) for each, call in numbered])
            chunks.append(chunk._replace(tool_calls=calls))
            number += len(calls)
        return replace(update, chunks=tuple(chunks))

    def _limited(self, update: Update) -> Update:
        """Return an update that ends the answer if its text comes to the limit on lines."""
        if self._limit is None:
            return update
        for place, chunk in enumerate(update.chunks):
            kept = self._limit.find_end(chunk.text, update.statistics.decode_s)
            if kept is not None:
                last = chunk._replace(text=chunk.text[:kept])
                return replace(update, chunks=(*update.chunks[:place], last), finish="length")
        return update

    def _follow(self, update: Update) -> None:
        served = self.served
        self.chunks += update.chunks
        served.statistics = update.statistics
        served.place = update.place
        served.share = update.progress.share if update.progress else 0.0
        served.waited_s = self.ticket.waited_s
        if update.is_over:
            self.finish = update.finish
            served.state = "over"
            served.finish = "failed" if update.error else update.finish
            served.error = str(update.error or "")
        elif update.statistics.generated_tokens:
            served.state = "writing"
        elif not update.place:
            served.state = "reading"
        self._observe(served)


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
        self.images_off_reason = ""
        """Why the engine cannot read images, if it was found out after it was loaded."""
        self._on_image_line: Callable[[str], object] = lambda _: None
        self._tried_images_at = 0.0
        self.created = int(time())
        self.activity = Activity()
        self.observers: list[Observer] = [self.activity.observe]
        self._number = 0
        self._tickets: set[Ticket] = set()
        self._is_ending = False

    @property
    def facts(self) -> EngineFacts:
        """The facts about the loaded pair."""
        facts = self.engine.facts
        if facts.takes_images and (reason := self.images_off_reason):
            return replace(facts, images_off_reason=reason)
        return facts

    def set_up_images(self, on_line: Callable[[str], object]) -> None:
        """Have a clone make what reads images, if the model takes some; block until then.

        `on_line` is called with what is done, and with why a model that could read images cannot.
        """
        self._on_image_line, self._tried_images_at = on_line, monotonic()
        if self.engine.facts.takes_images:
            self.images_off_reason = set_up_images(on_line, again=True)
        if (reason := self.facts.images_off_reason) and reason != TEXT_ONLY:
            on_line(reason)

    def refused_image(self) -> None:
        """Try a set-up that failed again, beside, now that an image came; but not with each one."""
        if self.images_off_reason and monotonic() - self._tried_images_at > RETRY_SECONDS:
            self._tried_images_at = monotonic()
            Thread(target=self.set_up_images, args=[self._on_image_line], daemon=True).start()

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


def _with_own_id(call: ToolCall, number: int) -> ToolCall:
    """Return a tool call with an id of its own; one that the model wrote is kept."""
    is_numbered = call.id == NUMBERED_ID.format(number)
    return call._replace(id=secrets.token_hex(5)[:9]) if is_numbered else call


def client_of(user_agent: str) -> str:
    """Return a short name for the program that asks, by its User-Agent."""
    match = CLIENT.match(user_agent)
    name = match[0].lower() if match else "unknown"
    return CLIENT_NAMES.get(name, name)[:20]
