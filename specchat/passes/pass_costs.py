"""What a model's passes cost by their number of tokens: measured, or the shape that is usual.

Checking n tokens does not cost n times one: kernels work in blocks, so the cost is a staircase that
differs by machine, build and file, and it grows with the depth of the context.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TypeAlias

PLAIN = 0
"""The entry of plain decoding: passes over one token among others of the kind. Right after drafting
they take up to a third longer: the processor's caches hold less of what they read."""
LAST_STEP = 8
"""From here on, a pass between two known ones is taken to cost no less than the shorter one, and no
more than the longer one."""
SHALLOW = 256
"""Depths up to this share a table; above it each doubling has a table of its own."""

Stair: TypeAlias = Mapping[int, float]
"""Costs of passes by their number of tokens, relative to that over one."""

REPACKED: Stair = {1: 1.0, 2: 1.65, 3: 2.25, 4: 1.8, 8: 3.0, 16: 4.4, 33: 8.5, 65: 16.5}
"""Q4_0 and the like, whose kernels on x86 and ARM work on four tokens at once."""
QUANTISED: Stair = {1: 1.0, 2: 1.7, 4: 2.7, 8: 4.5, 16: 7.5, 33: 14.0, 65: 27.0}
"""Other quantised files on a CPU: each token takes most of a pass."""
UNQUANTISED: Stair = {1: 1.0, 2: 1.2, 3: 1.35, 4: 1.55, 8: 2.15, 16: 2.9, 33: 5.0, 65: 9.0}
"""F16 and the like on a CPU, bound by the memory's bandwidth."""
ON_GPU: Stair = {1: 1.0, 2: 1.1, 4: 1.4, 8: 2.05, 16: 2.5, 33: 3.2, 65: 4.0}
"""Any file on a GPU."""

SHOWN = (1, 2, 3, 4, 5, 8, 16)
"""The numbers of tokens at which a stair is shown."""

REPACKED_TYPES = ("Q4_0", "IQ4_NL")
UNQUANTISED_TYPES = ("F16", "BF16", "F32")
"""What llama.cpp calls files whose weights it repacks, the fastest first, and those that are not
quantised."""


EXPERT_COST = 1.15
"""What reading the experts of one more token costs, of those of the first. Of 128 experts, 8 used,
on a CPU, passes over 2, 3, 4, 8 and 16 tokens took 2.2, 3.0, 4.1, 7.0 and 11.7 times one."""


def usual_stair(
    quantisation: str, *, is_on_gpu: bool, is_repacked: bool, active_share: float = 1.0
) -> Stair:
    """Return what passes usually cost with this kind of file on this kind of kernel.

    `is_repacked` says whether weights that can be repacked are. A token uses `active_share` of a
    mixture's experts, and a pass reads all experts that any of its tokens uses.
    """
    if is_on_gpu:
        stair = ON_GPU
    elif quantisation in UNQUANTISED_TYPES:
        stair = UNQUANTISED
    else:
        stair = REPACKED if is_repacked and quantisation in REPACKED_TYPES else QUANTISED
    if active_share == 1:
        return stair
    return {
        count: max(cost, _cost_of_experts(count, active_share)) for count, cost in stair.items()
    }


def _cost_of_experts(num_tokens: int, share: float) -> float:
    """Return the cost of reading the experts that some tokens use, if they choose at random."""
    reads = (1 - (1 - share) ** num_tokens) / share
    return min(num_tokens, 1 + EXPERT_COST * (reads - 1))


class PassCosts:
    """Seconds per pass, by its number of tokens and the depth of the context.

    Until a pass was measured, they are in units of a pass over one token, in the shape of a stair.
    """

    def __init__(self, longest: int, stair: Stair = QUANTISED) -> None:
        """Know no costs yet; passes have up to `longest` tokens."""
        self._longest, self._stair = longest, stair
        self._tables: dict[int, dict[int, float]] = {}
        self._rows: dict[int, list[float]] = {}

    @property
    def is_known(self) -> bool:
        """True once any pass was measured."""
        return bool(self._tables)

    def seconds(self, num_tokens: int, depth: int) -> float:
        """Return the time of a pass; beyond the longest known one it grows in proportion."""
        row = self.row(depth)
        if num_tokens <= self._longest:
            return row[num_tokens]
        return row[self._longest] * num_tokens / self._longest

    def row(self, depth: int) -> Sequence[float]:
        """Return the costs at a depth, shape (longest + 1,), by the number of tokens."""
        bucket = bucket_of(depth)
        if bucket not in self._rows:
            self._rows[bucket] = self._filled(self._known(bucket))
        return self._rows[bucket]

    def stair(self) -> Stair:
        """Return what passes cost in an empty context, relative to one over one token, at SHOWN."""
        row = self.row(0)
        return {length: row[length] / row[1] for length in SHOWN}

    def begin_with(self, seconds: Mapping[int, float]) -> None:
        """Start anew from costs measured in an empty context, by their number of tokens."""
        self._tables = {0: dict(seconds)} if seconds else {}
        self._rows.clear()

    def set_plain(self, seconds: float) -> None:
        """Note what plain decoding was measured to take, beside single passes."""
        self._tables.setdefault(0, {})[PLAIN] = seconds
        self._rows.clear()

    def as_record(self) -> list[tuple[int, int, float]]:
        """Return what is known: rows of (depth bucket, tokens, seconds)."""
        return [
            (bucket, num_tokens, seconds)
            for bucket, table in sorted(self._tables.items())
            for num_tokens, seconds in sorted(table.items())
        ]

    def learn_record(self, record: Iterable[tuple[int, int, float]]) -> None:
        """Start from what was known before; entries that cannot be are left out."""
        for bucket, num_tokens, seconds in record:
            if PLAIN <= num_tokens <= self._longest and 0 <= bucket < 64 and 0 < seconds < 3600:
                self._tables.setdefault(bucket, {})[num_tokens] = seconds
        self._rows.clear()

    def _known(self, bucket: int) -> dict[int, float]:
        """Return the seconds known at a depth, completed by those scaled from other depths."""
        own = dict(self._tables.get(bucket, {}))
        for other in sorted(self._tables, key=lambda other: abs(other - bucket)):
            table = self._tables[other]
            ratios = [own[length] / seconds for length, seconds in table.items() if length in own]
            ratio = median(ratios) if ratios else 1.0
            for length, seconds in table.items():
                own.setdefault(length, ratio * seconds)
        return own

    def _filled(self, known: dict[int, float]) -> list[float]:
        """Return a whole row: lengths between known ones lie on the stair, scaled to meet both.

        A pass over n tokens takes no less than one over 1, and no more than n of them.
        """
        stair = _interpolated(self._stair, self._longest)
        plain = known.pop(PLAIN, 0.0)
        known = known or {1: plain or 1.0}
        single = known.get(1, min(known.values()))
        known = {length: max(seconds, single) for length, seconds in known.items()}
        factors = {length: seconds / stair[length] for length, seconds in known.items()}
        row = [
            cost * factor
            for cost, factor in zip(stair, _interpolated(factors, self._longest), strict=True)
        ]
        for (shorter, less), (longer, more) in pairwise(sorted(known.items())):
            for length in range(max(shorter + 1, LAST_STEP), longer):
                row[length] = min(max(row[length], less), max(more, less))
        row[1] = min(row[1:])
        row[PLAIN] = min(plain or row[1], row[1])
        return [min(cost, max(1, length) * row[1]) for length, cost in enumerate(row)]


def bucket_of(depth: int) -> int:
    """Return which table a depth belongs to."""
    return ((depth - 1) // SHALLOW).bit_length() if depth > 1 else 0


def depth_in(bucket: int) -> int:
    """Return the least depth of a table."""
    return SHALLOW * 2 ** (bucket - 1) + 1 if bucket else 0


def _interpolated(known: Mapping[int, float], longest: int) -> list[float]:
    """Return the line through these points from 0 to `longest`, level beyond the outer ones."""
    last = max(known)
    points = sorted({0: known[min(known)], max(longest, last): known[last], **known}.items())
    line = [points[0][1]]
    for (length, value), (longer, other) in pairwise(points):
        rise = (other - value) / (longer - length)
        line += [value + rise * more for more in range(1, longer - length + 1)]
    return line[: longest + 1]


Seconds: TypeAlias = Callable[[int, int], float]
"""Returns the seconds of a pass by its number of tokens and the depth."""
