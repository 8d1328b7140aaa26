"""A replay: a known answer decoded again, to see what that takes with drafts and without."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Replay:
    """The tokens of a whole answer, and how many of them to decode.

    Decoding stops after the step that reaches `end` of them. That step may go further: a shorter
    draft would not be the one that the answer had there.
    """

    tokens: Sequence[int]
    end: int
