"""What becomes of drafts and of the branches offered beside them, recorded while answers decode.

Only drafts of a fixed length are recorded. The pacer's methods are replaced while recording.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from unittest.mock import patch

from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.proposal import Branch, DraftToken, Hint

__all__ = ["MISSED", "Place", "Record", "hit_rates", "recording"]

MISSED = -1


class Place(NamedTuple):
    """A place of a text that was drafted for: the drafter's confidence, and what became of it.

    `beside` has the confidences of the branches offered there, best first. If the drafted token was
    wrong, `hit` is the number of the branch that was right, MISSED without one.
    """

    confidence: float
    is_right: bool
    beside: tuple[float, ...]
    hit: int


@dataclass
class Record:
    """The draft passes made, and the places that verification reached."""

    num_passes: int = 0
    places: list[Place] = field(default_factory=list)


@dataclass
class _Step:
    """What is known of the present step."""

    confidences: list[float] = field(default_factory=list)
    draft: Sequence[DraftToken] = ()
    branches: Sequence[Branch] = ()


@contextmanager
def recording(*, with_places: bool = False) -> Iterator[Record]:
    """Record what drafts of a fixed length do inside the with statement.

    Places need the confidence of each token, which takes time to work out.
    """
    record, step = Record(), _Step()
    begin, want, choose, end = (
        FixedPacer.begin_step,
        FixedPacer.wants_token,
        FixedPacer.choose_branches,
        FixedPacer.end_step,
    )

    def begin_step(self: FixedPacer, depth: int, limit: int, num_forced: int = 0) -> None:
        step.confidences, step.draft, step.branches = [], (), ()
        begin(self, depth, limit, num_forced)

    def wants_token(self: FixedPacer, origin: str, hint: Hint) -> bool:
        record.num_passes += 1
        step.confidences.append(hint.confidence)
        return want(self, origin, hint)

    def choose_branches(
        self: FixedPacer, draft: Sequence[DraftToken], branches: Sequence[Branch], most: int
    ) -> Sequence[int]:
        step.draft, step.branches = draft, branches
        return choose(self, draft, branches, most)

    def end_step(self: FixedPacer, emitted: Sequence[int], seconds: float) -> float:
        record.places += _places(step, emitted)
        return end(self, emitted, seconds)

    with (
        patch.object(FixedPacer, "begin_step", begin_step),
        patch.object(FixedPacer, "wants_token", wants_token),
        patch.object(FixedPacer, "choose_branches", choose_branches),
        patch.object(FixedPacer, "end_step", end_step),
        patch.object(FixedPacer, "needs_confidence", with_places),
    ):
        yield record


def _places(step: _Step, emitted: Sequence[int]) -> Iterator[Place]:
    """Yield the places of a step up to the first wrong token."""
    drafted = zip(step.draft, step.confidences, emitted, strict=False)
    for fork, (each, confidence, token) in enumerate(drafted):
        beside = [branch for branch in step.branches if branch.fork == fork and branch.behind < 0]
        is_right = each.token == token
        hits = [number for number, branch in enumerate(beside) if branch.token == token]
        found = tuple(branch.confidence for branch in beside)
        yield Place(confidence, is_right, found, MISSED if is_right or not hits else hits[0])
        if not is_right:
            return


def hit_rates(places: Sequence[Place], most: int = 3) -> list[float]:
    """Return how often each branch, best first, is right where the drafted token is wrong."""
    breaks = [each for each in places if not each.is_right]
    total = len(breaks) or 1
    return [sum(each.hit == number for each in breaks) / total for number in range(most)]
