"""The gain of an answer from speculation, as far as the times of its steps show it.

Other programs use the machine too, and may delay one pass for a second, or every pass for a minute.
Each step therefore counts with the median time of the steps that drafted as many tokens, and a gain
is sound only if it exceeds its error.
"""

from collections import Counter
from dataclasses import dataclass, field
from math import exp, log, log2
from typing import Literal, TypeAlias

from specchat.wording import SPEEDUP_TOLERANCE

GainKind: TypeAlias = Literal["plain", "measuring", "faster", "same", "slower"]
"""Nothing was drafted; not sound yet; what a sound gain says."""

Bins: TypeAlias = dict[tuple[int, int], int]
BINS_PER_OCTAVE = 24
"""Times are counted in bins 3 % wide."""
FEW_STEPS = 4
"""With fewer steps of a length than this, their median may be that of a disturbance."""
MIN_SECONDS, MIN_STEPS = 1.0, 8
"""The least decoding time, and the fewest steps with drafts, before a gain is reported."""
MEDIAN_ERROR = 1.25
"""Standard error of a median, in standard deviations over the root of the count (normal errors)."""
QUARTILES_APART = 1.35
"""The distance of the quartiles, in standard deviations."""
PRICE_ERROR, PRICE_SPREAD = 0.03, 0.28
"""The error of a plain pass's time: a constant part, and a share of how much passes vary. It
follows the machine's speed by a moving average of weight 0.15, whose error is sqrt(0.15 / 1.85)."""
NUM_ERRORS = 2.0
"""How many standard errors a sound gain is away from none."""
BUSY = 1.5
"""Decoding took this many times as long as its typical steps: something else held it up."""


@dataclass(frozen=True, slots=True)
class Gain:
    """The estimated speedup of an answer over plain decoding, with its relative standard error.

    `plain_s` and `own_s` are the seconds that plain decoding would typically take for its tokens,
    and that its own steps typically take. The speedup is 0 where nothing can be compared.
    """

    kind: GainKind = "plain"
    speedup: float = 0.0
    error: float = 0.0
    plain_s: float = 0.0
    own_s: float = 0.0

    @property
    def is_sound(self) -> bool:
        """Whether the speedup may be named."""
        return self.kind not in ("plain", "measuring")

    @property
    def saved_s(self) -> float:
        """Seconds saved, below 0 if lost; 0 unless the gain is sound."""
        return self.plain_s - self.own_s if self.is_sound else 0.0


def judged(speedup: float, error: float) -> GainKind:
    """Return what a speedup with a relative standard error says."""
    margin = NUM_ERRORS * error
    if abs(speedup - 1) < SPEEDUP_TOLERANCE:
        return "same" if margin < 2 * SPEEDUP_TOLERANCE else "measuring"
    if speedup > 1:
        return "faster" if speedup > exp(margin) else "measuring"
    return "slower" if speedup < exp(-margin) else "measuring"


@dataclass(slots=True)
class StepTimes:
    """How long the steps of an answer took, by the tokens their passes read beyond the last one."""

    seconds: float = 0.0
    """Of all steps."""
    priced_s: float = 0.0
    """The time plain decoding would take for the tokens of steps with drafts, where it is known."""
    num_unpriced: int = 0
    """The number of tokens of steps with drafts for which that time is unknown."""
    _bins: dict[tuple[int, int], int] = field(default_factory=dict)
    """The number of steps by drafted tokens, and by the logarithm of their time.

    Another thread may add a step at any time, so calculations use a copy.
    """

    def add(
        self, num_drafted: int, num_emitted: int, seconds: float, verified_in: float, single: float
    ) -> None:
        """Add a step, of which `verified_in` seconds were not drafting.

        A plain step takes `single` seconds, 0.0 if that is unknown. It was measured earlier, when
        the machine may have been slower, and takes no longer than a pass over more tokens.
        """
        self.seconds += seconds
        key = num_drafted, _bin(seconds)
        self._bins[key] = self._bins.get(key, 0) + 1
        if num_drafted and single:
            self.priced_s += num_emitted * min(single, verified_in)
        elif num_drafted:
            self.num_unpriced += num_emitted

    def joined(self, later: "StepTimes") -> "StepTimes":
        """Return the times of these steps and of later ones of the same answer."""
        bins = Counter(self._bins)
        bins.update(later._bins)  # noqa: SLF001  # of the same class
        return StepTimes(
            self.seconds + later.seconds,
            self.priced_s + later.priced_s,
            self.num_unpriced + later.num_unpriced,
            dict(bins),
        )

    def count(self) -> tuple[int, int]:
        """Return the number of steps without drafts and with them."""
        counts = _counts(dict(self._bins))
        return counts[0], counts.total() - counts[0]

    def typical_s(self) -> tuple[float, float]:
        """Return the seconds that these steps typically take, and the error's share of them."""
        bins = dict(self._bins)
        typical, spread = _typical(bins)
        counts = _counts(bins)
        seconds = sum(counts[drafted] * seconds for drafted, seconds in typical.items())
        return seconds, MEDIAN_ERROR * spread / max(1, counts.total()) ** 0.5

    def gain(self) -> Gain:
        """Return the gain over plain decoding."""
        bins = dict(self._bins)
        counts = _counts(bins)
        num_plain, num_drafting = counts[0], counts.total() - counts[0]
        if not num_drafting:
            return Gain()
        if self.num_unpriced and num_plain < MIN_STEPS:
            return Gain("measuring")
        typical, spread = _typical(bins)
        own = sum(counts[drafted] * seconds for drafted, seconds in typical.items())
        plain_steps = typical.get(0, 0.0) * num_plain
        plain = plain_steps + self.priced_s + self.num_unpriced * typical.get(0, 0.0)
        speedup = plain / own
        # the steps without drafts are the same in both, so only the others' errors count
        share = (own - plain_steps) / own
        median_error = MEDIAN_ERROR * spread / num_drafting**0.5
        price_error = (PRICE_ERROR**2 + (PRICE_SPREAD * spread) ** 2) ** 0.5
        error = share * (median_error**2 + price_error**2) ** 0.5
        kind = judged(speedup, error)
        is_long_enough = self.seconds >= MIN_SECONDS and num_drafting >= MIN_STEPS
        if not is_long_enough or self.seconds > BUSY * own:
            kind = "measuring"
        return Gain(kind, speedup, error, plain, own)


def compared(plain: StepTimes, own: StepTimes, plain_tokens: int, own_tokens: int) -> Gain:
    """Return the gain over a plain decoding of the same prompt, compared by time per token."""
    if not own.count()[1] or not plain_tokens or not own_tokens:
        return Gain()
    (plain_s, plain_error), (own_s, own_error) = plain.typical_s(), own.typical_s()
    plain_s *= own_tokens / plain_tokens
    speedup, error = plain_s / own_s, (plain_error**2 + own_error**2) ** 0.5
    kind = judged(speedup, error)
    is_long_enough = min(plain.seconds, own.seconds) >= MIN_SECONDS
    is_busy = (
        own.seconds > BUSY * own_s or plain.seconds * own_tokens > BUSY * plain_s * plain_tokens
    )
    return Gain(
        "measuring" if is_busy or not is_long_enough else kind, speedup, error, plain_s, own_s
    )


def _counts(bins: Bins) -> Counter[int]:
    """Return the number of steps by drafted tokens."""
    counts = Counter[int]()
    for (drafted, _), count in bins.items():
        counts[drafted] += count
    return counts


def _typical(bins: Bins) -> tuple[dict[int, float], float]:
    """Return the typical seconds by drafted tokens, and how much steps differ from them.

    That is a relative standard deviation, from the quartiles. Where there are few steps of a
    length, all of them may have been delayed, so their time is limited by that of steps that
    drafted more, or by the time per token of the longest.
    """
    counts = _counts(bins)
    medians = {drafted: _median(bins, drafted) for drafted in counts}
    sure = {drafted: medians[drafted] for drafted, count in counts.items() if count >= FEW_STEPS}
    typical = {drafted: min(median, _bound(drafted, sure)) for drafted, median in medians.items()}
    differences = Counter[int]()
    for (drafted, number), count in bins.items():
        if drafted in sure:
            differences[number - _bin(sure[drafted])] += count
    quartiles = [_quantile(differences, share) for share in (0.25, 0.75)] if differences else [0, 0]
    # quartiles in the same bin may still differ by the width of one
    octaves = (quartiles[1] - quartiles[0] + 1) / BINS_PER_OCTAVE
    return typical, octaves * log(2) / QUARTILES_APART


def _median(bins: Bins, drafted: int) -> float:
    """Return the median seconds of the steps that drafted this many tokens."""
    own = Counter({number: count for (length, number), count in bins.items() if length == drafted})
    return float(2 ** ((_quantile(own, 0.5) + 0.5) / BINS_PER_OCTAVE))


def _bound(drafted: int, sure: dict[int, float]) -> float:
    """Return an upper limit for a step's typical time, from steps of other lengths."""
    longer = [seconds for other, seconds in sure.items() if other >= drafted]
    if longer or not sure:
        return min(longer, default=float("inf"))
    longest = max(sure)
    return sure[longest] * (drafted + 1) / (longest + 1)


def _bin(seconds: float) -> int:
    return int(BINS_PER_OCTAVE * log2(max(seconds, 1e-9)) // 1)


def _quantile(counts: Counter[int], share: float) -> int:
    """Return the bin at which the count reaches this share of all."""
    left = share * counts.total()
    for number in sorted(counts):
        left -= counts[number]
        if left <= 0:
            return number
    return max(counts)
