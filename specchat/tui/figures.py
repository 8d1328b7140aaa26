"""The figures beside the chat, computed from an answer's statistics; no widgets here."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from time import time
from typing import Any, Literal, NamedTuple, Self

from specchat.chat.answer_statistics import measured_answers
from specchat.chat.conversation import Message
from specchat.decoding.chunk import Chunk, Piece
from specchat.decoding.statistics import Statistics
from specchat.decoding.step_times import MIN_SECONDS, GainKind, judged
from specchat.safe_text import harmless, in_one_line
from specchat.tui.commands import KeyOf
from specchat.wording import (
    answer_line,
    counts_line,
    duration_text,
    nodes_per_step,
    percent,
    saved_text,
    short_line,
    speedup_text,
)

NUM_POINTS, POINT_SECONDS = 30, 0.5
"""The points in a sparkline, and the seconds of decoding that each stands for."""
NOW_SECONDS = 1.0
COSTLY = 0.25
"""The share of decoding time from which drafting is worth blaming for a slow answer."""
RARELY = 0.2
"""Drafted tokens per pass below which drafting hardly changes the speed."""
ENDINGS = {
    "cancelled": "stopped",
    "length": "token limit reached",
    "context": "context full",
    "failed": "interrupted",
    None: "interrupted",
}
"""Labels for how an incomplete answer ended; None if the chat was closed first."""
RUN_OUT = {"length", "context"}
"""How answers end that find no end of their own."""
BARS = "▁▂▃▄▅▆▇█"
UNKNOWN_LENGTH = ""
"""Stands for the draft length of a stored answer, which is not recorded."""
WRITTEN_SECONDS = 5.0
"""A chat writes its answer twice a second; after this long without a write it has ended."""
ESTIMATED = "estimated"
AGREEING = 3
"""Answers in a row that are slower before that is said: a busy machine slows one down, too."""
ORIGINS = "origins"
"""The key of the number of tokens by origin in the statistics of a stored answer."""
SERVED_BY, UNREPORTED = "served_by", "unreported"
"""The keys of the server that wrote an answer, and of the figures that it did not report."""
SAMPLED_WITH = "sampling"
"""The key of the sampling options that were chosen for a stored answer alone."""
UNFINISHED = "unfinished"
"""The key of the value that a stored answer with a schema broke off in, such as `items[2].name`."""
LONGEST_PLACE = 40
"""Characters shown of such a value's place."""
START = (0.0, 0, 0, 0)
"""Seconds, tokens, drafted and accepted at the start of an answer."""


@dataclass(slots=True)
class Figures:
    """The statistics of an answer in progress, and how they changed recently."""

    statistics: Statistics = field(default_factory=Statistics)
    origins: Counter[str] = field(default_factory=Counter)
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_POINTS))
    acceptance: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_POINTS))
    measured_speedup: float = 0.0
    """The speedup, if the answer was decoded again without speculation."""
    speedup_source: str = ESTIMATED
    """How the speedup was determined, as text to show."""
    measured_rates: Sequence[float] = ()
    """Tokens per second without and with speculation, as measured for the speedup; () if not."""
    num_slow_before: int = 0
    """How many answers before this one, in a row and with the same options, were slower too."""
    num_paused_before: int = 0
    """How many ended with the draft model unused."""
    saved_before: tuple[float, float] = (0.0, 0.0)
    """The seconds that all stored answers saved, today and ever."""
    is_counted: bool = False
    """Whether this answer's own seconds are among them."""
    _known_saving: float | None = None
    _past: deque[tuple[float, int, int, int]] = field(default_factory=lambda: deque([START]))
    _point_ends: float = 0.0

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
        """Set the speedup and its source from the statistics of an answer."""
        self.measured_speedup = record.get("speedup") or 0.0
        self.speedup_source = record.get("speedup_source", ESTIMATED)
        self.measured_rates = record.get("measured_rates", ())
        self._known_saving = record.get("saved_s")

    def begin(self) -> None:
        """Start another answer."""
        self.statistics, self.origins, self.is_counted = Statistics(), Counter(), False
        self.compare({})
        self._past, self._point_ends = deque([START]), 0.0

    def add(self, chunks: Sequence[Chunk], stats: Statistics) -> None:
        """Add some steps."""
        self.statistics = stats
        for chunk in chunks:
            self.origins.update(chunk.origins)
        now = stats.decode_s, stats.generated_tokens, stats.drafted, stats.accepted
        self._past.append(now)
        while len(self._past) > 2 and now[0] - self._past[1][0] > NOW_SECONDS:
            self._past.popleft()
        if now[0] < self._point_ends:
            self.rates.pop()
            self.acceptance.pop()
        else:
            self._point_ends = now[0] + POINT_SECONDS
        drafted = now[2] - self._past[0][2]
        self.rates.append(self.rate_now)
        self.acceptance.append((now[3] - self._past[0][3]) / drafted if drafted else 0.0)

    @property
    def rate_now(self) -> float:
        """Tokens per second over the last second."""
        if len(self._past) < 2:
            return self.statistics.tokens_per_second
        first, last = self._past[0], self._past[-1]
        return (last[1] - first[1]) / (last[0] - first[0]) if last[0] > first[0] else 0.0

    @property
    def kind(self) -> GainKind:
        """What can be said of the speedup.

        One slow answer says nothing of speculation: it takes several in a row, or a race.
        """
        if not self.statistics.drafted:
            return "plain"
        if self.measured_speedup:
            return judged(self.measured_speedup, 0.0)
        kind = self.statistics.gain.kind
        if kind == "plain":  # a stored answer, whose times are not kept
            return "measuring"
        is_agreed = self.num_slow_before >= AGREEING - 1
        return kind if kind != "slower" or is_agreed else "measuring"

    @property
    def speedup(self) -> float:
        """The speedup over plain decoding: measured, or estimated from the times of steps.

        0 where nothing can be said of it.
        """
        if self.kind in ("plain", "measuring"):
            return 0.0
        return self.measured_speedup or self.statistics.gain.speedup

    @property
    def saved_s(self) -> float:
        """The seconds that speculation saved, below 0 if it lost some; 0 if that is unknown."""
        if self._known_saving is not None:
            return self._known_saving
        if self.measured_speedup:
            return self.statistics.decode_s * (self.measured_speedup - 1)
        return self.statistics.gain.saved_s if self.speedup else 0.0

    def savings(self) -> list[str]:
        """Return the seconds saved by this answer, today and ever, as far as there are any."""
        own = self.saved_s
        uncounted = 0.0 if self.is_counted else own
        today, ever = (before + uncounted for before in self.saved_before)
        more = list[str]()
        if today > max(own, 0.0) + 1.0:
            more.append(f"today {duration_text(today)}")
        if ever > max(today, 0.0) + 1.0:
            more.append(f"in all {duration_text(ever)}")
        if more:
            more[0] = f"saved {more[0]}"
        return [part for part in (saved_text(own), *more) if part]

    def rates_compared(self) -> tuple[float, float]:
        """Return tokens per second without and with speculation; the former is 0 if unknown."""
        own = self.statistics.tokens_per_second
        if not self.speedup:
            return 0.0, own
        without, ours = self.measured_rates or (own / self.speedup, own)
        return without, ours

    @property
    def tone(self) -> Literal["good", "bad", ""]:
        """Whether speculation helps this answer, hurts it, or neither."""
        tones: dict[GainKind, Literal["good", "bad"]] = {"faster": "good", "slower": "bad"}
        return tones.get(self.kind, "")

    def verdict(self) -> str:
        """Return whether speculation helps, as a sentence."""
        stats = self.statistics
        if not stats.generated_tokens:
            return ""
        if stats.speculation_off_reason:
            return f"Speculation is off: {stats.speculation_off_reason}."
        if stats.served_by and (words := self._served_verdict()):
            return words
        if stats.draft_off_reason and not stats.drafted:
            return f"No drafts: {stats.draft_off_reason}."
        if self.kind == "plain":
            drafts = "nothing was drafted" if self.is_counted else "no drafts so far"
            return f"Plain speed: {drafts}."
        if self.kind == "measuring" and self.is_counted:
            cause = "Too short" if stats.decode_s < MIN_SECONDS else "Not enough"
            return f"{cause} to tell what speculation brought."
        if self.kind == "measuring":
            return "Measuring what speculation brings."
        words = speedup_text(self.speedup)
        return {
            "good": f"Speculation helps: {words}.",
            "bad": f"Speculation is slowing this answer down: {words}.",
            "": "Speculation makes no difference here.",
        }[self.tone]

    def _served_verdict(self) -> str:
        """Return what is not known of an answer that a server wrote; empty if it reports all."""
        stats = self.statistics
        server = harmless(stats.served_by)
        if not self.reports("drafted"):  # some report them at the end only
            is_over = self.is_counted
            return f"{server} {'does not report' if is_over else 'has not reported any'} drafts."
        if stats.drafted and not self.speedup and not self.reports("reported_gain"):
            return f"{server} does not report what its drafts gain."
        return ""

    def reports(self, figure: str) -> bool:
        """Return True if a figure of the answer is known."""
        return figure not in self.statistics.unreported

    def why(self) -> str:
        """Return the reason for the verdict, as a sentence."""
        stats = self.statistics
        if self.kind == "plain" or stats.speculation_off_reason:
            return ""
        kept = f"The target kept {percent(stats.acceptance_rate)} of the drafted tokens"
        per_pass = f"{stats.tokens_per_step:.1f} tokens per pass"
        if not self.reports("steps"):
            return f"{kept}."
        if self.kind == "measuring":
            return f"{kept} and wrote {per_pass}."
        share = stats.draft_s / stats.decode_s if stats.decode_s else 0.0
        drafting = f"; {percent(share)} of the time went into drafting" if share > COSTLY else ""
        if self.tone == "good":
            return f"{kept} and wrote {per_pass} instead of 1{drafting}."
        if stats.drafted_per_step < RARELY:
            drafted = f"{stats.drafted} tokens drafted in {stats.steps} passes"
            return f"{drafted}: drafting more would not help."
        passes = f"{stats.tokens_per_step / self.speedup:.1f}"
        cost = self.checking() or f"a pass took as long as {passes} plain ones"
        return f"{kept} and wrote {per_pass}, but {cost}{drafting}."

    @property
    def nodes_per_step(self) -> float:
        """The tokens drafted per step with all branches; 0 if there were none."""
        return nodes_per_step(self.statistics.as_dict())

    def checking(self) -> str:
        """Return what checking the usual number of tokens costs here; empty if unknown."""
        stats = self.statistics
        tokens = round(self.nodes_per_step or stats.drafted_per_step) + 1
        plain, ours = (stats.pass_costs.get(count, 0.0) for count in (1, tokens))
        if not plain or not ours or tokens == 1:
            return ""
        return f"checking {tokens} tokens costs {ours / plain:.1f}x checking one"

    def why_this_length(self) -> str:
        """Return why the draft length is what it is."""
        stats = self.statistics
        if not stats.drafted:
            return ""
        if stats.draft_off_reason:
            return stats.draft_off_reason
        if stats.draft_length == UNKNOWN_LENGTH:
            return ""
        if stats.draft_length != "auto":
            return "fixed by the settings"
        if self.tone == "bad":
            return "getting shorter: drafts cost more than they save"
        return self.checking() or "adapted to every step"

    def gain_words(self) -> str:
        """Return what speculation brings, in two or three words; empty before the first token."""
        if not self.statistics.generated_tokens:
            return ""
        if not self.reports("drafted"):
            return "drafts not reported"
        if self.kind == "plain":
            return "plain speed"
        if self.kind != "measuring":
            return speedup_text(self.speedup)
        if not self.reports("reported_gain"):
            return "gain not reported"
        if not self.is_counted:
            return "measuring"
        return "too short to tell" if self.statistics.decode_s < MIN_SECONDS else "cannot tell"

    def context_share(self, size: int, *, with_reasoning: bool = True) -> float:
        """Return how full a context of this size is, 0 before the first answer.

        Leave reasoning out where the template drops it from the next prompt.
        """
        stats = self.statistics
        if not size or not stats.prompt_tokens:
            return 0.0
        used = stats.prompt_tokens + stats.generated_tokens
        used -= 0 if with_reasoning else stats.reasoning_tokens
        return used / size


def stored_figures(messages: Iterable[Message]) -> Figures | None:
    """Return the figures of the last message that has statistics, None without one."""
    measured = measured_answers(messages)
    return Figures.stored(measured[-1].statistics, measured[-1].pieces) if measured else None


def stored_origins(record: Mapping[str, Any], pieces: Iterable[Piece]) -> Counter[str]:
    """Return the number of tokens of a stored answer by origin.

    Empty where a server wrote it: then pieces are parts of its stream, and no tokens.
    """
    known = record.get(ORIGINS) or {}
    return Counter(known if known or record.get(SERVED_BY) else (piece.origin for piece in pieces))


def spark(values: Sequence[float], highest: float) -> str:
    """Return a line of bars between 0 and `highest`."""
    top = len(BARS) - 1
    return "".join(BARS[round(top * min(value / (highest or 1.0), 1.0))] for value in values)


def is_written_elsewhere(finish: str | None, figures: Mapping[str, Any]) -> bool:
    """Return True for an answer that another chat on the same store is writing."""
    return finish is None and time() - figures.get("written", 0.0) < WRITTEN_SECONDS


class LineBelow(NamedTuple):
    """The line below an answer.

    Of the newest answer it leaves out what stands above the composer or in the panel.
    """

    newest: str
    details: str
    """Shown while the answer has the focus."""
    older: str
    """Shown once another message follows."""


def line_below(
    finish: str | None, figures: Mapping[str, Any], key_of: KeyOf, *, has_older: bool = True
) -> LineBelow:
    """Return the line below an answer: how it ended, if it can be continued, and its figures.

    It names the pair, and the sampling options that this answer alone was written with; in full,
    also the temperature. After a full context an answer can be continued only if there are older
    messages to leave out (`has_older`).
    """
    continues = f"{key_of('go_on')} continues"
    ending = f"{ENDINGS[finish]} · {continues}" if finish in ENDINGS else ""
    if finish == "context":
        larger = f"{key_of('settings')} sets a larger ctx"
        if figures.get(SERVED_BY):
            larger = "start the server with a larger one"
        more = f"{continues} without older messages" if has_older else larger
        ending = f"{ENDINGS[finish]} · {more}"
    if finish in RUN_OUT and (place := _place(figures)):
        # a larger context would be filled, too
        ending = f"{ENDINGS[finish]} in {place}: limit it in the schema · {continues}"
    if is_written_elsewhere(finish, figures):
        ending = "another chat is writing this answer"
    own = ", ".join(f"{name} {value}" for name, value in figures.get(SAMPLED_WITH, {}).items())
    has_temperature = "temperature" in figures and "temperature" not in own
    temperature = f"temperature {figures['temperature']:g}" if has_temperature else ""
    lines = (counts_line(figures),), (temperature, answer_line(figures)), (short_line(figures),)
    start = ending, harmless(figures.get("pair", "")), harmless(own)
    return LineBelow(*(" · ".join(filter(None, (*start, *line))) for line in lines))


def _place(figures: Mapping[str, Any]) -> str:
    """Return the value that an answer broke off in, cut off if its place is long; or empty."""
    place = in_one_line(str(figures.get(UNFINISHED, "")))
    return place if len(place) <= LONGEST_PLACE else f"{place[:LONGEST_PLACE]}…"
