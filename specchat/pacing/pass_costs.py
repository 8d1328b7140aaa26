"""What a pass of a model costs, learned from the passes it makes.

Verifying n tokens costs anything but n times one: kernels work in blocks, so the cost is a
staircase that differs per machine, build and model, and it grows with the depth of the context.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["PassCosts"]

LEAST_RISE = 1.1
"""At best several tokens take so many times what one does, unless less was measured."""
SHALLOW = 256
"""Depths up to this are alike; above it each doubling has a table of its own."""
FEW = 3
LEAST_WEIGHT = 0.025
"""Weight of a new measurement among many: the table remembers about forty."""
SPEED_WEIGHT = 0.15
"""How fast the whole table follows a machine that has become slower or faster."""
REFRESH = 16
STALE = 64
"""What was not measured for so many passes counts little once it is measured again."""
HOPE_PER_PASS, MOST_HOPE = 0.001, 0.35
"""By how much less than was once measured a pass may well take: the machine or the first
measurement may have been disturbed, and what seems dear is never measured again."""
LARGEST_SURPRISE = 1.3
"""A pass may count as at most so many times slower or faster than expected: one in twenty is
disturbed, and takes up to several times as long."""
LARGEST_CHANGE = 2.0
"""A pass after one of another length takes at most so many times what it does after its like."""
LEAST_SHARE = 0.3
"""What is brought from another depth is at least this share of what it was there."""
NEXT_TOKEN = 0.06
"""Each further token of a pass nobody measured is taken to cost this share of a single one."""


@dataclass(slots=True)
class _Measured:
    """Seconds at the table's present speed, and how many passes they stand for."""

    seconds: float
    count: int = 1


class PassCosts:
    """Seconds per pass, by the number of its tokens and the depth of the context.

    All entries share one factor, the machine's present speed, so that what slows every pass down
    (heat, another program) is not taken for a property of the length that was in use just then.
    """

    def __init__(self, longest: int) -> None:
        """Know nothing yet of passes over up to `longest` tokens."""
        self._longest = longest
        self.speed = 1.0
        """The factor all costs share now."""
        self.change = 0.0
        """What a pass takes more, before the factor, if the one before it was of another length:
        graphs are built, allocated and on some devices captured per number of tokens."""
        self._tables: dict[int, dict[int, _Measured]] = {}
        self._rows: dict[int, list[float]] = {}
        self._num_passes = 0
        self._last_measured = [0] * (longest + 1)

    @property
    def is_known(self) -> bool:
        """Say whether any pass was measured."""
        return bool(self._tables)

    def observe(
        self, num_tokens: int, depth: int, seconds: float, *, is_change: bool = False
    ) -> None:
        """Hear what passes over so many tokens, after `depth` others, have taken.

        More tokens than the longest known pass has are taken to be read at its rate.
        """
        if num_tokens < 1 or seconds <= 0:
            return
        if num_tokens > self._longest:
            seconds, num_tokens = seconds * self._longest / num_tokens, self._longest
        age = self._age(num_tokens)
        self._num_passes += 1
        if is_change:
            seconds = max(seconds / LARGEST_CHANGE, seconds - self.change * self.speed)
        else:
            self._last_measured[num_tokens] = self._num_passes
        bucket = _bucket(depth)
        table = self._tables.setdefault(bucket, {})
        entry = table.get(num_tokens)
        if entry is None:
            table[num_tokens] = _Measured(seconds / self.speed)
            self._rows.clear()
            return
        if age > STALE and not is_change:
            entry.count = min(entry.count, FEW - 1)
        entry.count += 1
        if entry.count <= FEW:  # passes take too long for many reasons, too short for none
            entry.seconds = min(entry.seconds, seconds / self.speed)
        surprise = _bounded(seconds / (entry.seconds * self.speed))
        self.speed *= surprise**SPEED_WEIGHT
        entry.seconds *= (surprise ** (1 - SPEED_WEIGHT)) ** max(LEAST_WEIGHT, 1 / entry.count)
        self._bound_single(table)
        self.row(depth)[num_tokens] = entry.seconds
        if entry.count % REFRESH == 0:  # what was derived from this entry follows now and then
            self._rows.clear()

    def _bound_single(self, table: dict[int, _Measured]) -> None:
        """Let a pass over one token, measured long ago, take no more than any over several."""
        if 1 not in table or self._age(1) <= STALE:
            return
        least = min((each.seconds for each in table.values() if each.count > FEW), default=math.inf)
        if table[1].seconds > least:
            table[1].seconds = least
            self._rows.clear()

    def seconds(self, num_tokens: int, depth: int) -> float:
        """Return what a pass will take; 0.0 while nothing is known."""
        row = self.row(depth)
        within = min(num_tokens, self._longest)
        return row[within] * max(1.0, num_tokens / self._longest) * self.speed

    def row(self, depth: int) -> list[float]:
        """Return costs without the speed, shape (longest + 1,); entry n is for n tokens."""
        bucket = _bucket(depth)
        if bucket not in self._rows:
            self._rows[bucket] = self._filled(self._known(bucket))
        return self._rows[bucket]

    def hopeful_row(self, depth: int) -> list[float]:
        """Return costs as they may be at best: lower, the longer a length was not measured.

        Deciding by these now and then measures what would pay if it were a little cheaper than
        is believed (optimism under uncertainty, Auer et al. 2002). That several tokens take less
        than a single one is not hoped for.
        """
        row = self.row(depth)
        hopeful = [
            cost * (1.0 - min(HOPE_PER_PASS * self._age(num_tokens), MOST_HOPE))
            for num_tokens, cost in enumerate(row)
        ]
        least = LEAST_RISE * row[1]
        longer = zip(row[2:], hopeful[2:], strict=True)
        return [*hopeful[:2], *(min(cost, max(hope, least)) for cost, hope in longer)]

    def as_record(self) -> dict[str, Any]:
        """Return what was learned: `change`, and rows of [depth bucket, tokens, seconds]."""
        rows = [
            [bucket, num_tokens, entry.seconds * self.speed]
            for bucket, table in sorted(self._tables.items())
            for num_tokens, entry in sorted(table.items())
        ]
        return {"change": self.change * self.speed, "passes": rows}

    def learn_record(self, record: Mapping[str, Any]) -> None:
        """Start from what was learned before; each entry then counts as a few passes."""
        for bucket, num_tokens, seconds in record["passes"]:
            if 1 <= num_tokens <= self._longest and 0 <= bucket < 64 and 0 < seconds < 3600:
                table = self._tables.setdefault(int(bucket), {})
                table[int(num_tokens)] = _Measured(float(seconds), 5)
        if 0 <= record["change"] < 3600:
            self.change = float(record["change"])
        self._rows.clear()

    def _age(self, num_tokens: int) -> int:
        """Return how many passes ago this length was last measured after one like it."""
        return self._num_passes - self._last_measured[num_tokens]

    def _known(self, bucket: int) -> dict[int, float]:
        """Return the seconds measured at a depth, or at others and brought to this one."""
        own = {n: entry.seconds for n, entry in self._tables.get(bucket, {}).items()}
        for other in sorted(self._tables, key=lambda other: abs(other - bucket)):
            table = self._tables[other]
            more = {n: own[n] - table[n].seconds for n in sorted(table) if n in own}
            for num_tokens, entry in table.items():
                brought = entry.seconds + _at(num_tokens, more)
                own.setdefault(num_tokens, max(brought, LEAST_SHARE * entry.seconds))
        return own

    def _filled(self, known: dict[int, float]) -> list[float]:
        """Return a whole row: lengths nobody measured lie between their neighbours."""
        if not known:
            return [0.0] * (self._longest + 1)
        places = sorted(known)
        first, last = places[0], places[-1]
        single = known[first] / (1 + NEXT_TOKEN * (first - 1))
        row = [0.0] * (self._longest + 1)
        for n in range(1, self._longest + 1):
            if n in known:
                row[n] = known[n]
            elif n < first:
                row[n] = single * (1 + NEXT_TOKEN * (n - 1))
            elif n > last:
                row[n] = known[last] + single * NEXT_TOKEN * (n - last)
            else:
                above = next(place for place in places if place > n)
                row[n] = row[n - 1] + (known[above] - row[n - 1]) / (above - n + 1)
        return row


def _at(num_tokens: int, more: Mapping[int, float]) -> float:
    """Return what a pass takes more at another depth, from what some lengths do.

    Attention is paid token by token, so beyond the known lengths it grows with the number.
    """
    if not more:
        return 0.0
    if num_tokens in more:
        return more[num_tokens]
    below = max((n for n in more if n < num_tokens), default=0)
    above = min((n for n in more if n > num_tokens), default=0)
    if not below or not above:
        known = below or above
        return more[known] * num_tokens / known
    share = (num_tokens - below) / (above - below)
    return more[below] + share * (more[above] - more[below])


def _bucket(depth: int) -> int:
    """Return which table a depth belongs to."""
    return max(0, (max(depth, 1) - 1) // SHALLOW).bit_length()


def _bounded(surprise: float) -> float:
    return min(max(surprise, 1 / LARGEST_SURPRISE), LARGEST_SURPRISE)
