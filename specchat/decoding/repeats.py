"""Whether an answer says the same passage over and over, as models in a loop do.

Drafts of such a passage are nearly always right, so a speedup there says nothing of other text.
"""

from collections.abc import Iterable

LEAST_TIMES = 3
"""A passage said as many times in direct succession repeats itself; lists and code seldom do."""
LEAST_TOKENS = 32
"""Tokens that have to repeat: the rows of a table or a line of dashes are no loop."""
GRAM = 4
"""A repetition is looked for where the last tokens, as many, were said before."""


class Repeats:
    """Follows an answer token by token.

    A passage repeats while each token is the one a fixed distance back. The distance is that to the
    last place where the last few tokens were said, kept as long as it holds.
    """

    def __init__(self, begun: Iterable[int] = ()) -> None:
        """Begin with the tokens that the answer begins with."""
        self._tokens: list[int] = []
        self._places: dict[tuple[int, ...], int] = {}
        self._distance = self._num_same = 0
        self.add(begun)

    def add(self, tokens: Iterable[int]) -> bool:
        """Add the tokens of a step; return True if they repeat what was said several times."""
        for token in tokens:
            self._add(token)
        num_needed = max((LEAST_TIMES - 1) * self._distance, LEAST_TOKENS)
        return self._distance > 0 and self._num_same > num_needed

    def _add(self, token: int) -> None:
        known = self._tokens
        goes_on = self._distance > 0 and known[-self._distance] == token
        known.append(token)
        gram = tuple(known[-GRAM:])
        if goes_on:
            self._num_same += 1
        else:
            place = self._places.get(gram, len(known))
            self._distance, self._num_same = len(known) - place, GRAM
        self._places[gram] = len(known)
