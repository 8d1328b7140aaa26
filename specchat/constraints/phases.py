"""The phases of an answer, such as reasoning, text and calls, and which marks lead from one on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from specchat.decoding.constraint import Constraint


@dataclass(frozen=True, slots=True)
class Free:
    """A phase of any text until a mark is written; `marks` names the phase that follows each.

    Of two marks that begin alike, the shorter one counts. The answer may end here if `may_end`.
    With `otherwise`, marks count only where the phase's text begins, white space aside, and any
    other text leads to the phase of that name.
    """

    marks: Mapping[str, str]
    may_end: bool = False
    otherwise: str = ""


@dataclass(frozen=True, slots=True)
class Constrained:
    """A phase whose text a constraint allows; `start` returns it as it is at its beginning.

    Up to `newlines` line breaks may come first. Instead of all that, one of the marks of `openings`
    may be written, which leads to another phase, such as reasoning. When the constraint is over,
    the phase `then` follows; without one, the answer is over.
    """

    start: Callable[[], Constraint]
    newlines: int = 0
    openings: Mapping[str, str] = field(default_factory=dict)
    then: str = ""


Phase: TypeAlias = Free | Constrained


def marks_of(phase: Phase) -> dict[bytes, str]:
    """Return the marks that lead on from a phase, each with the name of the phase it leads to."""
    marks = phase.marks if isinstance(phase, Free) else phase.openings
    return {mark.encode(): name for mark, name in marks.items()}
