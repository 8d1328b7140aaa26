"""An engine that sends its requests to an OpenAI-compatible server and streams the answers."""

import json
import re
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from time import monotonic, perf_counter, sleep
from typing import Any

from specchat.chat.newest_turns import newest_turns
from specchat.connection.address import ServerAddress
from specchat.connection.counter_watch import CounterWatch
from specchat.connection.http_session import HttpSession, ServerEvents
from specchat.connection.probing import ServerFacts, find_server
from specchat.connection.reported_figures import ReportedFigures
from specchat.connection.request_body import chat_body, text_body
from specchat.connection.sent_images import num_characters, require_sendable
from specchat.connection.server_errors import ServerLoading, failure_in_stream, not_an_api
from specchat.connection.stream_reader import DONE, StreamReader
from specchat.connection.structure_check import why_not
from specchat.connection.token_counts import count_tokens
from specchat.decoding.chunk import Chunk
from specchat.decoding.repeats import TextRepeats
from specchat.decoding.statistics import Statistics
from specchat.engine.api import Engine, EngineFacts
from specchat.errors import Cancelled, ContextFull, InvalidOption, ServerFailed
from specchat.formats.chat_message import ChatMessage
from specchat.images.text_only import TEXT_ONLY, text_only
from specchat.requests.answer_request import AnswerRequest, ChatRequest
from specchat.requests.answer_update import Update
from specchat.requests.progress import ProgressCallback
from specchat.requests.prompt_size import PromptSize
from specchat.structured.structure import NAMES, Structure

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
LOADING_POLL_SECONDS = 1.0
LONGEST_LOADING = 900.0
"""Seconds to wait for a server that loads its model."""
LEAST_ROOM = 256
"""Tokens that a full context leaves for an answer without a limit."""
MOST_ATTEMPTS = 4
"""How often older turns are left out of one request before giving up."""
MARGIN = 1.1
"""Tokens vary in length, so a text counts as this many times the tokens its length suggests."""
LAST_FIGURES_SECONDS = 3.0
"""How long the end of a stream is waited for once its answer is complete."""
TAGS_NOTICE = (
    "the server leaves reasoning in the answer: start it with a reasoning parser, such as vLLM with"
    " --reasoning-parser"
)


class ConnectedEngine(Engine):
    """A model that another program runs. Nothing is kept here, so a failed answer does no harm."""

    def __init__(self, address: ServerAddress, on_progress: ProgressCallback | None = None) -> None:
        """Ask the server what it runs; wait while it loads its model.

        Raises ServerFailed, or Cancelled if the callback returns False meanwhile.
        """
        self.address = address
        self._statistics = Statistics()  # of the answer in progress
        self._session = HttpSession(address)
        self._stream: ServerEvents | None = None
        self._is_stopped = False
        self._stopping = threading.Lock()
        try:
            self.server = self._wait_for_model(on_progress)
        except BaseException:
            self._session.close()
            raise
        self.facts = facts_of(self.server, address)

    def _wait_for_model(self, on_progress: ProgressCallback | None) -> ServerFacts:
        def report() -> None:
            if on_progress is not None and on_progress("target", 0.0) is False:
                raise Cancelled("connecting was stopped")

        deadline = monotonic() + LONGEST_LOADING
        self._session.on_wait = report
        while True:
            report()
            try:
                facts = find_server(self._session)
            except ServerLoading:
                if monotonic() > deadline:
                    raise
                sleep(LOADING_POLL_SECONDS)
            else:
                self._session.on_wait = None
                if on_progress is not None:
                    on_progress("target", 1.0)
                return facts

    def begin(self, request: AnswerRequest) -> Generator[Update]:
        """Check a request and yield its answer, an update for each part of the stream."""
        self._require_idle()
        self._is_stopped = False
        if request.images and not self.facts.takes_images:
            raise InvalidOption(text_only(f"{self.facts.target} at {self.address.shown}"))
        require_sendable(request.images, self.facts.served_by)
        dialect, model = self.server.dialect, self.server.model
        if isinstance(request, ChatRequest):
            body = chat_body(request, request.messages, model, dialect)
        else:
            body = text_body(request, model, dialect)
        return self._answer(request, body)

    def _answer(self, request: AnswerRequest, body: Mapping[str, Any]) -> Generator[Update]:
        self._is_busy = True
        dialect = self.server.dialect
        figures = ReportedFigures(
            self.facts.served_by, perf_counter(), reports_gain=dialect.reports_gain
        )
        self._statistics = figures.statistics
        self._statistics.speculation_off_reason = self.server.speculation_off_reason
        watch = CounterWatch(self._session, self.server)
        try:
            for attempt in range(MOST_ATTEMPTS):
                try:
                    for chunk in self._streamed(request, body, figures, watch):
                        yield Update((chunk,), self._statistics, finish=chunk.finish)
                except ContextFull as error:
                    if attempt == MOST_ATTEMPTS - 1 or figures.statistics.generated_tokens:
                        raise
                    body = self._with_room(request, body, error)
                else:
                    return
        finally:
            self._end_stream()
            self._is_busy = False

    def _streamed(
        self,
        request: AnswerRequest,
        body: Mapping[str, Any],
        figures: ReportedFigures,
        watch: CounterWatch,
    ) -> Iterator[Chunk]:
        """Yield what one request brings. Raises ContextFull, InvalidOption or ServerFailed."""
        is_chat = isinstance(request, ChatRequest)
        reader, stats = StreamReader(is_chat, self._repeated(request)), figures.statistics
        stream, is_done = self._open(CHAT if is_chat else TEXT, body), False
        text, repeats = list[str](), TextRepeats()
        for data in self._until_complete(stream, reader):
            if data.strip() == DONE:
                is_done = True
                break
            event = self._decoded(data)
            chunk = reader.read(event) if reader.finish is None else None
            is_reasoning = chunk is not None and not chunk.text
            has_text = chunk is not None or reader.is_in_call
            figures.take(event, has_text=has_text, is_reasoning=is_reasoning)
            watch.update(figures)
            if chunk is not None:
                text.append(chunk.text)
                stats.repeating = repeats.add("".join(piece.text for piece in chunk.pieces))
                yield chunk._replace(seconds=stats.decode_s)
        if self._is_stopped:
            watch.close()
            yield Chunk("", finish="cancelled", seconds=stats.decode_s)
            return
        if (last := reader.end()) is not None:
            text.append(last.text)
            yield last._replace(seconds=stats.decode_s)
        if reader.is_aborted or (reader.finish is None and not is_done):
            raise ServerFailed(
                f"{self.address.shown} ended the answer early: see the server's log; try again"
            )
        self._require_room(stats)
        watch.end(figures)
        figures.end()
        if reader.has_closing_tag:
            stats.notices = (*stats.notices, TAGS_NOTICE)
        if reader.num_broken_calls:
            stats.notices = (*stats.notices, "a tool call was cut off, and is left out")
        finish, limit = reader.finish or "stop", request.max_tokens
        is_shorter = figures.knows_tokens and stats.generated_tokens < (limit or 0)
        if finish == "length" and (limit is None or is_shorter):
            finish = "context"
        if request.structure is not None:
            self._check(request.structure, "".join(text), finish)
        yield Chunk("", finish=finish, stop_string=reader.stop_string, seconds=stats.decode_s)

    def _until_complete(self, stream: ServerEvents, reader: StreamReader) -> Iterator[str]:
        """Yield the data of a stream; once the answer is complete, wait briefly for figures."""
        try:
            for data in stream:
                yield data
                if reader.finish is not None:
                    stream.limit(LAST_FIGURES_SECONDS)
        except ServerFailed:
            if reader.finish is None or reader.is_aborted:
                raise

    def _repeated(self, request: AnswerRequest) -> str:
        """Return the beginning of an answer that the server will repeat; "" for none."""
        if not self.server.dialect.repeats_begun or not isinstance(request, ChatRequest):
            return ""
        last = request.messages[-1]
        return last["content"] if last["role"] == "assistant" else ""

    def _check(self, structure: Structure, answer: str, finish: str) -> None:
        """Record whether an answer is what its structure asks for, as far as can be told here."""
        if finish != "stop":
            self._statistics.is_valid = False
            return
        reason = why_not(structure, answer, self.facts.served_by)
        if reason is None:
            name = NAMES[structure.kind]
            self._statistics.notices += (f"{name} was sent to the server; it is not checked here",)
        self._statistics.is_valid, self._statistics.invalid_reason = not reason, reason or ""

    def _require_room(self, stats: Statistics) -> None:
        """Raise ContextFull for an empty answer to a prompt that is too long.

        LM Studio does not call that an error.
        """
        size = self.server.context
        if not stats.generated_tokens and stats.prompt_tokens > size > 0:
            error = ContextFull(
                f"the conversation does not fit the server's context: it has {stats.prompt_tokens}"
                f" tokens, and the context holds {size}"
            )
            error.num_tokens, error.capacity = stats.prompt_tokens, size
            raise error

    def _open(self, path: str, body: Mapping[str, Any]) -> ServerEvents:
        with self._stopping:
            stream = self._session.stream(path, body)
            self._stream = stream
            if self._is_stopped:
                stream.cancel()
        return stream

    def _end_stream(self) -> None:
        with self._stopping:
            if self._stream is not None:
                self._stream.cancel()
                self._stream = None

    def _decoded(self, data: str) -> Mapping[str, Any]:
        """Return an event's data. Raises the error that it reports, and for what is not JSON."""
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            raise not_an_api(self.address, "with a stream that is not JSON") from None
        if (error := failure_in_stream(event, self.address)) is not None:
            raise error
        return event if isinstance(event, Mapping) else {}

    def _with_room(
        self, request: AnswerRequest, body: Mapping[str, Any], error: ContextFull
    ) -> dict[str, Any]:
        """Return the body without the conversation's oldest turns; raise the error if none can go.

        The error says only how many tokens there are in all, so turns are judged by their
        characters.
        """
        if not isinstance(request, ChatRequest) or not request.make_room or not error.capacity:
            raise error
        sent: Sequence[ChatMessage] = body["messages"]
        per_character = MARGIN * error.num_tokens / max(1, num_characters(sent))
        room = min(request.max_tokens or LEAST_ROOM, error.capacity // 4)
        kept = newest_turns(
            request.messages,
            lambda messages: int(per_character * num_characters(messages)),
            error.capacity - room,
            frozenset(request.pinned),
        )
        if len(kept) >= len(sent):
            raise error
        self._statistics.left_out = len(request.messages) - len(kept)
        return chat_body(request, kept, self.server.model, self.server.dialect)

    def stop(self) -> None:
        """Close the answer's connection, which stops servers, or give up counting; any thread."""
        with self._stopping:
            self._is_stopped = True
            if self._stream is not None:
                self._stream.cancel()

    def size(self, request: ChatRequest) -> PromptSize | None:
        """Return how much of the context a conversation would take, if the server counts tokens."""
        self._require_open()
        if request.images:
            return None  # they would be sent for each look at what is typed
        body = chat_body(request, request.messages, self.server.model, self.server.dialect)

        def give_up() -> None:
            if self._is_stopped:
                raise Cancelled("counting was stopped")

        self._is_stopped, self._session.on_wait = False, give_up
        try:
            counts = count_tokens(self._session, self.server, body)
        finally:
            self._session.on_wait = None
        if counts is None:
            return None
        capacity = self.server.context or counts.prompt + 1
        is_too_long = counts.message > capacity
        return PromptSize(counts.message, is_too_long=is_too_long, prompt_tokens=counts.prompt)

    def forget(self) -> None:
        """Do nothing: the texts in the server's memory are its own."""

    def close(self) -> None:
        """Close the connections; an answer in progress ends."""
        if not self._is_closed:
            self._is_closed = True
            self.stop()
            self._session.close()


def facts_of(server: ServerFacts, address: ServerAddress) -> EngineFacts:
    """Return the facts about the model that a server runs, as an engine has them."""
    label = f"{server.dialect.label} {server.version}".strip()
    others = [name for name in server.models if not name.startswith(server.model)]
    more = "one more model" if len(others) == 1 else f"{len(others)} more models"
    notice = f"{address.shown} has {more}: --served-model chooses one"
    return EngineFacts(
        target=shown_name(server.model),
        draft=server.drafting or None,
        context=server.context,
        has_chat_template=True,
        speculation_off_reason=server.speculation_off_reason,
        draft_off_reason=None,
        longest_draft=0,
        plan=f"{label} at {address.shown}",
        notices=(notice,) if others and not address.model else (),
        thinking=server.thinking,
        served_by=f"{server.dialect.label} at {address.shown}",
        chooses_drafter=server.dialect.takes_drafter,
        ignores_end=server.dialect.ignores_end,
        idle_processors=1,  # decoding takes none here
        images_off_reason="" if server.takes_images else TEXT_ONLY,
    )


def shown_name(model: str) -> str:
    """Return a model's name as it is shown; of a path, only the file name."""
    is_path = model.startswith(("/", ".")) or model[1:3] in {":\\", ":/"}
    return re.split(r"[/\\]", model)[-1] if is_path else model
