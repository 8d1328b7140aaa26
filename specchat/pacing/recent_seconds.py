"""How long passes take now: what was measured, corrected by what the last ones took.

    seconds(n) = nominal(n) * speed * bias(n)

`nominal` is what was measured when nothing else ran, or only a shape. `speed` is the one factor of
the machine's present speed, so what slows every pass down (heat, another program) is not taken for
a property of the length in use: the median of what the last passes took beside what was expected
of them. `bias` is what the last ones of a length took beside that: the mean of their middle half,
which a stalled pass does not move. It is drawn to 1 a little, as else both factors could drift
apart: passes of one length only say what their product is. Where nothing was measured, only single
passes tell the speed, as the shape may be wrong for all others.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import TypeAlias

from specchat.passes.pass_costs import Seconds, bucket_of, depth_in

NUM_RECENT = 24
FEW = 3
"""Passes of a length that count as having been tried."""
MANY = 8
"""Passes of a length whose time is worth keeping for later answers at this depth."""
MOST_WAITING = 256
"""The latest times that are kept until they are learned from, where nobody asks for long."""
NUM_LEVELS = 6
"""The passes of any length that the speed is the median of: an even number, as two lengths in turn
would else each be taken for the usual one, and neither bias be learned."""
NUM_SHARED = 16
"""The passes with drafts whose mean tells how many answers draft when one does."""
PRIOR = 3.0
"""The passes that a bias of 1 counts as."""


Place: TypeAlias = tuple[int, int]
"""A bucket of depths and a size."""


class RecentSeconds:
    """The seconds that passes, or whole drafts, took lately, by their size and the depth."""

    num_sharing = 1
    """How many answers share the passes now."""

    def __init__(self, nominal: Seconds, is_measured: Callable[[], bool]) -> None:
        """Begin with the nominal seconds, which are only a shape unless they are measured."""
        self._nominal, self._is_measured = nominal, is_measured
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget what was learned: the nominal seconds are others from now on."""
        self._waiting: deque[tuple[int, int, float]] = deque(maxlen=MOST_WAITING)
        self._levels: deque[float] = deque(maxlen=NUM_LEVELS)
        self._speed = 1.0
        self._ratios: dict[Place, deque[float]] = {}
        self._biases: dict[Place, float] = {}  # of those tried often enough

    @property
    def is_known(self) -> bool:
        """Whether these are seconds, not only a shape."""
        return bool(self._levels or self._waiting) or self._is_measured()

    def observe(self, size: int, depth: int, seconds: float) -> None:
        """Update with the time that one of this size took after `depth` tokens.

        It is learned from when seconds are next asked for: plain decoding seldom asks, and right
        after a pass the processor's caches hold none of what learning takes.
        """
        if seconds > 0:
            self._waiting.append((size, depth, seconds))

    def _catch_up(self) -> None:
        """Learn from what was observed since seconds were last asked for."""
        while self._waiting:
            self._learn(*self._waiting.popleft())

    def _learn(self, size: int, depth: int, seconds: float) -> None:
        ratio, place = seconds / self._nominal(size, depth), (bucket_of(depth), size)
        if size <= 1 or not self._levels or self._is_measured():
            self._levels.append(ratio / self._bias(place))
            self._speed = median(self._levels)
        ratios = self._ratios.setdefault(place, deque(maxlen=NUM_RECENT))
        ratios.append(ratio / self._speed)
        if len(ratios) >= FEW:
            self._biases[place] = (len(ratios) * middle(ratios) + PRIOR) / (len(ratios) + PRIOR)

    @property
    def levels(self) -> Sequence[float]:
        """How many times as long as expected the last ones took, whatever their size."""
        self._catch_up()
        return tuple(self._levels)

    def begin_with(self, levels: Sequence[float]) -> None:
        """Begin with the machine's speed as others have learned it."""
        self._levels.extend(levels)
        self._speed = median(levels or [1.0])

    def seconds(self, size: int, depth: int) -> float:
        """Return the time that one of this size takes now, as decisions are to count it."""
        return self.expected(size, depth)

    def rows(self, size: int) -> int:
        """Return the tokens of a pass of this size."""
        return size

    def share_among(self, count: int) -> None:
        """Note how many answers share the passes from now on."""

    def begin_answer(self) -> None:
        """Begin another answer."""

    def note_drafting(self, count: int) -> None:
        """Note how many of the answers that shared a pass drafted, 0 if none did."""

    def expected(self, size: int, depth: int) -> float:
        """Return the time that one of this size takes now."""
        self._catch_up()
        return self._nominal(size, depth) * self._speed * self._bias((bucket_of(depth), size))

    def worth_keeping(self) -> dict[Place, float]:
        """Return what sizes that were made often take, by the depth's bucket and the size.

        At the machine's usual speed: how busy it is now says nothing of a later answer.
        """
        self._catch_up()
        return {
            (bucket, size): self._nominal(size, depth_in(bucket)) * middle(ratios)
            for (bucket, size), ratios in self._ratios.items()
            if len(ratios) >= MANY
        }

    def _bias(self, place: Place) -> float:
        """Return the bias of a place, or of the nearest tried: plain steps apart from others."""
        if place in self._biases:
            return self._biases[place]
        bucket, size = place
        nearest = min(
            ((abs(tried - size), abs(other - bucket), bias)
             for (other, tried), bias in self._biases.items()
             if (tried > 1) == (size > 1)),
            default=(0, 0, 1.0),
        )  # fmt: skip
        return nearest[-1]


class SharedSeconds(RecentSeconds):
    """An answer's share of the seconds of passes that several answers share.

    A pass over n tokens of each reads as many times n as answers share it: shorter parts are padded
    to that. All of them wait for what a draft adds to the pass, whether they draft or not. So what
    it adds for all is divided among those that draft. Where padding the others would take longer, a
    draft gets a pass by itself, and never costs more than that.
    """

    def __init__(
        self,
        nominal: Seconds,
        is_measured: Callable[[], bool],
        alone: RecentSeconds,
        *,
        always_pads: bool,
    ) -> None:
        """Begin with an answer that shares with none, so far.

        `alone` has what passes took that an answer had for itself; where passes are always padded,
        no draft is given one.
        """
        self._share_drafting = 1.0  # of the answers, where one does
        self._always_pads = always_pads
        self._by_number = {1: alone}  # texts cost a cache each: what holds of few says little
        super().__init__(nominal, is_measured)

    @property
    def _whole(self) -> RecentSeconds:
        """What whole passes of as many answers as share them now took, by the tokens of each."""
        count = self.num_sharing
        if count not in self._by_number:

            def nominal(size: int, depth: int) -> float:
                return self._nominal(max(size, 1) * count, depth)

            self._by_number[count] = RecentSeconds(nominal, self._is_measured)
        return self._by_number[count]

    @property
    def is_known(self) -> bool:
        """Whether these are seconds, not only a shape."""
        return self._whole.is_known

    def rows(self, size: int) -> int:
        """Return the tokens of a pass of this size, those of all answers."""
        return size if self.num_sharing == 1 else max(size, 1) * self.num_sharing

    def share_among(self, count: int) -> None:
        """Note how many answers share the passes from now on; as many of them draft as before."""
        levels, is_new = self._whole.levels, count not in self._by_number
        self.num_sharing = count
        if is_new:
            self._whole.begin_with(levels)

    def begin_answer(self) -> None:
        """Expect that all will draft: they may, once each has seen that it pays."""
        self._share_drafting = 1.0

    def note_drafting(self, count: int) -> None:
        """Note how many of the answers that shared a pass drafted, 0 if none did."""
        if count:
            share = count / self.num_sharing
            self._share_drafting += (share - self._share_drafting) / NUM_SHARED

    def observe(self, size: int, depth: int, seconds: float) -> None:
        """Update with an answer's share of the time that a pass took."""
        self._whole.observe(size, depth, seconds * self.num_sharing)

    def expected(self, size: int, depth: int) -> float:
        """Return an answer's share of the time that a pass takes now."""
        return self._whole.expected(size, depth) / self.num_sharing

    def seconds(self, size: int, depth: int) -> float:
        """Return what one of this size is charged with."""
        expected = self.expected(size, depth)
        if size <= 1:
            return expected
        plain = self.expected(1, depth)
        num_drafting = max(1.0, self._share_drafting * self.num_sharing)
        added = (expected - plain) * self.num_sharing / num_drafting
        if self._is_measured() and not self._always_pads:
            alone = self._by_number[1]
            # a share that takes longer than a pass alone did shows a machine that has become slower
            slower = max(1.0, plain / alone.expected(1, depth))
            added = min(added, alone.expected(size - 1, depth) * slower)
        return plain + added


def middle(values: Iterable[float]) -> float:
    """Return the mean of the middle half."""
    ordered = sorted(values)
    cut = len(ordered) // 4
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept) / len(kept)
