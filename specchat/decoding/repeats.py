"""Whether an answer says the same passage over and over, as models in a loop do.

Drafts of such a passage are nearly always right, so a speedup there says nothing of other text.
"""

import re
from collections.abc import Hashable, Iterable

LEAST_TIMES = 3
"""A passage said as many times in direct succession repeats itself; lists and code seldom do."""
LEAST_TOKENS = 32
"""Tokens that have to repeat: the rows of a table or a line of dashes are no loop."""
GRAM = 4
"""A repetition is looked for where the last tokens, as many, were said before."""
UNIT = re.compile(r"\s?\w{1,8}|\s{1,8}|[^\w\s]{1,8}")
"""What counts as a token in a text that comes without them: words are about as long."""


class Repeats:
    """Follows an answer token by token.

    A passage repeats while each token is the one a fixed distance back. The distance is that to the
    last place where the last few tokens were said, kept as long as it holds.
    """

    def __init__(self, begun: Iterable[Hashable] = ()) -> None:
        """Begin with the tokens that the answer begins with."""
        self._tokens: list[Hashable] = []
        self._places: dict[tuple[Hashable, ...], int] = {}
        self._distance = self._num_same = 0
        self.add(begun)

    def add(self, tokens: Iterable[Hashable]) -> int:
        """Add the tokens of a step; return how many in a row repeat what was said before.

        That is 0 unless they are enough, and it was said several times.
        """
        for token in tokens:
            self._add(token)
        num_needed = max((LEAST_TIMES - 1) * self._distance, LEAST_TOKENS)
        return self._num_same if self._distance > 0 and self._num_same > num_needed else 0

    def _add(self, token: Hashable) -> None:
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


class TextRepeats:
    """Follows an answer whose tokens are not known, such as one that a server writes."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._repeats = Repeats()
        self._held = ""

    def add(self, text: str) -> int:
        """Add a part of the text, cut anywhere; return about as many as `Repeats.add` would."""
        self._held += text
        *whole, last = ["", *UNIT.findall(self._held)]
        self._held = last  # it may go on
        return self._repeats.add(whole[1:])
