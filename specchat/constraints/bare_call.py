"""Calls that begin with a plain word or brace: they count only where an answer begins."""

from collections.abc import Callable, Sequence

from specchat.decoding.constraint import Constraint, Mask


class CallAtStart:
    """A Constraint that applies to an answer that begins with `opening`, white space aside.

    `inner` allows any text up to there, and calls from there on. An answer that begins otherwise
    may go on in any way, even if `opening` comes later.
    """

    def __init__(self, inner: Constraint, opening: str, piece: Callable[[int], bytes]) -> None:
        """Begin at the start of an answer."""
        self._inner = inner
        self._opening = opening.encode()
        self._piece = piece
        self._texts = [b""]  # up to each token, none where the answer began otherwise

    def mask(self) -> Mask | None:
        """Return the tokens that may come next, None if all may. It may be kept."""
        return self._inner.mask() if self._may_be_call else None

    def forced(self) -> Sequence[int]:
        """Return the tokens that must come next, in order; none where there is a choice."""
        return self._inner.forced() if self._may_be_call else ()

    def push(self, token: int) -> None:
        """Follow a token that the mask allows. Raises InvalidOption for another one."""
        if self._may_be_call:
            self._inner.push(token)
        # the beginning says all; a long answer is not copied with each of its tokens
        is_decided = len(self._texts[-1]) > len(self._opening) or not self._may_be_call
        text = self._texts[-1] if is_decided else (self._texts[-1] + self._piece(token)).lstrip()
        self._texts.append(text)

    def pop(self, count: int) -> None:
        """Take the last `count` tokens back."""
        if not count and self._may_be_call:
            self._inner.pop(0)
        for _ in range(count):
            self._texts.pop()
            if self._may_be_call:
                self._inner.pop(1)

    @property
    def is_over(self) -> bool:
        """Whether only the end may follow."""
        return self._may_be_call and self._inner.is_over

    @property
    def is_complete(self) -> bool:
        """Whether the answer may end here."""
        return not self._may_be_call or self._inner.is_complete

    @property
    def _may_be_call(self) -> bool:
        text = self._texts[-1]
        return text.startswith(self._opening) or self._opening.startswith(text)
