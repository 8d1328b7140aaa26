"""Whether a prediction head belongs to its target, which nothing in the files says.

Wald's sequential test of a head that is right one time in ten against one that guesses and is right
one time in a hundred: a right draft says as much as RIGHT wrong ones (log 10 / log (99 / 90)).
However often one looks, a head that is right one time in ten is called unfit in fewer than one pair
of 400. A head that is right fewer than four times in a hundred is called unfit sooner or later.
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
        """Why the head is not used, None if it fits or that is not known yet."""
        if self._lead < DECIDED:
            return None
        return (
            f"the prediction head does not fit this target: {self.num_right} of its first"
            f" {self.num_drafts} drafts were right, no more than by guessing; choose the one that"
            " belongs to the target"
        )

    @property
    def is_known(self) -> bool:
        """Whether the head is known to fit, or not to."""
        return abs(self._lead) >= DECIDED

    @property
    def _lead(self) -> int:
        """The wrong drafts beyond those of a head that may be of use."""
        return self.num_drafts - (1 + RIGHT) * self.num_right
