"""A race: an answer's own tokens decoded again with drafts and without, and the time of each step.

The two lanes take turns, a slice of the answer each, so that both see the same minute of the
machine.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import strftime
from typing import Any, Self

from specchat import __version__
from specchat.decoding.chunk import Chunk
from specchat.decoding.repeats import Repeats
from specchat.decoding.replay import Replay
from specchat.decoding.statistics import Statistics
from specchat.decoding.step_times import Gain, compared
from specchat.drafter_registry import DRAFTERS, PLAIN, TokenOrigin
from specchat.engine.api import Engine, EngineFacts
from specchat.errors import Cancelled, SpecchatError
from specchat.formats.chat_message import ChatMessage
from specchat.wording import accepted_text, gain_text, rate_text

MAX_TOKENS = 256
"""The default token limit of the answer that `specchat race` races."""
SLICE = 32
"""The tokens that a lane decodes before it is the other one's turn. Two slices in a row are no more
than a head can catch up on afterwards."""
MOST_ROUNDS, ENOUGH_SECONDS = 40, 20.0
"""The answer is raced again until the verdict is sound, up to so many times and seconds."""
TOO_BUSY = "too close or too busy to tell"
NOTHING_DRAFTED = "no speedup: the race drafted nothing"

RaceProgress = Callable[[str], object]
"""Called with how far a race is."""


@dataclass(frozen=True, slots=True)
class RaceStep:
    """The output of a step, `seconds` after the end of the prompt, with each token's origin.

    The step drafted `drafted` tokens, branches included.
    """

    seconds: float
    texts: tuple[str, ...]
    origins: tuple[str, ...]
    drafted: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """The answer as it was decoded in one way; `stats` has the fields of `specchat ask --json`."""

    drafter: str
    steps: tuple[RaceStep, ...]
    stats: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The lane's name, with its drafters."""
        return self._named(lambda of: of.label)

    @property
    def short_name(self) -> str:
        """The same for narrow screens."""
        return self._named(lambda of: of.name)

    def _named(self, name_of: Callable[[TokenOrigin], str]) -> str:
        drafter = DRAFTERS.get(self.drafter)
        by = " and ".join(map(name_of, drafter.origins)) if drafter else self.drafter
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
        return sum(len(step.texts) for step in self.steps)

    @property
    def tokens_per_second(self) -> float:
        """The decode rate; 0 if the times are unknown."""
        return self.num_tokens / self.seconds if self.seconds else 0.0

    def until(self, seconds: float) -> "Lane":
        """Return this lane as it was at a moment, perhaps before its first step."""
        return replace(self, steps=tuple(step for step in self.steps if step.seconds <= seconds))


@dataclass(frozen=True, slots=True)
class Race:
    """An answer decoded again both ways, perhaps several times: `gain` is that of all rounds.

    `file` is the name of the target's file, and `machine`, `version` and `date` say where, by which
    specchat and when the race was run; all are empty in records of older versions.
    """

    prompt: str
    target: str
    draft: str | None
    plain: Lane
    speculative: Lane
    gain: Gain
    file: str = ""
    machine: str = ""
    version: str = ""
    date: str = ""
    benchmark: str = ""
    """The result of a benchmark of the same pair, in words, if the race followed one."""

    @property
    def lanes(self) -> tuple[Lane, Lane]:
        """Both ways, in the order in which they are drawn."""
        return self.plain, self.speculative

    @property
    def seconds(self) -> float:
        """The seconds of the slower lane."""
        return max(lane.seconds for lane in self.lanes)

    @property
    def speedup(self) -> float:
        """Plain seconds per token / speculative seconds per token; 1 if nothing was drafted."""
        return 1.0 if self.gain.kind == "plain" else self.gain.speedup

    @property
    def verdict(self) -> str:
        """The speedup as text, with its error."""
        if self.gain.kind == "plain":
            return NOTHING_DRAFTED
        if not self.gain.is_sound:
            return TOO_BUSY
        return gain_text(self.speedup, self.gain.error)

    def details(self) -> str:
        """Return how many drafted tokens were accepted; empty if nothing was drafted."""
        return "" if self.gain.kind == "plain" else accepted_text(self.speculative.stats)

    def summary(self) -> str:
        """Return both rates and the result in one line."""
        if self.gain.kind == "plain":  # in both lanes: their rates show the machine's load alone
            return self.verdict
        plain, speculative = (rate_text(lane.tokens_per_second) for lane in self.lanes)
        return f"plain {plain} · speculative {speculative} · {self.verdict} · {self.details()}"

    @property
    def files(self) -> str:
        """The files in one line, as far as they are known."""
        drafter = DRAFTERS.get(self.speculative.drafter)
        draft = f"draft {self.draft}" if self.draft and drafter and drafter.needs else ""
        return " · ".join(filter(None, (self.file, draft)))

    @property
    def where(self) -> str:
        """Where, by which specchat and when, in one line, as far as it is known."""
        program = f"specchat {self.version}" if self.version else ""
        return " · ".join(filter(None, (self.machine, program, self.date)))

    def as_record(self) -> dict[str, Any]:
        """Return the race as JSON types."""
        import msgspec

        record: dict[str, Any] = msgspec.to_builtins(self)
        record["plain"]["tokens_per_second"] = self.plain.tokens_per_second
        record["speculative"]["tokens_per_second"] = self.speculative.tokens_per_second
        return {**record, "speedup": self.speedup, "verdict": self.verdict}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self | None:
        """Return the race in a record of `as_record`; None if it is none, or of two texts."""
        import msgspec

        try:
            race = msgspec.convert(record, cls)
        except msgspec.ValidationError:
            return None
        is_raced = all(lane.num_tokens for lane in race.lanes)
        is_raced = is_raced and race.plain.text == race.speculative.text
        return race if is_raced else None


class LaneInProgress:
    """One way to decode the answer, as far as it has got in this round."""

    def __init__(self, answer: "RacedAnswer", drafter: str | None) -> None:
        """Draft as `drafter` says, or as the other options do."""
        self._answer, self._drafter = answer, drafter
        self.whole = Statistics()  # of all rounds
        self.begin()

    def begin(self) -> None:
        """Begin a round."""
        self.steps: list[RaceStep] = []
        self.origins: list[str] = []
        self.statistics = Statistics()

    @property
    def num_tokens(self) -> int:
        """How many tokens are decoded."""
        return len(self.origins)

    def options(self, end: int) -> dict[str, Any]:
        """Return the options that decode up to `end` of all tokens, or a little further."""
        done, tokens = self.num_tokens, self._answer.tokens
        begun = (Chunk("", tokens[:done], tuple(self.origins)),) if done else ()
        chosen = {"drafter": self._drafter} if self._drafter else {}
        return {**chosen, "begun": begun, "replay": Replay(tokens, end)}

    def add(self, chunks: Sequence[Chunk], statistics: Statistics) -> None:
        """Add what these options brought; the first chunk repeats what there was."""
        before = self.statistics.decode_s
        for chunk in chunks[1 if self.num_tokens else 0 :]:
            if chunk.tokens:
                texts = self._answer.texts[self.num_tokens :][: len(chunk.tokens)]
                drafted = len(chunk.tree) or len(chunk.proposed)
                self.steps.append(RaceStep(before + chunk.seconds, texts, chunk.origins, drafted))
                self.origins += chunk.origins
        self.statistics = self.statistics.joined(statistics)

    def end(self) -> Lane:
        """End a round; return it."""
        self.whole = self.whole.joined(self.statistics)
        return Lane(self.statistics.drafter, tuple(self.steps), self.statistics.as_dict())


class RacedAnswer:
    """The race of an answer: what to decode next, and what came of it."""

    def __init__(self, steps: Sequence[Chunk]) -> None:
        """Race the answer of these steps. Raises SpecchatError if it has no tokens.

        Where it says a passage over and over, the race ends.
        """
        repeats, raced = Repeats(), list[Chunk]()
        for step in steps:
            if repeats.add(step.tokens):
                break
            raced.append(step)
        self.tokens = tuple(token for step in raced for token in step.tokens)
        self.texts = tuple(text for step in raced for text in step.texts)
        if not self.tokens:
            raise SpecchatError("the model wrote nothing: try another prompt")
        self._plain, self._speculative = LaneInProgress(self, PLAIN), LaneInProgress(self, None)
        self._rounds: list[tuple[Lane, Lane]] = []
        self.turns = self._turns()
        """Yields each lane whose turn it is, and how many of all tokens it is to decode."""

    def _turns(self) -> Iterator[tuple[LaneInProgress, int]]:
        lanes = [self._plain, self._speculative]
        while not self._is_decided:
            for lane in lanes:
                lane.begin()
            for start in range(0, len(self.tokens), SLICE):
                end = min(start + SLICE, len(self.tokens))
                for lane in lanes:
                    if lane.num_tokens < end:  # its last step may have gone as far
                        yield lane, end
                # each lane begins as often, as a machine may get slower or faster all the time
                lanes.reverse()
            self._rounds.append((self._plain.end(), self._speculative.end()))

    @property
    def progress(self) -> str:
        """How far the race is."""
        done = min(self._plain.num_tokens, self._speculative.num_tokens)
        again = f", round {len(self._rounds) + 1}" if self._rounds else ""
        return f"racing: {done} of {len(self.tokens)} tokens{again}"

    @property
    def gain(self) -> Gain:
        """The gain from speculation over all rounds that have ended."""
        plain, own = self._plain.whole, self._speculative.whole
        gain = compared(plain.step_times, own.step_times)
        return Gain("measuring") if own.drafted and gain.kind == "plain" else gain

    @property
    def _is_decided(self) -> bool:
        """Whether the verdict is sound, there is nothing to decide, or it has taken long enough."""
        if not self._rounds:
            return False
        seconds = self._plain.whole.decode_s + self._speculative.whole.decode_s
        is_over = len(self._rounds) >= MOST_ROUNDS or seconds >= ENOUGH_SECONDS
        return is_over or self.gain.kind != "measuring"

    def race(self, prompt: str, facts: EngineFacts, title: str = "") -> Race:
        """Return the race, with the lanes of the round that was disturbed least.

        `title` is the target's name if it has a better one than its file says.
        """
        best = min(self._rounds, key=lambda lanes: sum(lane.seconds for lane in lanes))
        draft = facts.draft and facts.draft.removeprefix(f"{facts.target}, ")  # of a head
        return Race(
            prompt, title or facts.target, draft, *best, self.gain,
            file=facts.target_file, machine=_machine(facts), version=__version__,
            date=strftime("%Y-%m-%d"),
        )  # fmt: skip


def _machine(facts: EngineFacts) -> str:
    """Return the processor, its cores and the GPUs in use: nothing that names the machine."""
    from specchat.bench.measurement import machine_record

    record = machine_record()
    cores = f"{record['cores']} core{'s' * (record['cores'] != 1)}"
    return ", ".join(filter(None, (record["processor"], cores, facts.gpu)))


def why_no_race(facts: EngineFacts) -> str | None:
    """Return why an engine cannot race an answer, None if it can."""
    if facts.served_by:
        return f"{facts.served_by} runs the model: a race needs it on this machine"
    if facts.speculation_off_reason:
        return f"this pair cannot speculate ({facts.speculation_off_reason})"
    return None


def run_race(
    engine: Engine,
    messages: Sequence[ChatMessage],
    options: Mapping[str, Any],
    on_answer: Callable[[Chunk], object],
    on_progress: RaceProgress,
    is_stopped: Callable[[], bool] = lambda: False,
    title: str = "",
) -> Race:
    """Decode an answer, with drafts, and race it; the target may have a `title`.

    `on_answer` is called with each of the answer's steps. Raises SpecchatError if that is
    impossible here, and Cancelled if it is stopped.
    """

    def decoded(on_step: Callable[[Chunk], object], **more: Any) -> Iterator[Chunk]:
        for chunk in engine.answer(messages, **{**options, **more}):
            on_step(chunk)
            yield chunk
            # a stop between two slices does not reach the engine
            if is_stopped() or chunk.finish == "cancelled":
                raise Cancelled("the race was stopped")

    if reason := why_no_race(engine.facts):
        raise SpecchatError(f"no race: {reason}")
    answer = RacedAnswer(list(decoded(on_answer)))
    for lane, end in answer.turns:
        on_progress(answer.progress)
        lane.add(list(decoded(lambda _: None, **lane.options(end))), engine.stats)
    return answer.race(messages[-1]["content"], engine.facts, title)
