"""The tokens that were likely in the place of each emitted one, for answers that ask for them."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from specchat.decoding.chunk import Alternative
from specchat.decoding.constraint import Walk
from specchat.decoding.own_probabilities import OwnProbabilities
from specchat.decoding.ports import Rows

Alternatives: TypeAlias = tuple[tuple[Alternative, ...], ...]


class LikelyTokens:
    """Up to `count` tokens for each place, with their texts and the model's own probabilities."""

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
        """Return the most likely tokens in the place of each emitted one, if asked for.

        `rows` has the logits in each place. In that of a forced token, whoever drafted it, it is
        the only one.
        """
        found: list[tuple[Alternative, ...]] = []
        for index, token in enumerate(tokens if self._count else ()):
            if certain[index]:
                found += self.of_certain([token])
            else:
                likely = self._own.likeliest(rows[index], token, self._count)
                found.append(tuple([(each, self._piece(each), share) for each, share in likely]))
        return tuple(found)

    def of_certain(self, tokens: Sequence[int]) -> Alternatives:
        """Return tokens as the only ones in their places, if alternatives are asked for."""
        if not self._count:
            return ()
        return tuple([((token, self._piece(token), 1.0),) for token in tokens])
