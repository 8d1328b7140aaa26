"""Tests whether a prediction head belongs to its target, which the files do not say.

This is Wald's sequential test of a head that is right one time in ten against one that guesses and
is right one time in a hundred: a right draft weighs as much as RIGHT wrong ones
(log 10 / log (99 / 90)). However long the test runs, a head that is right one time in ten is
declared unfit with a probability below 1 / 400. A head that is right less than 4 % of the time is
declared unfit sooner or later.
"""

from dataclasses import dataclass

RIGHT = 24
DECIDED = 64


@dataclass(slots=True)
class HeadFit:
    """The outcomes of the first tokens of a head's drafts, kept while its pair is loaded."""

    num_drafts: int = 0
    num_right: int = 0

    @property
    def unfit_reason(self) -> str | None:
        """Why the head is not used; None if it fits, or if that is still unknown."""
        if self._lead < DECIDED:
            return None
        return (
            f"the prediction head was made for another model: {self.num_right} of its first"
            f" {self.num_drafts} drafts were right, no better than guessing; choose the one that"
            " belongs to the target"
        )

    @property
    def _lead(self) -> int:
        """By how much wrong drafts lead, a right one weighing as much as RIGHT wrong ones."""
        return self.num_drafts - (1 + RIGHT) * self.num_right
