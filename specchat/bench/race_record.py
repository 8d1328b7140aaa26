"""A race: one prompt decoded plainly and speculatively, with the time of every step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import exp, log
from statistics import fmean, stdev
from typing import Any, Self

from specchat.decoding.chunk import Chunk, pieces_of
from specchat.decoding.statistics import Statistics
from specchat.decoding.step_times import Gain, StepTimes, compared, judged
from specchat.drafter_registry import DRAFTERS, GRAMMAR, PLAIN, TARGET
from specchat.engine.api import Engine
from specchat.errors import Cancelled, SpecchatError
from specchat.formats.chat_message import ChatMessage
from specchat.wording import drafting_text, rate_text, speedup_text

MAX_TOKENS = 256
"""The default token limit of each answer."""
WARM_UP_TOKENS = 8
MOST_ROUNDS, ENOUGH_SECONDS = 5, 20.0
"""A race is repeated until its verdict is sound, up to this many rounds and this many seconds."""
SERVED_ROUNDS = 3
SERVED_BY = "served_by"
TOO_BUSY = "too close or too busy to tell"

RaceProgress = Callable[[str, int], object]
"""Called with the name of the lane being decoded and its number of tokens."""


@dataclass(frozen=True, slots=True)
class RaceStep:
    """The output of a step, `seconds` after the end of the prompt, with each token's origin.

    `nodes` counts the tokens of a draft with branches; it is 0 for other drafts.
    """

    seconds: float
    texts: tuple[str, ...]
    origins: tuple[str, ...]
    rejected: tuple[str, ...] = ()
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """One of the two answers; `stats` has the fields of `specchat ask --json`."""

    drafter: str
    steps: tuple[RaceStep, ...]
    stats: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, chunks: Sequence[Chunk], statistics: Statistics) -> Self:
        """Return the lane of a decoded answer; SpecchatError if it is empty."""
        steps = [
            RaceStep(chunk.seconds, *_tokens_of(chunk), chunk.rejected, len(chunk.tree))
            for chunk in chunks
            if chunk.tokens or (statistics.served_by and chunk.pieces)
        ]
        if not steps:
            raise SpecchatError("the model wrote nothing: try another prompt")
        served = {SERVED_BY: statistics.served_by} if statistics.served_by else {}
        return cls(statistics.drafter, tuple(steps), {**statistics.as_dict(), **served})

    @property
    def name(self) -> str:
        """The lane's name, with its drafters."""
        drafter = DRAFTERS.get(self.drafter)
        by = " and ".join(origin.label for origin in drafter.origins) if drafter else self.drafter
        return f"with {by}" if by else "plain decoding"

    @property
    def text(self) -> str:
        """The whole answer."""
        return "".join(text for step in self.steps for text in step.texts)

    @property
    def seconds(self) -> float:
        """The seconds that decoding took."""
        return self.steps[-1].seconds

    @property
    def num_tokens(self) -> int:
        """The number of tokens."""
        if SERVED_BY in self.stats:  # a part of its stream may have several
            return int(self.stats.get("generated_tokens") or 0)
        return sum(len(step.texts) for step in self.steps)

    @property
    def tokens_per_second(self) -> float:
        """The decode rate; 0 if the times are unknown."""
        return self.num_tokens / self.seconds if self.seconds else 0.0

    def add_to(self, times: StepTimes) -> None:
        """Add the times of the steps."""
        before = 0.0
        for step in self.steps:
            num_emitted, took = len(step.texts), step.seconds - before
            own = sum(step.origins.count(origin.name) for origin in (TARGET, GRAMMAR))
            num_drafted = step.nodes or num_emitted - own + len(step.rejected)
            times.add(num_drafted, num_emitted, took, took, 0.0)
            before = step.seconds

    def until(self, seconds: float) -> "Lane":
        """Return this lane as it was at a moment, perhaps before its first step."""
        return replace(self, steps=tuple(step for step in self.steps if step.seconds <= seconds))


@dataclass(frozen=True, slots=True)
class Race:
    """Two answers of one engine to the same prompt, decoded one after the other.

    They may have been decoded several times: `gain` is that of all rounds.
    """

    prompt: str
    target: str
    draft: str | None
    plain: Lane
    speculative: Lane
    gain: Gain = field(default_factory=Gain)

    @property
    def lanes(self) -> tuple[Lane, Lane]:
        """Both answers, in the order in which they are drawn."""
        return self.plain, self.speculative

    @property
    def seconds(self) -> float:
        """The seconds of the slower lane."""
        return max(lane.seconds for lane in self.lanes)

    @property
    def speedup(self) -> float:
        """Plain seconds per token / speculative seconds per token; 0 if unknown."""
        if self.gain.speedup:
            return self.gain.speedup
        plain = self.plain.tokens_per_second
        return self.speculative.tokens_per_second / plain if plain else 0.0

    @property
    def is_same_text(self) -> bool:
        """Whether both lanes have the same text."""
        return self.plain.text == self.speculative.text

    @property
    def verdict(self) -> str:
        """The speedup as text."""
        if self.gain.kind == "plain":
            return "plain speed"
        return speedup_text(self.speedup) if self.gain.is_sound else TOO_BUSY

    def details(self) -> str:
        """Return in one line where the speedup came from."""
        same = "same text" if self.is_same_text else "different texts"
        return f"{drafting_text(self.speculative.stats)} · {same}"

    def summary(self) -> str:
        """Return both rates and the result in one line."""
        plain, speculative = (rate_text(lane.tokens_per_second) for lane in self.lanes)
        return f"plain {plain} · speculative {speculative} · {self.verdict} · {self.details()}"

    def as_record(self) -> dict[str, Any]:
        """Return the race as JSON types."""
        import msgspec

        record: dict[str, Any] = msgspec.to_builtins(self)
        record["plain"]["tokens_per_second"] = self.plain.tokens_per_second
        record["speculative"]["tokens_per_second"] = self.speculative.tokens_per_second
        return {**record, "speedup": self.speedup, "same_text": self.is_same_text}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self | None:
        """Return the race in a record of `as_record`; None if it is missing or malformed."""
        import msgspec

        try:
            race = msgspec.convert(record, cls)
        except msgspec.ValidationError:
            return None
        if not (race.plain.steps and race.speculative.steps):
            return None
        if "gain" in record:
            return race
        rounds = Rounds()
        rounds.add(*race.lanes)
        return replace(race, gain=rounds.gain)


class Rounds:
    """The rounds of a race, each decoded plainly and then speculatively."""

    def __init__(self) -> None:
        """Start with no rounds."""
        self._lanes: list[tuple[Lane, Lane]] = []
        self._times = StepTimes(), StepTimes()

    def add(self, plain: Lane, speculative: Lane) -> None:
        """Add a decoded round."""
        self._lanes.append((plain, speculative))
        for lane, times in zip(self._lanes[-1], self._times, strict=True):
            lane.add_to(times)

    @property
    def gain(self) -> Gain:
        """The gain from speculation over all rounds."""
        if any(SERVED_BY in lane.stats for pair in self._lanes for lane in pair):
            return self._served_gain()
        plain, speculative = (sum(pair[side].num_tokens for pair in self._lanes) for side in (0, 1))
        return compared(*self._times, plain, speculative)

    def _served_gain(self) -> Gain:
        """Return the gain from the rates of whole answers, where the times of steps are unknown."""
        ratios = [
            log(speculative.tokens_per_second / plain.tokens_per_second)
            for plain, speculative in self._lanes
            if plain.tokens_per_second and speculative.tokens_per_second
        ]
        if len(ratios) < SERVED_ROUNDS:
            return Gain("measuring", exp(fmean(ratios))) if ratios else Gain()
        speedup, error = exp(fmean(ratios)), stdev(ratios) / len(ratios) ** 0.5
        return Gain(judged(speedup, error), speedup, error)

    @property
    def is_decided(self) -> bool:
        """Whether the verdict is sound, there is nothing to decide, or it has taken long enough."""
        if not self._lanes:
            return False
        seconds = sum(times.seconds for times in self._times)
        is_over = len(self._lanes) >= MOST_ROUNDS or seconds >= ENOUGH_SECONDS
        return is_over or self.gain.kind != "measuring"

    def race(self, prompt: str, target: str, draft: str | None) -> Race:
        """Return the race, with the lanes of the round that was disturbed least."""
        best = min(self._lanes, key=lambda pair: sum(lane.seconds for lane in pair))
        return Race(prompt, target, draft, *best, self.gain)


def _tokens_of(chunk: Chunk) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the texts and origins of the tokens of a step, or of a part of a server's stream."""
    if chunk.texts:
        return chunk.texts, chunk.origins
    pieces = pieces_of(chunk)
    return tuple(piece.text for piece in pieces), tuple(piece.origin for piece in pieces)


def run_race(
    engine: Engine,
    messages: Sequence[ChatMessage],
    options: Mapping[str, Any],
    on_progress: RaceProgress,
) -> Race:
    """Decode an answer plainly, then speculatively, each with an empty cache.

    Raises SpecchatError if the pair cannot speculate, and Cancelled if an answer is stopped.
    """
    facts = engine.facts
    if not facts.chooses_drafter:
        raise SpecchatError(
            f"no race: {facts.served_by} cannot turn drafts off for one answer; `specchat serve`"
            " can"
        )
    if facts.speculation_off_reason:
        raise SpecchatError(f"no race: this pair cannot speculate ({facts.speculation_off_reason})")
    plainly = {**options, "drafter": PLAIN}
    warm_up = {
        **plainly,
        "max_tokens": WARM_UP_TOKENS,
    }  # brings weights into memory and clocks up to speed
    _decode(engine, messages, warm_up, partial(on_progress, "first"))
    rounds = Rounds()
    while not rounds.is_decided:
        plain = _decode(engine, messages, plainly, partial(on_progress, "plain"))
        speculative = _decode(engine, messages, options, partial(on_progress, "speculative"))
        rounds.add(plain, speculative)
    return rounds.race(messages[-1]["content"], facts.target, facts.draft)


def _decode(
    engine: Engine,
    messages: Sequence[ChatMessage],
    options: Mapping[str, Any],
    on_progress: Callable[[int], object],
) -> Lane:
    engine.forget()
    chunks: list[Chunk] = []
    for chunk in engine.answer(messages, **options):
        chunks.append(chunk)
        on_progress(engine.stats.generated_tokens)
    if chunks[-1].finish == "cancelled":
        raise Cancelled("the race was stopped")
    return Lane.of(chunks, engine.stats)
