"""The figures of an answer, measured or estimated, and what they say of speculation; no widgets."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

from specchat.chat.answer_statistics import gain_of, is_raced, measured_answers
from specchat.chat.conversation import Message
from specchat.decoding.chunk import Chunk, Piece
from specchat.decoding.statistics import Statistics
from specchat.decoding.step_times import Gain, GainKind
from specchat.wording import nodes_per_step

UNKNOWN_LENGTH = ""
"""Stands for the draft length of a stored answer, which is not recorded."""
AGREEING = 3
"""Answers in a row without the draft model before other drafts are advised."""
ORIGINS = "origins"
"""The key of the number of tokens by origin in the statistics of a stored answer."""
SERVED_BY, UNREPORTED = "served_by", "unreported"
"""The keys of the server that wrote an answer, and of the figures that it did not report."""
ASKED_WITH, OWN = "asked_with", "own"
"""The keys of the options that decided a stored answer's text and speed, and of the names of those
that were chosen for it alone."""
REPEATING = "repeating"
"""The key of how many tokens at the end of a stored answer say a passage over and over."""
RATE_SECONDS = 0.5
"""The decoding time before which an answer in progress has no rate: its first step says little."""
UNFINISHED = "unfinished"
"""The key of the value that a stored answer with a schema broke off in, such as `items[2].name`."""


@dataclass(slots=True)
class Figures:
    """The statistics of an answer, and what they show of its gain."""

    statistics: Statistics = field(default_factory=Statistics)
    origins: Counter[str] = field(default_factory=Counter)
    is_raced: bool = False
    """Whether the gain was measured in a race, not estimated."""
    num_paused_before: int = 0
    """How many answers before this one, in a row and with the same options, ended with the draft
    model unused."""
    saved_before: tuple[float, float] = (0.0, 0.0)
    """The seconds that all stored answers saved, today and ever."""
    is_counted: bool = False
    """Whether this answer's own seconds are among them."""
    _gain: Gain | None = None
    """The gain as of the last update, once it was asked for."""

    @classmethod
    def stored(cls, record: Mapping[str, Any], pieces: Sequence[Piece]) -> Self:
        """Return the figures of a stored answer, from its statistics and its tokens."""
        names = {each.name for each in fields(Statistics)}
        known = {name: value for name, value in record.items() if name in names}
        origins = stored_origins(record, pieces)
        found = cls(Statistics(draft_length=UNKNOWN_LENGTH, **known), origins)
        found.is_counted = True
        found.compare(record)
        return found

    def compare(self, record: Mapping[str, Any]) -> None:
        """Take the gain from the statistics of an answer."""
        self._gain, self.is_raced = gain_of(record), is_raced(record)

    def follow(self, statistics: Statistics) -> None:
        """Take the statistics, and the gain that they show."""
        self.statistics, self._gain, self.is_raced = statistics, None, False

    def begin(self) -> None:
        """Start another answer."""
        self.follow(Statistics())
        self.origins, self.is_counted = Counter(), False

    def add(self, chunks: Sequence[Chunk], stats: Statistics) -> None:
        """Add some steps."""
        self.follow(stats)
        for chunk in chunks:
            self.origins.update(chunk.origins)

    @property
    def gain(self) -> Gain:
        """The gain over plain decoding: stored, raced, or from the times of steps."""
        if self._gain is None:
            self._gain = self.statistics.gain
        return self._gain

    @property
    def kind(self) -> GainKind:
        """What can be said of the speedup."""
        return self.gain.kind if self.statistics.drafted else "plain"

    @property
    def speedup(self) -> float:
        """The speedup over plain decoding; 0 where nothing can be said of it."""
        return self.gain.speedup if self.statistics.drafted and self.gain.is_sound else 0.0

    @property
    def rate(self) -> float:
        """Tokens per second; 0 while it is too early to tell."""
        stats = self.statistics
        is_known = self.is_counted or bool(self.speedup)
        is_early = not is_known and stats.decode_s < RATE_SECONDS
        return 0.0 if is_early else stats.tokens_per_second

    def rates_compared(self) -> tuple[float, float]:
        """Return tokens per second without and with speculation; the former is 0 if unknown."""
        own = self.rate
        if not self.speedup:
            return 0.0, own
        without, ours = self.gain.rates or (own / self.speedup, own)
        return without, ours

    @property
    def tone(self) -> Literal["good", "bad", ""]:
        """Whether speculation helps this answer, hurts it, or neither."""
        tones: dict[GainKind, Literal["good", "bad"]] = {"faster": "good", "slower": "bad"}
        return tones.get(self.kind, "")

    def reports(self, figure: str) -> bool:
        """Return True if a figure of the answer is known."""
        return figure not in self.statistics.unreported

    @property
    def nodes_per_step(self) -> float:
        """The tokens drafted per step with all branches; 0 if there were none."""
        return nodes_per_step(self.statistics.as_dict())

    def context_tokens(self, *, with_reasoning: bool = True) -> int:
        """Return how many tokens the context holds, 0 before the first answer.

        Leave reasoning out where the template drops it from the next prompt.
        """
        stats = self.statistics
        if not stats.prompt_tokens:
            return 0
        used = stats.prompt_tokens + stats.generated_tokens
        return used - (0 if with_reasoning else stats.reasoning_tokens)


def stored_figures(messages: Iterable[Message]) -> Figures | None:
    """Return the figures of the last message that has statistics, None without one."""
    measured = measured_answers(messages)
    return Figures.stored(measured[-1].statistics, measured[-1].pieces) if measured else None


def own_options(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling options that were chosen for a stored answer alone."""
    known = {**record, **record.get(ASKED_WITH, {})}  # the seed stands by itself
    return {name: known[name] for name in record.get(OWN, ()) if known.get(name) is not None}


def stored_origins(record: Mapping[str, Any], pieces: Iterable[Piece]) -> Counter[str]:
    """Return the number of tokens of a stored answer by origin.

    Empty where a server wrote it: then pieces are parts of its stream, and no tokens.
    """
    known = record.get(ORIGINS) or {}
    return Counter(known if known or record.get(SERVED_BY) else (piece.origin for piece in pieces))
