"""What a drafter proposes in one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from specchat.decoding.distribution import Distribution

__all__ = ["NOTHING", "DraftToken", "Origin", "Proposal"]

Origin: TypeAlias = Literal["draft", "suffix", "target"]
"""Where an emitted token came from: the draft model, the suffix drafter, or the target itself."""


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
