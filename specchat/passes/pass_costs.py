"""What a model's passes cost, learned from the passes it makes.

Checking n tokens does not cost n times one: kernels work in blocks, so the cost is a staircase that
differs by machine, build and model, and it grows with the depth of the context.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from specchat.passes.padding import padded_row, padded_size

MIN_RISE = 1.1
"""Optimistic costs of several tokens are at least this many times that of one."""
SHALLOW = 256
"""Depths up to this share a table; above it each doubling has a table of its own."""
PLAIN, SETTLED = 0, 8
"""The entry of plain decoding: passes over one token after SETTLED others of the kind. Right after
drafting they take up to a third longer: the processor's caches hold less of what they read, and
llama.cpp builds the graph of a pass anew after one of another length."""
NUM_FIRST = 3
"""Of the first passes of a length, and of those after a long time, the fastest counts."""
NUM_LEARNED = 5
"""A cost learned in an earlier session counts as that of so many passes."""
MIN_WEIGHT = 0.025
"""Weight of a new measurement among many: the table remembers about forty."""
SPEED_WEIGHT = 0.15
"""How fast the whole table follows a machine that has become slower or faster."""
REFRESH = 16
"""Rows are worked out anew after this many passes of a length."""
STALE, STALE_SINGLE = 64, 24
"""A length not measured for this many passes counts little once it is measured again; a single
token for fewer, as every decision rests on what that takes."""
OPTIMISM_PER_PASS, MAX_COST_OPTIMISM = 0.001, 0.35
"""How much less a pass may take than was once measured: the machine or the first measurement may
have been disturbed, and a length that seems expensive is never used and so never measured."""
MAX_SURPRISE = 1.3
"""A pass counts as at most this many times slower or faster than expected: one in twenty is
disturbed, and takes up to several times as long."""
NEXT_TOKEN = 0.06
"""Each further token of an unmeasured pass is assumed to cost this share of a single one."""


@dataclass(slots=True)
class _Measured:
    """Seconds at the table's present speed, and the number of passes they come from."""

    seconds: float
    count: int = 1


class PassCosts:
    """Seconds per pass, by its number of tokens and the depth of the context.

    All entries share one factor, the machine's present speed. What slows every pass down (heat,
    another program) is then not mistaken for a property of the length in use at the time.
    """

    longest_padded = 0
    """The most tokens of a padded pass, 0 if none may be padded."""
    change_cost = 0.0
    """The share of a pass that it takes more after one of another length."""

    def __init__(self, longest: int) -> None:
        """Know no costs yet; passes have up to `longest` tokens."""
        self._longest = longest
        self._speed = 1.0
        self._waiting: list[tuple[int, int, float]] = []
        self._tables: dict[int, dict[int, _Measured]] = {}
        self._bare: dict[int, list[float]] = {}  # rows without padding
        self._padded = (0, 0)
        self._rows: dict[int, list[float]] = {}
        self._rises: dict[int, list[float]] = {}
        self._num_passes = 0
        self._last_measured = [0] * (longest + 1)
        self._times_measured = [0] * (longest + 1)

    @property
    def is_known(self) -> bool:
        """True once any pass was measured."""
        self._catch_up()
        return bool(self._tables)

    @property
    def is_one_known(self) -> bool:
        """Whether a pass over one token was measured since costs were last doubted."""
        self._catch_up()
        return self._is_known(PLAIN) or self._is_known(1)

    def _is_known(self, num_tokens: int) -> bool:
        return self._times_measured[num_tokens] > 0

    @property
    def speed(self) -> float:
        """The factor that all costs share now."""
        self._catch_up()
        return self._speed

    def observe(self, num_tokens: int, depth: int, seconds: float) -> None:
        """Update with the time of a pass over `num_tokens` tokens after `depth` others.

        While answering, verification and emission are part of the time, drafting is not.
        `num_tokens` is PLAIN for one of plain decoding. If the pass was padded, it counts as one of
        its padded length.
        It is learned from when costs are next asked for: plain decoding asks once per answer, and
        after a pass the CPU's caches hold none of what that takes. A pass longer than the longest
        known one counts as part of one at the same rate.
        """
        asked, padded = self._padded
        length = padded if num_tokens == asked else num_tokens
        self._waiting.append((length, depth, seconds))

    def _catch_up(self) -> None:
        """Learn from the passes observed since costs were last asked for."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                self._learn(*each)

    def _learn(self, num_tokens: int, depth: int, seconds: float) -> None:
        """Learn from one pass.

        A pass is expected to take e s seconds, e being its entry and s the speed of the machine. It
        took x times as long, x being limited to 1 / MAX_SURPRISE ... MAX_SURPRISE. Both take their
        share of the blame, the entry less the more passes it comes from:

            s <- s x^SPEED_WEIGHT        e <- e x^((1 - SPEED_WEIGHT) max(MIN_WEIGHT, 1 / count))

        Products, as what slows a machine down slows every pass by a factor. The row that decisions
        read is corrected in place where that is exact enough, and worked out anew now and then.
        """
        if num_tokens < PLAIN or seconds <= 0:
            return
        if num_tokens > self._longest:
            seconds, num_tokens = seconds * self._longest / num_tokens, self._longest
        bucket = _bucket(depth)
        row = self._bare_row(bucket)
        self._rows.pop(bucket, None)
        is_stale = self.is_stale(num_tokens)
        self._num_passes += 1
        self._last_measured[num_tokens] = self._num_passes
        if not self._is_known(num_tokens):
            self._forget_rows()
        self._times_measured[num_tokens] += 1
        table = self._tables.setdefault(bucket, {})
        entry = table.get(num_tokens)
        if entry is None:
            table[num_tokens] = _Measured(seconds / self._speed)
            self._forget_rows()
            return
        if is_stale:
            entry.count = min(entry.count, NUM_FIRST - 2)
        entry.count += 1
        if entry.count <= NUM_FIRST:  # passes take too long for many reasons, too short for none
            entry.seconds = min(entry.seconds, seconds / self._speed)
        surprise = seconds / (entry.seconds * self._speed)
        surprise = min(max(surprise, 1 / MAX_SURPRISE), MAX_SURPRISE)
        self._speed *= surprise**SPEED_WEIGHT
        entry.seconds *= (surprise ** (1 - SPEED_WEIGHT)) ** max(MIN_WEIGHT, 1 / entry.count)
        before, row[num_tokens] = row[1], entry.seconds
        if num_tokens:
            row[1] = min(row[1:]) if num_tokens == 1 else min(row[1], entry.seconds)
        plain = table[PLAIN].seconds if PLAIN in table else row[PLAIN] * row[1] / before
        row[PLAIN] = min(plain, row[1])
        if entry.count % REFRESH == 0:  # what was derived from this entry follows now and then
            self._forget_rows()

    def seconds(self, num_tokens: int, depth: int) -> float:
        """Return the time a pass will take; 0.0 while no cost is known."""
        row = self.row(depth)
        if num_tokens <= self._longest:
            return row[num_tokens] * self._speed
        return row[self._longest] * (num_tokens / self._longest) * self._speed

    def row(self, depth: int) -> list[float]:
        """Return costs before the speed factor, shape (longest + 1,).

        Entry n is for n tokens, padded if that is faster, entry PLAIN for plain decoding: no more
        than entry 1.
        """
        if self._waiting:
            self._catch_up()
        bucket = _bucket(depth)
        if bucket not in self._rows:
            self._rows[bucket] = padded_row(self._bare_row(bucket), self.longest_padded)
        return self._rows[bucket]

    def padded(self, num_tokens: int, depth: int, most: int) -> int:
        """Return over how many tokens, up to `most`, the next pass over this many goes best.

        Its own cost is taken to be what it may be at best: a pass that is always padded would
        never be measured again.
        """
        self._catch_up()
        row = list(self._bare_row(_bucket(depth)))
        row[num_tokens : num_tokens + 1] = self._optimistic(row)[num_tokens : num_tokens + 1]
        longest = min(self.longest_padded, most)
        size, last = padded_size(row, num_tokens, longest), self._padded[1]
        if num_tokens < last <= longest and row[last] < (1 + self.change_cost) * row[size]:
            size = last
        self._padded = (num_tokens, size)
        return size

    def least_rises(self, depth: int) -> list[float]:
        """Return what each further token adds to a pass at least, shape (longest,), entry 0 unused.

        Entry n is for more tokens than n: the lowest mean rise to any longer pass, in passes over
        one token. As of when it was last worked out: plain passes change it little. Zeros if no
        cost is known.
        """
        bucket = _bucket(depth)
        if bucket not in self._rises:
            row = self.row(depth)
            self._rises[bucket] = [rise / (row[1] or 1.0) for rise in _least_rises(row)]
        return self._rises[bucket]

    def optimistic_row(self, depth: int) -> list[float]:
        """Return costs as they may be at best: the lower, the longer a length was not measured.

        Deciding by these now and then measures what would pay if it cost a little less than
        believed (optimism under uncertainty, Auer et al. 2002). Several tokens are never taken to
        cost less than one.
        """
        self._catch_up()
        return padded_row(self._optimistic(self._bare_row(_bucket(depth))), self.longest_padded)

    def _optimistic(self, row: Sequence[float]) -> list[float]:
        optimistic = [
            cost * (1.0 - min(OPTIMISM_PER_PASS * self._age(num_tokens), MAX_COST_OPTIMISM))
            for num_tokens, cost in enumerate(row)
        ]
        least = MIN_RISE * row[1]
        longer = zip(row[2:], optimistic[2:], strict=True)
        shorter = [min(row[PLAIN], optimistic[1]), optimistic[1]]
        return [*shorter, *(min(cost, max(at_best, least)) for cost, at_best in longer)]

    def as_record(self) -> list[tuple[int, int, float]]:
        """Return what was learned: rows of (depth bucket, tokens, seconds).

        Lengths that too few passes had are left out: they would be believed next time.
        """
        self._catch_up()
        return [
            (bucket, num_tokens, entry.seconds * self._speed)
            for bucket, table in sorted(self._tables.items())
            for num_tokens, entry in sorted(table.items())
            if self._times_measured[num_tokens] >= NUM_FIRST
        ]

    def learn_record(self, record: Iterable[tuple[int, int, float]]) -> None:
        """Start from what was learned before; each entry then counts as a few passes."""
        self._catch_up()
        for bucket, num_tokens, seconds in record:
            if PLAIN <= num_tokens <= self._longest and 0 <= bucket < 64 and 0 < seconds < 3600:
                table = self._tables.setdefault(bucket, {})
                table[num_tokens] = _Measured(seconds, NUM_LEARNED)
                self._times_measured[num_tokens] = NUM_LEARNED
        self._forget_rows()

    def doubt(self) -> None:
        """Judge the next passes of each length as the first ones: what is known may be wrong.

        Until one is made, what is known of the length is only the most that it costs.
        """
        self._catch_up()
        self._times_measured = [0] * (self._longest + 1)
        for table in self._tables.values():
            for entry in table.values():
                entry.count = 0
        self._forget_rows()

    def begin_with(self, seconds: Mapping[int, float]) -> None:
        """Start anew from costs measured in an empty context, by their number of tokens.

        Answers soon correct them: among other passes they may differ.
        """
        self._waiting = [(num_tokens, 0, each) for num_tokens, each in seconds.items()]
        self._tables.clear()
        self._speed = 1.0
        self._catch_up()
        self._times_measured = [
            NUM_FIRST * (length in seconds) for length in range(self._longest + 1)
        ]
        self._forget_rows()

    def _forget_rows(self) -> None:
        self._bare.clear()
        self._rows.clear()
        self._rises.clear()

    def _bare_row(self, bucket: int) -> list[float]:
        """Return the costs of passes that are not padded."""
        if bucket not in self._bare:
            self._bare[bucket] = self._filled(self._known(bucket))
        return self._bare[bucket]

    def is_stale(self, num_tokens: int) -> bool:
        """Whether this length was not measured for long."""
        return self._age(num_tokens) > (STALE_SINGLE if num_tokens == 1 else STALE)

    def _age(self, num_tokens: int) -> int:
        """Return how many passes ago this length was last measured."""
        return self._num_passes - self._last_measured[num_tokens]

    def _known(self, bucket: int) -> dict[int, float]:
        """Return the seconds measured at a depth, completed by those scaled from other depths."""
        own = {n: entry.seconds for n, entry in self._tables.get(bucket, {}).items()}
        for other in sorted(self._tables, key=lambda other: abs(other - bucket)):
            table = self._tables[other]
            ratios = [own[n] / entry.seconds for n, entry in table.items() if n in own]
            ratio = median(ratios) if ratios else 1.0
            for num_tokens, entry in table.items():
                own.setdefault(num_tokens, ratio * entry.seconds)
        return own

    def _filled(self, known: dict[int, float]) -> list[float]:
        """Return a whole row, with unmeasured lengths on the line between measured neighbours.

        A doubted length costs at most what others suggest: what seems expensive is not chosen, and
        so not measured again. One token costs no more than several: were its measurement disturbed
        and believed, drafting would seem to pay whatever is accepted, and no plain pass would
        correct it.
        """
        if not known:
            return [0.0] * (self._longest + 1)
        plain = known.pop(PLAIN, math.inf)
        known = known or {1: plain}
        shortest = min(known)
        believed = {n: known[n] for n in known if n == shortest or self._is_known(n)}
        row = self._line(known)
        if len(believed) < len(known):
            row = list(map(min, row, self._line(believed)))
        row[1] = min(row[1:])
        row[PLAIN] = min(plain, row[1])
        return row

    def _line(self, known: dict[int, float]) -> list[float]:
        """Return the line through these costs, entry 0 unused; beyond them it rises a little."""
        first, last = min(known), max(known)
        single = known[first] / (1 + NEXT_TOKEN * (first - 1))
        beyond = known[last] + single * NEXT_TOKEN * (self._longest - last)
        known = {1: single, self._longest: beyond, **known}
        row = [0.0]
        for (length, cost), (longer, other) in pairwise(sorted(known.items())):
            rise = (other - cost) / (longer - length)
            row += [rise * more + cost for more in range(longer - length)]
        row.append(known[self._longest])
        return row


def _bucket(depth: int) -> int:
    """Return which table a depth belongs to."""
    return ((depth - 1) // SHALLOW).bit_length() if depth > 1 else 0


def _least_rises(row: Sequence[float]) -> list[float]:
    """Return the lowest mean rise from each entry but the last to any later one.

    Those are the slopes from each to the lower convex hull of the later ones.
    """
    hull, rises = [len(row) - 1], [math.inf] * len(row)
    for place in reversed(range(len(row) - 1)):
        rise = (row[hull[-1]] - row[place]) / (hull[-1] - place)
        while rise >= rises[hull[-1]]:
            hull.pop()
            rise = (row[hull[-1]] - row[place]) / (hull[-1] - place)
        rises[place] = rise
        hull.append(place)
    return rises[:-1]
