"""The tokens that were likely instead of each emitted one, for answers that ask for them."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from specchat.decoding.chunk import Alternative
from specchat.decoding.constraint import Walk
from specchat.decoding.own_probabilities import OwnProbabilities
from specchat.decoding.ports import Rows

Alternatives: TypeAlias = tuple[tuple[Alternative, ...], ...]


class LikelyTokens:
    """Up to `count` likely tokens for each emitted one, with the model's own probabilities."""

    def __init__(self, count: int, walk: Walk, piece: Callable[[int], str]) -> None:
        """Record nothing if `count` is 0."""
        self._count, self._walk, self._piece = count, walk, piece
        self._own = OwnProbabilities()

    def which_are_forced(self, run: Sequence[int]) -> list[bool]:
        """Return whether each token of a run that follows the answer must come there.

        Empty if no alternatives are asked for.
        """
        if not self._count:
            return []
        return [bool(self._walk.forced_after(run[:index])) for index in range(len(run))]

    def of(self, tokens: Sequence[int], certain: Sequence[bool], rows: Rows) -> Alternatives:
        """Return the most likely tokens instead of each emitted one, if asked for.

        `rows` has the logits that each was drawn by. A forced token, which is `certain` whoever
        drafted it, has itself as its only alternative.
        """
        alternatives: list[tuple[Alternative, ...]] = []
        for index, token in enumerate(tokens if self._count else ()):
            if certain[index]:
                alternatives += self.of_certain([token])
            else:
                likely = self._own.likeliest(rows[index], token, self._count)
                alternatives.append(
                    tuple([(other, self._piece(other), share) for other, share in likely])
                )
        return tuple(alternatives)

    def of_certain(self, tokens: Sequence[int]) -> Alternatives:
        """Return forced tokens as their own only alternatives, if alternatives are asked for."""
        if not self._count:
            return ()
        return tuple([((token, self._piece(token), 1.0),) for token in tokens])
