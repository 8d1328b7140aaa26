"""Checks of this machine; each finding comes with the commands that fix it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: its name, state, details, and the commands that fix it, in order.

    "problem" means that something does not work; "warning" is only worth knowing. `figures` are the
    numbers in the details, for programs.
    """

    name: str
    state: Literal["ok", "warning", "problem"]
    detail: str
    fix: tuple[str, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
