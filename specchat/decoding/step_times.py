"""The gain of an answer from speculation, as its own steps show it.

    speedup = what plain decoding would have taken for its tokens / what its steps took

What plain decoding takes, the answer's plain steps say: pacing makes some while drafts pay, a few
in a row, all over the answer. Other programs may slow every pass down for a minute, and passes get
slower as the context fills up, so plain steps count beside those that drafted around them:

    plain step = mean of plain steps near here / mean of (step / typical step of its length)

Means leave out the shortest and the longest, as some steps are held up. Medians would do worse:
where a program shares a core, steps take one time or twice that, and the median is either. Looking
for drafts is part of what the steps took, and no part of plain decoding. Where there are too few
plain steps there is no gain, and each has its error.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, hypot, log, log2, sqrt
from typing import Any, Literal, NamedTuple, TypeAlias

from specchat.wording import NUM_ERRORS, is_same_speed

GainKind: TypeAlias = Literal["plain", "measuring", "faster", "same", "slower"]
"""Nothing was drafted; not known yet, or not exactly enough; what a gain says."""

Bins: TypeAlias = dict[tuple[int, int, int], int]
BINS_PER_OCTAVE = 24
"""Times are counted in bins 3 % wide."""
BIN_SPREAD = log(2) / BINS_PER_OCTAVE / sqrt(12)
"""The relative standard deviation of times in the same bin."""
PLAIN, FOLLOWING, LOOKING = 0, -1, -2
"""What steps without a draft count as, in place of the number of tokens drafted: a plain step after
another, the first one after others, and one that made a draft pass in vain."""
COLD = 4 / 3
"""How much longer the passes of the latter two take at most than that of a plain step, as the
processor's caches hold less of what they read."""
LOOKUPS = 0.1
"""A step that drafted nothing, but spent more than this share on it, made a draft pass."""
BLOCK, MOST_BLOCKS = 16, 32
"""Steps in a row that count as having been made under the same conditions, and how many blocks of
them are kept: evenly spread over the answer."""
FEW_STEPS = 4
"""With fewer steps of a length than this, their mean may be that of a disturbance."""
LEFT_OUT = 0.1
"""The share of the steps, at either end, that a mean leaves out: at least one of three or more."""
MIN_SECONDS, MIN_STEPS, MIN_PLAIN = 1.0, 8, 3
"""The least decoding time for a gain, and the fewest steps with drafts, unless they made no
difference, and without."""
MOSTLY = 0.8
"""The share of plain steps above which they need not be compared with those around them."""
MEAN_ERROR = sqrt(2.5)
"""Standard error of such a mean, in the spread of its steps over the root of their count.

What holds up a step often holds up the next ones: beside two compilers, the means of 4 to 32 plain
steps in a row varied 2.5 times as much as if each had been by itself.
"""
MOST_OFF = log(2)
"""How far off a step counts at most, in the logarithm of its time: some are held up."""
LEAST_ERROR = 0.015
"""What times of a quiet machine leave unknown."""
MOST_ERROR, SAME_ERROR = 0.15, 0.05
"""The largest error with which a speedup is shown, and with which it may be the same speed."""
BUSY = 1.5
"""Decoding took this many times as long as its typical steps: something else held it up."""


@dataclass(frozen=True, slots=True)
class Gain:
    """The estimated speedup of an answer over plain decoding, with its relative standard error.

    `own_s` are the seconds that it took, and `plain_s` those that plain decoding would have taken,
    for the `num_tokens` that count. The speedup is 0 where nothing can be compared.
    """

    kind: GainKind = "plain"
    speedup: float = 0.0
    error: float = 0.0
    plain_s: float = 0.0
    own_s: float = 0.0
    num_tokens: int = 0

    def __post_init__(self) -> None:
        """Check that the figures agree, so that all that is shown of them does."""
        agrees = abs(self.plain_s - self.speedup * self.own_s) <= 1e-6 * self.plain_s
        if not agrees or (self.is_sound and self.speedup <= 0):
            raise ValueError(f"impossible figures: {self}")

    @property
    def is_sound(self) -> bool:
        """Whether the speedup may be named."""
        return self.kind not in ("plain", "measuring")

    @property
    def saved_s(self) -> float:
        """Seconds saved, below 0 if lost; 0 unless the gain is sound."""
        return self.plain_s - self.own_s if self.is_sound else 0.0

    @property
    def rates(self) -> tuple[float, ...]:
        """Tokens per second without and with speculation; none if unknown."""
        if not (self.is_sound and self.own_s and self.num_tokens):
            return ()
        return self.num_tokens / self.plain_s, self.num_tokens / self.own_s

    def as_record(self) -> dict[str, Any]:
        """Return the figures as JSON types: None for each unless the gain is sound."""
        known = {"speedup": self.speedup, "speedup_error": self.error, "saved_s": self.saved_s}
        return {name: round(each, 3) if self.is_sound else None for name, each in known.items()}


def judged(speedup: float, error: float) -> GainKind:
    """Return what a speedup with a relative standard error says."""
    is_same = is_same_speed(speedup, error)
    if error > (SAME_ERROR if is_same else MOST_ERROR):
        return "measuring"
    if is_same:
        return "same"
    return "faster" if speedup > 1 else "slower"


class _PlainStep(NamedTuple):
    """What a plain step typically takes, with the relative standard error, and the extremes."""

    seconds: float
    error: float
    shortest: float
    longest: float


@dataclass(slots=True)
class StepTimes:
    """How long the steps of an answer took, by the tokens their passes read beyond the last one."""

    seconds: float = 0.0
    """Of all steps that count."""
    num_tokens: int = 0
    """Of all steps that count, those that plain decoding takes a step for."""
    _bins: Bins = field(default_factory=dict)
    """The number of steps by drafted tokens, and by the logarithms of their time and of the share
    that looking for a draft took.

    Another thread may add a step at any time, so calculations use a copy.
    """
    _blocks: list[Sequence[tuple[int, float]]] = field(default_factory=list)
    """Blocks with plain steps and others: drafted tokens and seconds of each."""
    _block: list[tuple[int, float]] = field(default_factory=list)
    """The present block."""
    _num_blocks: int = 0
    _stride: int = 1
    _is_settled: bool = False
    """Whether the last step was plain."""

    def add(
        self, num_drafted: int, num_emitted: int, seconds: float, drafting: float = 0.0
    ) -> None:
        """Add a step, of which `drafting` seconds went into looking for a draft.

        Plain decoding takes a step for each of the `num_emitted` tokens.
        """
        is_plain = not num_drafted and drafting <= LOOKUPS * seconds
        if num_drafted:
            length, took, share = num_drafted, seconds, 0.0
        else:
            length = (PLAIN if self._is_settled else FOLLOWING) if is_plain else LOOKING
            took = max(seconds - drafting, 1e-9)
            share = drafting / took
        self._is_settled = is_plain
        key = length, _bin(took), _bin(share)
        self._bins[key] = self._bins.get(key, 0) + 1
        self.seconds += seconds
        self.num_tokens += num_emitted
        self._block.append((length, took))
        if len(self._block) == BLOCK:
            block, self._block = self._block, []
            self._keep(block, 1)

    def leave_out(self) -> None:
        """Leave a step out: the next plain one follows another."""
        self._is_settled = False

    def _keep(self, block: Sequence[tuple[int, float]], count: int) -> None:
        """Keep a block, which stands for so many, if its steps can be compared."""
        if not _is_mixed(block):
            return
        if -self._num_blocks % self._stride < count:  # one of them is due
            self._blocks.append(tuple(block))
        self._num_blocks += count
        if len(self._blocks) > MOST_BLOCKS:
            self._blocks = self._blocks[::2]
            self._stride *= 2

    def joined(self, later: "StepTimes") -> "StepTimes":
        """Return the times of these steps and of later ones of the same answer."""
        bins = Counter(self._bins)
        bins.update(later._bins)  # noqa: SLF001  # of the same class
        stride = max(self._stride, later._stride)  # noqa: SLF001
        whole = replace(
            later,
            seconds=self.seconds + later.seconds,
            num_tokens=self.num_tokens + later.num_tokens,
            _bins=dict(bins),
            _blocks=self._blocks[:: stride // self._stride],
            _block=list(later._block),  # noqa: SLF001
            _num_blocks=self._num_blocks,
            _stride=stride,
        )
        whole._keep(self._block, 1)  # noqa: SLF001
        for block in list(later._blocks):  # noqa: SLF001
            whole._keep(block, later._stride)  # noqa: SLF001
        return whole

    def gain(self) -> Gain:
        """Return the gain over plain decoding."""
        seconds, num_tokens = self.seconds, self.num_tokens  # of no more steps than the bins have
        typical = _typical(self._bins)
        if not typical.num_drafting:
            return Gain()
        is_mostly_plain = typical.counts[PLAIN] > MOSTLY * typical.counts.total()
        plain = _usual_plain_step(typical) if is_mostly_plain else self._plain_step(typical)
        if plain is None or seconds < MIN_SECONDS:
            return Gain("measuring")
        speedup, error = typical.speedup(plain, num_tokens)
        gain = Gain(judged(speedup, error), speedup, error, speedup * seconds, seconds, num_tokens)
        # what is shown of plain decoding is what some plain step took
        shown, margin = gain.plain_s / num_tokens, exp(NUM_ERRORS * error)
        was_seen = plain.shortest / margin <= shown <= plain.longest * margin
        has_enough = typical.num_drafting >= MIN_STEPS or gain.kind == "same"
        return gain if was_seen and has_enough else replace(gain, kind="measuring")

    def _plain_step(self, typical: "_Typical") -> _PlainStep | None:
        """Return what a plain step would typically take; None where there are too few.

        A pass over one token takes no longer than one over more.
        """
        sure = {
            length: typical.seconds[length]
            for length, count in typical.counts.items()
            if length > 0 and count >= FEW_STEPS
        }
        ratios, differences, taken = list[tuple[float, float]](), list[float](), list[float]()
        for block in [*self._blocks, tuple(self._block)]:
            plain = [seconds for length, seconds in block if length == PLAIN]
            others = [seconds / sure[length] for length, seconds in block if length in sure]
            if plain and others:
                level = _mean(others)
                differences += [log(each / level) for each in others]
                weight = 1 / (1 / len(plain) + 1 / len(others))
                ratios.append((weight, _mean(plain) / level))
                taken += plain
        if len(taken) < MIN_PLAIN:
            return None
        total, number = sum(weight for weight, _ in ratios), len(ratios)
        mean = sum(weight * ratio for weight, ratio in ratios) / total
        squares = [min(abs(each), MOST_OFF) ** 2 for each in [typical.spread, *differences]]
        # each block's mean is its own, so what one step differs from itself says nothing
        spread = sqrt(sum(squares) / (len(squares) - number))
        within = MEAN_ERROR * spread / sqrt(total)
        between = hypot(*(weight * (ratio / mean - 1) for weight, ratio in ratios)) / total
        between *= sqrt(number / (number - 1)) if number > 1 else 0.0
        seconds = min(mean, *sure.values())
        return _PlainStep(seconds, max(within, between), min(taken), max(taken))


class _Typical(NamedTuple):
    """What steps typically take, by drafted tokens: of those without a draft, their pass."""

    counts: Counter[int]
    seconds: dict[int, float]
    drafting: dict[int, float]
    """What looking for a draft took without one, as a share of the pass."""
    spread: float
    """How much steps differ from that: a relative standard deviation."""
    plain_bins: Counter[int]
    """The number of plain steps by the logarithm of their time."""

    @property
    def num_drafting(self) -> int:
        """The number of steps with a draft."""
        return sum(count for length, count in self.counts.items() if length > 0)

    def speedup(self, plain: _PlainStep, num_tokens: int) -> tuple[float, float]:
        """Return the speedup over so many plain steps, and its relative standard error.

        Plain steps are the same in both, so only the others' errors count.
        """
        self.seconds[PLAIN] = plain.seconds
        own, num_steps = self.total_s(plain.seconds), self.counts.total()
        speedup = plain.seconds * num_tokens / own
        # no step takes less than a plain one, so there is no more to gain than tokens per step
        if speedup > num_tokens / num_steps * (1 + 1e-9):
            raise ValueError(f"a speedup of {speedup}, {num_tokens} tokens, steps {self.counts}")
        share = 1 - plain.seconds * self.counts[PLAIN] / own
        own_error = MEAN_ERROR * self.spread / sqrt(num_steps - self.counts[PLAIN])
        return speedup, share * hypot(plain.error, own_error, LEAST_ERROR)

    def total_s(self, plain: float) -> float:
        """Return what all steps typically take, where a plain pass takes `plain` and none less."""
        total, with_draft = 0.0, min(self.seconds[length] for length in self.counts if length > 0)
        for length, count in self.counts.items():
            took = max(self.seconds[length], plain)
            if length < PLAIN:
                took = min(took, COLD * plain)
            took *= 1 + self.drafting.get(length, 0.0)
            if length == LOOKING and count < FEW_STEPS:  # the look may have been held up
                took = min(took, max(with_draft, plain))
            total += count * took
        return total


def _usual_plain_step(typical: _Typical) -> _PlainStep:
    """Return what a plain step takes where nearly all are, under whatever conditions there were."""
    taken = typical.plain_bins
    error = MEAN_ERROR * typical.spread / sqrt(taken.total())
    shortest, longest = _start_of(min(taken)), _start_of(max(taken) + 1)
    return _PlainStep(typical.seconds[PLAIN], error, shortest, longest)


def compared(plain: StepTimes, own: StepTimes) -> Gain:
    """Return the gain over a plain decoding of the same answer, compared by time per token.

    The plain steps of both say what one takes: they are the same passes.
    """
    bins = Counter(own._bins)  # noqa: SLF001
    if not any(length > 0 for length, _, _ in bins):
        return Gain()
    with_drafts = _typical(bins)
    # the first one of each turn follows the other lane's
    bins.update({key: count for key, count in dict(plain._bins).items() if key[0] == PLAIN})  # noqa: SLF001
    both = _typical(bins)
    if PLAIN not in both.counts:
        return Gain()
    step = _usual_plain_step(both)
    speedup, error = with_drafts.speedup(step, own.num_tokens)
    plain_s = step.seconds * own.num_tokens
    own_s = plain_s / speedup
    is_long_enough = min(plain.seconds, own.seconds) >= MIN_SECONDS
    kind = judged(speedup, error)
    has_enough = with_drafts.num_drafting >= MIN_STEPS or kind == "same"
    has_enough = has_enough and both.counts[PLAIN] >= MIN_STEPS
    is_busy = own.seconds > BUSY * own_s or plain.seconds > BUSY * step.seconds * plain.num_tokens
    if is_busy or not (is_long_enough and has_enough):
        kind = "measuring"
    return Gain(kind, speedup, error, plain_s, own_s, own.num_tokens)


def _is_mixed(block: Sequence[tuple[int, float]]) -> bool:
    """Return whether a block has plain steps and such that drafted."""
    lengths = {drafted for drafted, _ in block}
    return PLAIN in lengths and max(lengths) > 0


def _typical(steps: Bins) -> _Typical:
    """Return what steps typically take.

    Where there are few steps of a length, all of them may have been delayed, so their time is
    limited by that of steps that drafted more, or by the time per token of the longest.
    """
    taken, drafting = dict[int, Counter[int]](), dict[int, Counter[int]]()
    for (length, seconds, share), count in dict(steps).items():
        taken.setdefault(length, Counter())[seconds] += count
        drafting.setdefault(length, Counter())[share] += count
    counts = Counter({length: own.total() for length, own in taken.items()})
    means = {length: _mean_of(own) for length, own in taken.items()}
    often = [length for length, count in counts.items() if count >= FEW_STEPS]
    sure = {length: means[length].mean for length in often if length >= PLAIN}
    squares = sum(counts[length] * means[length].spread ** 2 for length in often)
    # times in the same bin may still differ by its width
    spread = max(sqrt(squares / max(1, sum(counts[length] for length in often))), BIN_SPREAD)
    return _Typical(
        counts,
        {length: min(each.mean, _bound(length, sure)) for length, each in means.items()},
        {length: _mean_of(own).mean for length, own in drafting.items() if length <= PLAIN},
        spread,
        taken.get(PLAIN, Counter()),
    )


def _bound(drafted: int, sure: dict[int, float]) -> float:
    """Return an upper limit for a step's typical time, from steps of other lengths."""
    if drafted < PLAIN or not sure:
        return float("inf")
    longer = [seconds for other, seconds in sure.items() if other >= drafted]
    longest = max(sure)
    return min(longer, default=sure[longest] * (drafted + 1) / (longest + 1))


def _bin(seconds: float) -> int:
    return int(BINS_PER_OCTAVE * log2(max(seconds, 1e-9)) // 1)


def _start_of(number: float) -> float:
    """Return the seconds at which a bin begins."""
    return float(2 ** (number / BINS_PER_OCTAVE))


class _Mean(NamedTuple):
    """A trimmed mean, without the shortest and the longest times, and its relative spread.

    The spread is the Winsorized standard deviation by the mean and by the share of times that is
    left. Divided by the root of their number, it is the relative standard error (Yuen 1974).
    """

    mean: float
    spread: float


def _mean_of(bins: Counter[int]) -> _Mean:
    """Return the mean of the times in bins."""
    return _middle({_start_of(number + 0.5): count for number, count in bins.items()})


def _mean(values: Iterable[float]) -> float:
    return _middle(Counter(values)).mean


def _middle(counts: Mapping[float, int]) -> _Mean:
    number = sum(counts.values())
    cut = max(LEFT_OUT * number, 1.0) if number > 2 else 0.0
    kept, before = list[tuple[float, float]](), 0.0
    for value, count in sorted(counts.items()):
        weight = min(before + count, number - cut) - max(before, cut)
        before += count
        if weight > 0:
            kept.append((value, weight))
    mean = sum(value * weight for value, weight in kept) / (number - 2 * cut)
    squares = sum(weight * (value - mean) ** 2 for value, weight in kept)
    squares += cut * sum((value - mean) ** 2 for value in (kept[0][0], kept[-1][0]))
    spread = sqrt(squares / max(number - 1, 1)) / (1 - 2 * cut / number)
    return _Mean(mean, spread / mean)
