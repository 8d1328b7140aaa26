"""The protocol of constraints: what an answer may consist of, token by token."""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from specchat.decoding.distribution import Ids, Logits
from specchat.errors import EngineFailed

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
        indices = np.minimum(
            ids >> 5, self._bits.size - 1
        )  # ids beyond the bits are left out below
        bits = (self._bits[indices] >> (ids & 31).astype(np.uint32)) & np.uint32(1)
        flags: npt.NDArray[np.bool_] = (bits != 0) & (ids < 32 * self._bits.size)
        return flags

    def masked(self, logits: Logits) -> Logits:
        """Return a copy of a row of logits with minus infinity for all other tokens."""
        flags = np.unpackbits(self._bits.view(np.uint8), bitorder="little")[: logits.size]
        if flags.size < logits.size:
            flags = np.pad(flags, (0, logits.size - flags.size))
        return np.where(flags, logits, np.float32(-np.inf))

    @property
    def is_single(self) -> bool:
        """Whether one token may come and no other."""
        words = self._bits[self._bits != 0]
        return words.size == 1 and int(words[0]).bit_count() == 1

    @classmethod
    def where(cls, flags: npt.NDArray[np.bool_]) -> "Mask":
        """Return the mask that allows the tokens whose flag is set, shape (vocabulary,)."""
        padded = np.pad(flags, (0, -flags.size % 32))
        return cls(np.packbits(padded, bitorder="little").view(np.uint32))

    @classmethod
    def only(cls, token: int) -> "Mask":
        """Return the mask that allows one token."""
        bits = np.zeros((token >> 5) + 1, dtype=np.uint32)
        bits[-1] = 1 << (token & 31)
        return cls(bits)

    @classmethod
    def of(cls, tokens: Sequence[int], vocabulary: int) -> "Mask":
        """Return the mask that allows these tokens of a vocabulary."""
        flags = np.zeros(vocabulary, dtype=np.bool_)
        flags[list(tokens)] = True
        return cls.where(flags)


class Constraint(Protocol):
    """What an answer may consist of, followed token by token and taken back.

    Tokens that end the answer are allowed by the mask where it may end, and are never pushed.
    """

    def mask(self) -> Mask | None:
        """Return the tokens that may come next, None if all may. It may be kept."""

    def forced(self) -> Sequence[int]:
        """Return the tokens that must come next, in order; none where there is a choice.

        Wherever a token is forced, the mask allows that token alone.
        """

    def push(self, token: int) -> None:
        """Follow a token that the mask allows. Raises InvalidOption for another one."""

    def pop(self, count: int) -> None:
        """Take the last `count` tokens back, which may be none.

        If `mask` or `push` raised EngineFailed, that makes the constraint usable again.
        """

    @property
    def is_over(self) -> bool:
        """Whether only the end may follow."""

    @property
    def is_complete(self) -> bool:
        """Whether the answer may end here."""


class _Allowed(NamedTuple):
    """What may follow some tokens of a draft; the tokens of `run` must follow, if there are any.

    `error` is set if the constraint cannot say.
    """

    mask: Mask | None = None
    run: Sequence[int] = ()
    error: EngineFailed | None = None


class Walk:
    """An answer's constraint along a draft; without a constraint, everything is allowed.

    Drafter and verifier both ask what may follow each token of a draft, and making a mask takes
    time. The constraint therefore stays advanced along the draft that was asked about last, and its
    answers after each token are kept, until a question about another path or the next step of the
    answer.
    """

    def __init__(self, constraint: Constraint | None, end_tokens: Collection[int] = ()) -> None:
        """Begin at the answer's start."""
        self._constraint = constraint
        self._ends = end_tokens
        self._path: list[int] = []  # drafted tokens that the constraint has followed
        self._allowed: list[_Allowed] = []  # entry n: after the first n of them

    def mask_after(self, drafted: Sequence[int]) -> Mask | None:
        """Return what may follow the answer and these drafted tokens, None for everything.

        None, too, where the constraint is over, and after an end token or a token that is not
        allowed, because nothing that is drafted there can be accepted. Raises EngineFailed where
        the constraint cannot say.
        """
        allowed = self._allowed_after(drafted)
        if allowed and allowed.error:
            raise allowed.error
        return allowed.mask if allowed else None

    def forced_after(self, drafted: Sequence[int]) -> Sequence[int]:
        """Return the tokens that must follow the answer and these drafted tokens."""
        allowed = self._allowed_after(drafted)
        return allowed.run if allowed else ()

    def num_allowed(self, drafted: Sequence[int]) -> int:
        """Return how many leading tokens of a draft may come."""
        if self._constraint is None:
            return len(drafted)
        self._walk(drafted)
        length = len(self._path)
        if length >= len(drafted) or self._constraint.is_over:
            return min(length, len(drafted))
        mask = self._allowed[length].mask
        # an end token is allowed but never followed, so it is one more than the path has
        is_end = mask is None or mask.allows(drafted[length])
        return length + is_end

    def follow(self, token: int) -> None:
        """Follow a token of the answer, unless it is an end. Raises InvalidOption if forbidden."""
        if self._constraint is None:
            return
        self._return()
        if token not in self._ends:
            self._constraint.push(token)
            self._allowed = []

    def forced(self) -> Sequence[int]:
        """Return the tokens that must follow the answer."""
        if self._constraint is None:
            return ()
        self._return()
        return self._constraint.forced()

    @property
    def is_over(self) -> bool:
        """Whether the answer must end after the tokens that were followed."""
        if self._constraint is None:
            return False
        self._return()
        return self._constraint.is_over

    @property
    def is_complete(self) -> bool | None:
        """Whether the answer may end here; None without a constraint."""
        self._return()
        return self._constraint.is_complete if self._constraint else None

    def _allowed_after(self, drafted: Sequence[int]) -> _Allowed | None:
        """Return what may follow these drafted tokens; None where no draft can be accepted."""
        if self._constraint is None:
            return None
        self._walk(drafted)
        return self._allowed[len(drafted)] if len(drafted) < len(self._allowed) else None

    def _walk(self, drafted: Sequence[int]) -> None:
        """Follow a draft as far as its tokens may come."""
        constraint, path, allowed = self._constraint, self._path, self._allowed
        if constraint is None:
            return
        if not allowed:
            allowed.append(_ask(constraint))
        num_common = 0
        for followed, token in zip(path, drafted, strict=False):
            if followed != token:
                break
            num_common += 1
        if num_common == len(drafted):
            return
        self._shorten(num_common)
        for token in drafted[num_common:]:
            mask, run, error = allowed[-1]
            is_end = token in self._ends or constraint.is_over or error is not None
            if is_end or not (mask is None or mask.allows(token)):
                return
            try:
                constraint.push(token)
            except EngineFailed:  # where the target may never come
                constraint.pop(0)
                return
            path.append(token)
            # a forced run stays forced token by token: its rest need not be asked for
            allowed.append(_allowed_by(constraint, run[1:]))

    def _shorten(self, length: int) -> None:
        """Go back to this length of the path."""
        if self._constraint is not None and length < len(self._path):
            self._constraint.pop(len(self._path) - length)
            del self._path[length:], self._allowed[length + 1 :]

    def _return(self) -> None:
        """Go back to the end of the answer."""
        self._shorten(0)


def _allowed_by(constraint: Constraint, run: Sequence[int]) -> _Allowed:
    """Return what may follow the tokens that a constraint has followed.

    `run` holds the tokens it has already said must follow; with any, it need not be asked.
    """
    if constraint.is_over:
        return _Allowed()
    if run:
        return _Allowed(Mask.only(run[0]), run)
    try:
        return _ask(constraint)
    except EngineFailed as error:
        return _Allowed(error=error)


def _ask(constraint: Constraint) -> _Allowed:
    """Ask a constraint what may follow. The mask of a forced token is made without asking."""
    run = constraint.forced()
    return _Allowed(Mask.only(run[0]) if run else constraint.mask(), run)
