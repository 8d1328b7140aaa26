"""The prediction drafter: drafts from a text that the answer is expected to be like.

OpenAI calls these predicted outputs: a client that asks for a file with one change sends the file.
A cursor follows the answer through the prediction. Where the answer leaves the prediction, the
cursor is moved to just after an occurrence of the answer's last tokens: near its old position, or
anywhere if enough of them match. No model pass is needed. Where the prediction has nothing to
offer, another drafter takes over.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final

from specchat.decoding.distribution import Distribution
from specchat.decoding.ports import Branching, Drafter, DraftTask, Pacer, ReadingDrafter
from specchat.decoding.proposal import Branch, DraftToken, Hint
from specchat.drafter_registry import PREDICTION

LOST: Final = -1
AT_BEGINNING = 3
"""The beginning of an answer counts as a match of this length."""
SHORT_MATCH = 3.0
"""After a match of this length, the next token has an even chance."""
SURE_MATCH = 3
"""After a match of this length, one different token counts as replaced, and the cursor moves on."""
FAR, NEAR = 4, 2
"""The tokens that must match to find the text again anywhere, and near the cursor."""
MEMORY = 0.95
"""The share of the counts that each new token keeps, so about the last 20 tokens count."""
NEAR_TOKENS = 64
"""How many tokens after the cursor count as near: an answer rarely omits a longer passage."""


class PredictionCursor:
    """The position in a prediction that an answer has reached.

    `at` is the index of the token that is expected next, LOST if none is. The `length` tokens
    before it match. `trust` is the share of recent tokens that were as expected, where one was.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        """Expect the first token."""
        self.at = 0 if tokens else LOST
        self.length = AT_BEGINNING
        self._tokens = list(tokens)
        self._num_right = self._num_wrong = 0.0
        self._last = 0  # where the cursor was when the text was left
        self._recent: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = {}
        for end in range(FAR, len(self._tokens)):
            self._ends.setdefault(tuple(self._tokens[end - FAR : end]), []).append(end)

    def expected(self, limit: int) -> Iterator[tuple[int, float]]:
        """Yield up to `limit` tokens that are expected next, with a confidence from 0 to 1."""
        if self.at == LOST:
            return
        for length, token in enumerate(self._tokens[self.at : self.at + limit], self.length):
            yield token, self.trust * length / (length + SHORT_MATCH)

    @property
    def trust(self) -> float:
        """The share of recent tokens that were predicted, from 0 to 1; 1 at the beginning."""
        return (self._num_right + 1) / (self._num_right + self._num_wrong + 1)

    def follow(self, token: int) -> None:
        """Follow the next token of the answer."""
        self._recent = [*self._recent[1 - FAR :], token]
        if self.at != LOST:
            self._count(is_right=self._tokens[self.at] == token)
        if self.at != LOST and self._tokens[self.at] == token:
            self.at, self.length = self.at + 1, self.length + 1
        else:
            was_sure = self.at != LOST and self.length >= SURE_MATCH
            if self.at != LOST:
                self._last = self.at
            self.at, self.length = self._match() or (self.at + 1 if was_sure else LOST, 1)
        if self.at >= len(self._tokens):
            self._last, self.at = len(self._tokens), LOST

    def _count(self, *, is_right: bool) -> None:
        """Count whether a token was as expected; older ones count less."""
        self._num_right = MEMORY * self._num_right + is_right
        self._num_wrong = MEMORY * self._num_wrong + (not is_right)

    def _match(self) -> tuple[int, int] | None:
        """Return the position after the answer's last tokens, and how many match, or None.

        A position near the cursor needs fewer matching tokens. Of several positions the nearest
        counts.
        """
        recent = self._recent
        for count in range(FAR, NEAR - 1, -1):
            if len(recent) < count:
                continue
            last = tuple(recent[-count:])
            ends = self._ends.get(last, ()) if count == FAR else self._near(last)
            if ends:
                return min(ends, key=self._distance), count
        return None

    def _distance(self, position: int) -> int:
        """Return a position's distance from the cursor, doubled where an answer would go back."""
        ahead = position - self._last
        return ahead if ahead >= 0 else -2 * ahead

    def _near(self, last: tuple[int, ...]) -> list[int]:
        """Return the positions near the cursor that these tokens come directly before."""
        count, tokens = len(last), self._tokens
        ends = range(max(count, self._last - count), min(len(tokens), self._last + NEAR_TOKENS))
        newest, before = last[-1], list(last)
        return [
            end for end in ends if tokens[end - 1] == newest and tokens[end - count : end] == before
        ]


class PredictionDrafter(Drafter):
    """Proposes what a prediction has next, or else what another drafter proposes."""

    def __init__(self, prediction: Sequence[int], answer: Sequence[int], other: Drafter) -> None:
        """Draft from a prediction, of which the tokens of `answer` are written already."""
        self._cursor = PredictionCursor(prediction)
        self._other = other
        self._is_others = False  # the last proposal
        for token in answer:
            self._cursor.follow(token)

    @property
    def unfit_reason(self) -> str | None:
        """Why the other drafter's model does not suit this target, None if it may."""
        reason: str | None = getattr(self._other, "unfit_reason", None)
        return reason

    def begin(self, task: DraftTask) -> None:
        """Start the answer."""
        self._other.begin(task)

    def reading(self, is_brief: Callable[[], bool]) -> Generator[None]:
        """Let the other drafter read the prompt."""
        if isinstance(self._other, ReadingDrafter):
            yield from self._other.reading(is_brief)

    def propose(self, pacer: Pacer) -> Sequence[DraftToken]:
        """Propose the tokens that are expected next, as far as they pay."""
        drafted: list[DraftToken] = []
        if self._cursor.at != LOST:
            num_taken = pacer.take(PREDICTION.name, self._hints(pacer.room, drafted))
            del drafted[num_taken:]
        self._is_others = not drafted
        return drafted or self._other.propose(pacer)

    def branches(self) -> Sequence[Branch]:
        """Return the other drafter's branches, if it made the draft."""
        if self._is_others and isinstance(self._other, Branching):
            return self._other.branches()
        return ()

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Follow the answer."""
        for token in emitted:
            self._cursor.follow(token)
        self._other.observe(emitted, num_accepted)

    def _hints(self, limit: int, drafted: list[DraftToken]) -> Iterator[Hint]:
        for token, confidence in self._cursor.expected(limit):
            certain = Distribution.certain(token)
            drafted.append(DraftToken(token, certain, PREDICTION.name))
            yield Hint(confidence, certain)
