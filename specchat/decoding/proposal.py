"""What a drafter proposes in one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from specchat.decoding.chunk import Origin
from specchat.decoding.distribution import Distribution

__all__ = ["NOTHING", "DraftToken", "Proposal"]


class DraftToken(NamedTuple):
    """A drafted token, and the distribution it was really drawn from (certain if none was)."""

    token: int
    distribution: Distribution
    origin: Origin


@dataclass(frozen=True, slots=True)
class Proposal:
    """The drafted tokens of a step, in their order."""

    draft: tuple[DraftToken, ...] = ()


NOTHING = Proposal()
"""The proposal of plain decoding."""
