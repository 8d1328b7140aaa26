"""The result of one check."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

State: TypeAlias = Literal["ok", "warning", "problem"]
"""With a problem, something does not work; a warning is worth knowing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was checked, its state, the details, and the commands that fix it, in order."""

    name: str
    state: State
    detail: str
    fix: tuple[str, ...] = ()
