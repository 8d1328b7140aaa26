"""Checks of this machine, each with the commands that fix what it finds."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was checked, its state, the details, and the commands that fix it, in order.

    With a problem, something does not work; a warning is worth knowing.
    """

    name: str
    state: Literal["ok", "warning", "problem"]
    detail: str
    fix: tuple[str, ...] = ()
