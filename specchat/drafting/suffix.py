"""The suffix drafter: drafts what followed an earlier occurrence of the last tokens.

It needs no model pass. A suffix automaton (Blumer et al. 1985) over the prompt and all generated
tokens grows by one token in amortised constant time. Its last suffix link is the longest suffix of
the text that occurred before, so no search is needed. Continuations are counted at each state. A
draft follows the most frequent ones, with a confidence from their counts and the length of the
match (SuffixDecoding, Oliaro et al. 2024, arXiv 2411.04975, which uses a suffix tree).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import chain
from operator import itemgetter
from typing import Final, NamedTuple

from specchat.decoding.distribution import Distribution
from specchat.decoding.ports import Drafter, DraftTask, Pacer
from specchat.decoding.proposal import Branch, DraftToken, Hint
from specchat.drafting.factory import Materials

ORIGIN: Final = "suffix"
ROOT, NOWHERE = 0, -1
NUM_COUNTED = 8
"""Continuations are counted for this many suffixes of the text, the longest first, so that the time
per token stays bounded where a text repeats one token."""
SHORT_MATCH = 3.0
"""After a match of this length, a continuation seen once has an even chance of recurring."""
SURE_MATCH = 3
"""The rest of a copied passage takes precedence over shorter matches."""
LONGEST_LINE = 3
"""How many tokens of another continuation are offered beside a draft."""


class NextToken(NamedTuple):
    """A token that may come next, with a confidence from 0 to 1.

    `length` is the length of the match that it followed, `position` its index in the text, and
    `state` that of the automaton before it, NOWHERE if it was not found there.
    """

    token: int
    confidence: float
    length: int
    position: int
    state: int = NOWHERE


@dataclass(slots=True)
class _SuffixState:
    """A set of passages that end at the same positions; `end` is the first of these.

    The longest passage has `length` tokens.
    """

    length: int
    end: int
    link: int = NOWHERE
    follow: dict[int, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    total: int = 0
    likeliest: int = NOWHERE

    def count(self, token: int) -> None:
        """Count one more continuation by this token."""
        self.total += 1
        self.counts[token] = seen = self.counts.get(token, 0) + 1
        if self.likeliest == NOWHERE or seen >= self.counts[self.likeliest]:
            self.likeliest = token  # the latest among equals

    def likeliest_to_follow(self, length: int) -> tuple[int, float]:
        """Return the most likely token to follow a match of this length, and its odds.

        The odds grow with the length. The token is NOWHERE if no continuation is known.
        """
        token = self.likeliest
        if token != NOWHERE:
            seen = self.counts[token]
            return token, seen / (self.total + 1 - seen) * length / SHORT_MATCH
        if len(self.follow) == 1:  # uncounted, but the only one
            return next(iter(self.follow)), length / SHORT_MATCH
        return NOWHERE, 0.0


class SuffixAutomaton:
    """All passages of a growing text, with their continuations.

    There are at most twice as many states as tokens.
    """

    def __init__(self) -> None:
        self._states = [_SuffixState(0, NOWHERE)]
        self._last = ROOT

    def append(self, token: int) -> None:
        """Add one token to the text, in amortised constant time."""
        self._count(token)
        states = self._states
        new, index = len(states), self._last
        length = states[self._last].length
        states.append(_SuffixState(length + 1, end=length))
        # suffixes that this token never followed before lead to the whole text from now on
        while index != NOWHERE and token not in states[index].follow:
            states[index].follow[token] = new
            index = states[index].link
        states[new].link = ROOT if index == NOWHERE else self._split(index, token)
        self._last = new

    def continuation(self, limit: int) -> Iterator[NextToken]:
        """Return up to `limit` tokens that may come next, possibly none.

        They follow the suffix that occurred before and has the most likely next token, the longest
        one among equals. The text must not grow during the iteration.
        """
        best, best_odds, states = NOWHERE, 0.0, self._states
        index = states[self._last].link
        for _ in range(NUM_COUNTED):
            if index <= ROOT:
                break
            state = states[index]
            _, odds = state.likeliest_to_follow(state.length)
            if odds > best_odds:
                best, best_odds = index, odds
            index = state.link
        return iter(()) if best == NOWHERE else self._walk(best, limit)

    def others(self, next_token: NextToken, count: int) -> Iterator[list[tuple[int, float]]]:
        """Yield other continuations in the place of a token found here, up to `count`.

        Each consists of a few tokens with a confidence; that of the first is its chance if the
        token found here is wrong. Continuations of long matches come first. A passage that occurred
        only once has no others, so shorter suffixes of it are looked at, too.
        """
        index, seen = next_token.state, {next_token.token}
        for _ in range(NUM_COUNTED if index != NOWHERE else 0):
            state = self._states[index]
            trust = state.length / (state.length + SHORT_MATCH)
            left = state.total + 1 - sum([state.counts.get(token, 0) for token in seen])
            likely = nlargest(len(seen) + count, state.counts.items(), key=itemgetter(1))
            for token, times in likely:
                if token in seen or token < 0:
                    continue
                if len(seen) > count:
                    return
                seen.add(token)
                follower = self._walk(state.follow[token], LONGEST_LINE - 1)
                rest = [(later.token, later.confidence) for later in follower]
                yield [(token, times / left * trust), *rest]
            index = state.link
            if index <= ROOT:
                return

    def _walk(self, index: int, limit: int) -> Iterator[NextToken]:
        """Follow the most likely continuations of a state."""
        states, first = self._states, self._states[index].length
        for length in range(first, first + limit):
            token, odds = states[index].likeliest_to_follow(length)
            if token < 0:  # nothing, or a cell of an image
                break
            before, index = index, states[index].follow[token]
            yield NextToken(token, odds / (1.0 + odds), length, states[index].end, before)

    def _count(self, token: int) -> None:
        """Count the token as a continuation of the longest suffixes of the text."""
        index = self._last
        for _ in range(NUM_COUNTED):
            if index == NOWHERE:
                return
            self._states[index].count(token)
            index = self._states[index].link

    def _split(self, index: int, token: int) -> int:
        """Return the state of the longest earlier passage that the text now ends with."""
        states = self._states
        successor = states[index].follow[token]
        # the passage is its state's longest one, so all of the state's passages end here
        if states[successor].length == states[index].length + 1:
            return successor
        # only its shorter passages end here, too: a clone with the same continuations has them
        clone, original = len(states), states[successor]
        states.append(
            _SuffixState(
                states[index].length + 1,
                original.end,
                original.link,
                dict(original.follow),
                dict(original.counts),
                original.total,
                original.likeliest,
            )
        )
        original.link = clone
        while index != NOWHERE and states[index].follow.get(token) == successor:
            states[index].follow[token] = clone
            index = states[index].link
        return clone


class SuffixDrafter(Drafter):
    """Proposes what followed the last tokens of the text when they occurred before.

    If the text leaves a copied passage with a different token, and no continuation of that token is
    known, the draft resumes the passage after the replaced token, as in an edited copy.
    """

    def __init__(self) -> None:
        self._automaton = SuffixAutomaton()
        self._text: list[int] = []
        self._hinted: list[NextToken] = []
        self._next: Iterator[NextToken] = iter(())
        self._left_at = NOWHERE
        self._num_taken = self._num_siblings = 0
        self._has_branches = False

    def begin(self, task: DraftTask) -> None:
        """Append the prompt, or only its new part if it continues the text so far."""
        self._has_branches = task.has_branches
        num_read = len(self._text)
        if list(task.tokens[:num_read]) != self._text:
            self._automaton, self._text, num_read = SuffixAutomaton(), [], 0
        self._left_at = NOWHERE
        self._extend(task.tokens[num_read:])

    def propose(self, pacer: Pacer, rival: str | None = None) -> list[DraftToken]:
        """Propose the likeliest continuation as far as it pays; nothing if `rival` promises more.

        `rival` is the origin of a drafter that makes draft passes.
        """
        self._hinted, self._next = [], self._continuation(pacer.room)
        self._num_taken = pacer.take(ORIGIN, self._hints(), rival)
        self._num_siblings = pacer.num_siblings if self._has_branches and self._hinted else 0
        return [
            DraftToken(next_token.token, Distribution.certain(next_token.token), ORIGIN)
            for next_token in self._hinted[: self._num_taken]
        ]

    def branches(self) -> list[Branch]:
        """Return other continuations of the same passages, a few tokens of each."""
        branches: list[Branch] = []
        if not self._num_siblings:
            return branches
        for fork, next_token in enumerate(self._hinted[: self._num_taken + 1]):
            for line in self._automaton.others(next_token, self._num_siblings):
                behind = -1
                for token, confidence in line:
                    branches.append(Branch(token, fork, ORIGIN, confidence, behind))
                    behind = len(branches) - 1
        return branches

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Append the emitted tokens to the text."""
        del num_accepted
        self._left_at = NOWHERE
        followed, last = chain(self._hinted, self._next), len(emitted) - 1
        for at, (next_token, token) in enumerate(zip(followed, emitted, strict=False)):
            if next_token.token != token:
                if at == last and next_token.length >= SURE_MATCH:
                    self._left_at = next_token.position + 1
                break
        self._hinted, self._next = [], iter(())  # the next step may be another drafter's
        self._extend(emitted)

    def _hints(self) -> Iterator[Hint]:
        """Yield a hint for each token found; the pacer mostly asks for one only."""
        for next_token in self._next:
            self._hinted.append(next_token)
            yield Hint(next_token.confidence, Distribution.certain(next_token.token))

    def _continuation(self, limit: int) -> Iterator[NextToken]:
        """Yield the tokens that may come next, from the left passage or a longer match."""
        continuation = self._automaton.continuation(limit)
        if self._left_at == NOWHERE:
            return continuation
        first = next(continuation, None)
        if first is None or first.length < SURE_MATCH:
            return self._rest_of_passage(limit)
        return chain((first,), continuation)

    def _rest_of_passage(self, limit: int) -> Iterator[NextToken]:
        """Yield the rest of the left passage after the replaced token."""
        tokens = self._text[self._left_at : self._left_at + limit]
        for length, token in enumerate(tokens, 1):
            if token < 0:  # a cell of an image
                return
            confidence = length / (length + SHORT_MATCH)
            yield NextToken(token, confidence, length, self._left_at + length - 1)

    def _extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._automaton.append(token)
        self._text.extend(tokens)


def make(_: Materials) -> SuffixDrafter:
    """Return a suffix drafter."""
    return SuffixDrafter()
