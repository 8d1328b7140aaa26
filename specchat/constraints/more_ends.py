"""Letting tokens end an answer that only its chat format knows."""

from collections.abc import Collection, Sequence

import numpy as np

from specchat.decoding.constraint import Constraint, Mask


class MoreEnds:
    """A Constraint that allows some more tokens where the answer may end, and nowhere else."""

    def __init__(self, inner: Constraint, ends: Collection[int], size: int) -> None:
        """Apply to another constraint, of a vocabulary of `size` tokens."""
        self._inner = inner
        self._ends = list(ends)
        self._size = size
        self._latest: tuple[Mask | None, bool, Mask] | None = None

    def mask(self) -> Mask | None:
        """Return the tokens that may come next, None if all may. It may be kept."""
        mask, may_end = self._inner.mask(), self._inner.is_complete
        if all((mask is None or mask.allows(end)) == may_end for end in self._ends):
            return mask
        latest = self._latest  # the same mask applies to all of a long text
        if latest is None or latest[0] is not mask or latest[1] != may_end:
            latest = self._latest = mask, may_end, self._changed(mask, may_end=may_end)
        return latest[2]

    def forced(self) -> Sequence[int]:
        """Return the tokens that must come next, in order; none where there is a choice."""
        return self._inner.forced()

    def push(self, token: int) -> None:
        """Follow a token that the mask allows. Raises InvalidOption for another one."""
        self._inner.push(token)

    def pop(self, count: int) -> None:
        """Take the last `count` tokens back."""
        self._inner.pop(count)

    @property
    def is_over(self) -> bool:
        """Whether only the end may follow."""
        return self._inner.is_over

    @property
    def is_complete(self) -> bool:
        """Whether the answer may end here."""
        return self._inner.is_complete

    def _changed(self, mask: Mask | None, *, may_end: bool) -> Mask:
        """Return a mask with the further ends allowed or refused."""
        ids = np.arange(self._size)
        flags = np.ones(self._size, dtype=np.bool_) if mask is None else mask.allowed(ids)
        flags[self._ends] = may_end
        return Mask.where(flags)
