"""An engine that answers by a script, and the chat around it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from time import sleep
from typing import Any, NamedTuple

from specchat.decoding.chunk import Chunk, Finish, Kind, Origin, Piece, ToolCall, TreeToken
from specchat.decoding.repeats import Repeats
from specchat.decoding.replay import Replay
from specchat.decoding.statistics import Statistics
from specchat.engine.api import Engine, EngineFacts, Loading
from specchat.images.image import Image
from specchat.options.declarations import ScreenOptions
from specchat.requests.answer_request import AnswerRequest, ChatRequest
from specchat.requests.answer_update import Update
from specchat.requests.progress import ProgressCallback, Stage
from specchat.requests.prompt_size import PromptSize
from specchat.tui.app import ChatApp
from specchat.tui.setup import Offer, PairChoice, Setup
from timed_steps import timed

FACTS = EngineFacts(
    target="Scripted 8B",
    draft="Scripted 0.6B",
    context=4096,
    has_chat_template=True,
    speculation_off_reason=None,
    draft_off_reason=None,
    longest_draft=32,
    target_bytes=5_027_783_488,
    draft_bytes=639_446_688,
    cache_bytes=805_306_368,
    target_file_bytes=5_027_783_488,
    draft_file_bytes=639_446_688,
)
ORIGINS: tuple[Origin, ...] = ("draft", "suffix", "target")
COSTS = {count: 0.08 + 0.008 * count for count in range(1, 34)}
DRAFT_SECONDS, VERIFY_SECONDS = 0.02, 0.096
STEP_SECONDS = 0.12
SPEEDUP = 3 * COSTS[1] / STEP_SECONDS


class Token(NamedTuple):
    """A token of an answer, and the tool call that it completes."""

    text: str
    kind: Kind = "answer"
    calls: tuple[ToolCall, ...] = ()


class GivenOptions(dict[str, Any]):
    """The options that a request gives; others have their usual values."""

    def __missing__(self, name: str) -> Any:
        """Return an option's usual value."""
        return getattr(ChatRequest(messages=[]), name)


@dataclass
class Script:
    """What the engine does: its answers in turn, and what happens on the way."""

    answers: list[str] = field(default_factory=lambda: ["An answer."])
    reasoning: str = ""
    """Written before each answer; then, or with calls, steps have pieces as in a real chat."""
    calls: Sequence[ToolCall] = ()
    """Written after each answer, each as its `raw`."""
    thinking: tuple[str, ...] = ()
    """The words that the model knows for its thinking switch."""
    pause: float = 0.0
    """Seconds between steps."""
    error: Exception | None = None
    """Raised in the middle of each answer."""
    load_error: Exception | None = None
    left_out: int = 0
    """Messages that no longer fit the context."""
    num_drafted: int = 3
    """Tokens drafted in each step, as the statistics count them."""
    alternatives: tuple[tuple[int, str, float], ...] = ()
    """What could have stood in the place of each token."""
    chances: tuple[tuple[float, float], ...] = ()
    """The target's and the drafter's probability of the first drafted tokens of each step."""
    tree: tuple[TreeToken, ...] = ()
    """The tree of each whole step, in which two tokens are accepted."""
    asked: list[tuple[list[dict[str, Any]], dict[str, Any]]] = field(default_factory=list)
    finish: Finish = "stop"
    """How each answer ends."""
    refusal: Exception | None = None
    """Raised before an answer begins."""
    hold: threading.Event | None = None
    """Where set, each answer waits for it after its first step."""
    first_hold: threading.Event | None = None
    """Where set, each answer waits for it before its first step."""
    num_loads: int = 0
    load_hold: threading.Event | None = None
    """Where set, loading waits for it."""
    close_hold: threading.Event | None = None
    """Where set, an engine that is to end waits for it."""
    num_closed: int = 0
    takes_images: bool = False
    finds_loops: bool = False
    """Whether the statistics say of a passage that it is said over and over."""

    def load(self, loading: Loading, on_progress: Callable[[Stage, float], bool]) -> Engine:
        """Stand in for loading a pair."""
        del loading
        self.num_loads += 1
        on_progress("target", 0.5)
        if self.load_hold is not None:
            for _ in range(600):  # as the engine does, which repeats how far it is
                if self.load_hold.wait(0.1):
                    break
                on_progress("target", 0.5)
        if self.load_error is not None:
            raise self.load_error
        on_progress("target", 1.0)
        return ScriptedEngine(self)


class ScriptedEngine(Engine):
    """Answers by the script, three tokens a step where drafts are kept, one without drafts."""

    def __init__(self, script: Script) -> None:
        """Store the script."""
        reason = "" if script.takes_images else FACTS.images_off_reason
        self.facts = replace(FACTS, thinking=script.thinking, images_off_reason=reason)
        self.stats = Statistics()
        self._script = script
        self._stopped = threading.Event()
        self._drafts, self._is_replay = True, False
        self._repeats = Repeats()

    def begin(self, request: AnswerRequest) -> Generator[Update]:
        """Answer a conversation."""
        assert isinstance(request, ChatRequest)
        usual = ChatRequest(messages=request.messages)
        given = {each.name: getattr(request, each.name) for each in fields(request)}
        given = {name: value for name, value in given.items() if value != getattr(usual, name)}
        chunks = self.chat(request.messages, **given)
        return (Update((chunk,), self.stats, finish=chunk.finish) for chunk in chunks)

    def chat(
        self,
        messages: Sequence[Any],
        *,
        on_progress: ProgressCallback | None = None,
        **options: Any,
    ) -> Iterator[Chunk]:
        """Answer a conversation."""
        script = self._script
        if script.refusal is not None:
            raise script.refusal
        script.asked.append(([dict(message) for message in messages], GivenOptions(options)))
        text = script.answers[(len(script.asked) - 1) % len(script.answers)]
        self._stopped.clear()
        self.stats = Statistics(
            drafter="suffix+model", draft_length="auto", prompt_tokens=40, cached_tokens=30,
            time_to_first_token_s=0.12, pass_costs=COSTS, left_out=script.left_out,
        )  # fmt: skip
        self._repeats = Repeats()
        self._drafts = options.get("drafter") != "none"
        if not self._drafts:
            self.stats.drafter, self.stats.speculation_off_reason = "none", "switched off"
        replay = options.get("replay")
        self._is_replay = replay is not None
        if replay is not None:
            return self._replayed(text, options.get("begun", ()), replay)
        return self._steps(self._tokens(text))

    def _replayed(self, text: str, begun: Sequence[Chunk], replay: Replay) -> Iterator[Chunk]:
        yield from begun
        tokens, first = self._tokens(text), sum(len(step.tokens) for step in begun)
        length = 3 if self._drafts else 1
        end = min(first - (first - replay.end) // length * length, len(tokens))
        yield from self._steps(tokens[first:end])

    def _steps(self, tokens: Sequence[Token]) -> Iterator[Chunk]:
        length = 3 if self._drafts else 1
        if self._script.first_hold is not None:
            self._script.first_hold.wait(60)
        for place in range(0, len(tokens), length):
            if self._stopped.is_set():
                yield Chunk(text="", finish="cancelled")
                return
            part = tokens[place : place + length]
            is_last = place + length >= len(tokens)
            self._count(part)
            goes_on = self._script.error is not None or self._script.hold is not None
            yield self._step(part, self._script.finish if is_last and not goes_on else None)
            if self._script.error is not None:
                raise self._script.error
            if self._script.hold is not None:
                self._script.hold.wait(60)
            sleep(self._script.pause)
            if is_last and goes_on:
                is_stopped = self._stopped.is_set()
                yield Chunk(text="", finish="cancelled" if is_stopped else self._script.finish)

    def _tokens(self, text: str) -> list[Token]:
        """Return all of an answer in tokens of four characters."""
        reasoning = [Token(each, "reasoning") for each in in_tokens(self._script.reasoning)]
        calls = [
            Token(each, "call", (call,) * (place == last))
            for call in self._script.calls
            for last in [len(in_tokens(call.raw)) - 1]
            for place, each in enumerate(in_tokens(call.raw))
        ]
        return [*reasoning, *map(Token, in_tokens(text)), *calls] or [Token("")]

    def _step(self, tokens: Sequence[Token], finish: Finish | None) -> Chunk:
        origins, end = ORIGINS[-len(tokens) :], self.stats.generated_tokens
        step = Chunk(
            "".join(each.text for each in tokens if each.kind == "answer"),
            tuple(range(end - len(tokens), end)), origins, tuple(each.text for each in tokens),
            (1, 2, 3) * self._drafts, (" no",) * self._drafts, finish, self.stats.decode_s,
            self._script.chances, alternatives=(self._script.alternatives,) * len(tokens),
            tree=self._script.tree if len(tokens) == len(ORIGINS) else (),
        )  # fmt: skip
        if not self._script.reasoning and not self._script.calls:
            return step
        return step._replace(
            reasoning="".join(each.text for each in tokens if each.kind == "reasoning"),
            tool_calls=tuple(call for each in tokens for call in each.calls),
            pieces=tuple(
                Piece(each.text, origin, each.kind)
                for each, origin in zip(tokens, origins, strict=True)
            ),
        )

    def _count(self, tokens: Sequence[Token]) -> None:
        drafted, num_tokens = self._script.num_drafted * self._drafts, len(tokens)
        seconds = STEP_SECONDS if self._drafts else COSTS[1]
        drafting = DRAFT_SECONDS * self._drafts
        self.stats.count_step(drafted, min(num_tokens - 1, drafted), num_tokens)
        self.stats.decode_s += seconds
        self.stats.draft_s += drafting
        self.stats.verify_s += VERIFY_SECONDS if self._drafts else COSTS[1]
        if self._is_replay:
            self.stats.step_times.add(drafted, num_tokens, seconds, drafting)
        elif self._drafts:
            generated = self.stats.generated_tokens
            self.stats.step_times = timed(SPEEDUP, self.stats.decode_s, generated)
        if self._script.finds_loops:
            self.stats.repeating = self._repeats.add(each.text for each in tokens)
            self.stats.repeated += num_tokens if self.stats.repeating else 0
        num_reasoning = sum(each.kind == "reasoning" for each in tokens)
        self.stats.reasoning_tokens += num_reasoning
        self.stats.reasoning_s += STEP_SECONDS * (num_reasoning > 0)

    def size(self, request: ChatRequest) -> PromptSize:
        """Count four characters as a token."""
        counts = [len(in_tokens(each["content"])) for each in request.messages]
        is_too_long = counts[-1] > self.facts.context
        return PromptSize(counts[-1], self._script.left_out, is_too_long)

    def image_tokens(self, image: Image) -> list[int]:
        """Return a token for each kilobyte of the file."""
        return [-2] * (len(image.data) // 1000)

    def stop(self) -> None:
        """Stop the answer."""
        self._stopped.set()
        if self._script.hold is not None:
            self._script.hold.set()

    def forget(self) -> None:
        """Nothing is remembered."""

    def close(self) -> None:
        """Nothing is held."""
        if self._script.close_hold is not None:
            self._script.close_hold.wait(60)
        self._script.num_closed += 1


def in_tokens(text: str) -> list[str]:
    """Return a text in tokens of four characters."""
    return [text[place : place + 4] for place in range(0, len(text), 4)]


def chat(
    script: Script,
    history: Path | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    titles: bool = False,
    offers_race: bool = False,
    target: Path = Path("target.gguf"),
    **setup: Any,
) -> ChatApp:
    """Return the chat with a scripted engine, and options as the command line may give them.

    With `titles` the engine is also asked to title conversations while it is idle; with
    `offers_race` the first faster answer offers its race. `target` need not exist, unless the pair
    is served.
    """
    pair = PairChoice("scripted", "for tests", Loading(target), options or {})
    setup.setdefault("offers", lambda: [Offer(pair.name, pair.description, choose=lambda: pair)])
    screen = setup.pop("screen", ScreenOptions())
    screen = replace(screen, model_titles=titles and screen.model_titles, offer_race=offers_race)
    return ChatApp(Setup(pair, history=history, screen=screen, **setup), load=script.load)
