"""What a check finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Finding", "State"]

State: TypeAlias = Literal["ok", "warning", "problem"]
"""A warning is something to know; with a problem, something does not work as it could."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it is, what was found, and the commands that mend it, in order."""

    name: str
    state: State
    told: str
    mend: tuple[str, ...] = ()
