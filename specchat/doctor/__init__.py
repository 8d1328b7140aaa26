"""Checks of this machine; each finding comes with the commands that fix it."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: its name, state, details, and the commands that fix it, in order.

    "problem" means that something does not work; "warning" is only worth knowing.
    """

    name: str
    state: Literal["ok", "warning", "problem"]
    detail: str
    fix: tuple[str, ...] = ()
