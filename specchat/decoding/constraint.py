"""The protocol of constraints: what an answer may consist of, token by token."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from specchat.decoding.distribution import Ids, Logits

Bits: TypeAlias = npt.NDArray[np.uint32]


class Mask:
    """The tokens that may come next: bit i of word i // 32 stands for token i.

    Tokens beyond the bits may not come.
    """

    __slots__ = ("_bits",)

    def __init__(self, bits: Bits) -> None:
        """Keep the bits, which must not change any more."""
        self._bits = bits

    def allows(self, token: int) -> bool:
        """Return True if this token may come next."""
        word = token >> 5
        return word < self._bits.size and bool(self._bits.item(word) >> (token & 31) & 1)

    def allowed(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Return for each token whether it may come next; same shape as `ids`."""
        known = np.minimum(ids >> 5, self._bits.size - 1)
        found = (self._bits[known] >> (ids & 31).astype(np.uint32)) & np.uint32(1)
        flags: npt.NDArray[np.bool_] = (found != 0) & (ids < 32 * self._bits.size)
        return flags

    def masked(self, logits: Logits) -> Logits:
        """Return a copy of a row of logits with minus infinity for all other tokens."""
        flags = np.unpackbits(self._bits.view(np.uint8), bitorder="little")[: logits.size]
        if flags.size < logits.size:
            flags = np.pad(flags, (0, logits.size - flags.size))
        return np.where(flags, logits, np.float32(-np.inf))

    @classmethod
    def of(cls, tokens: Sequence[int], vocabulary: int) -> "Mask":
        """Return the mask that allows these tokens of a vocabulary."""
        flags = np.zeros(-(-vocabulary // 32) * 32, dtype=np.uint8)
        flags[list(tokens)] = 1
        return cls(np.packbits(flags, bitorder="little").view(np.uint32))


class Constraint(Protocol):
    """What an answer may consist of, followed token by token and taken back.

    Tokens that end the answer are allowed by the mask where it may end, and are never pushed.
    """

    def mask(self) -> Mask | None:
        """Return the tokens that may come next, None if all may; valid until the next change."""

    def forced(self) -> Sequence[int]:
        """Return the tokens that must come next, in order; none where there is a choice.

        Wherever a token is forced, the mask allows that token alone.
        """

    def push(self, token: int) -> None:
        """Follow a token that the mask allows. Raises InvalidOption for another one."""

    def pop(self, count: int) -> None:
        """Take the last `count` tokens back."""

    @property
    def is_over(self) -> bool:
        """Whether only the end may follow."""

    @property
    def is_complete(self) -> bool:
        """Whether the answer may end here."""
