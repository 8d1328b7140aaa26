"""The suffix drafter: what followed the last time this passage came up. It costs no model pass.

A suffix automaton (Blumer et al. 1985) over the prompt and everything generated grows by one token
in amortised constant time, and its last suffix link is the longest end of the text that stood
somewhere before: no search is needed. Continuations are counted at each state, and a draft follows
the most frequent ones as far as the length of the match and their share allow (SuffixDecoding,
Oliaro et al. 2024, arXiv 2411.04975).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specchat.decoding.distribution import Distribution
from specchat.decoding.ports import Task, TellProgress
from specchat.decoding.proposal import NOTHING, DraftToken, Proposal

__all__ = ["SuffixAutomaton", "SuffixDrafter"]

ROOT, NOWHERE = 0, -1
NUM_COUNTED = 8
"""Continuations are counted for so many ends of the text, the longest first: the time per token
stays bounded where a text repeats one token over and over."""
LEAST_SHARE = 0.1
"""A draft goes on while the product of the shares of its continuations is at least this."""


@dataclass(slots=True)
class _State:
    """A set of passages that end at the same places; the longest has `length` tokens."""

    length: int
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
            self.likeliest = token  # of equals the latest: texts go on as they just did


class SuffixAutomaton:
    """All passages of a growing text, with what followed them."""

    def __init__(self) -> None:
        """Start with an empty text."""
        self._states = [_State(0)]
        self._last = ROOT

    @property
    def match_length(self) -> int:
        """The length of the longest end of the text that also stands somewhere before."""
        link = self._states[self._last].link
        return 0 if link == NOWHERE else self._states[link].length

    @property
    def num_states(self) -> int:
        """The number of states, at most twice the number of tokens."""
        return len(self._states)

    def append(self, token: int) -> None:
        """Add one token to the text, in amortised constant time."""
        self._count(token)
        states = self._states
        new, place = len(states), self._last
        states.append(_State(states[self._last].length + 1))
        while place != NOWHERE and token not in states[place].follow:
            states[place].follow[token] = new
            place = states[place].link
        states[new].link = ROOT if place == NOWHERE else self._split(place, token)
        self._last = new

    def continuation(self, limit: int) -> list[int]:
        """Return the tokens that probably come next, at most `limit`, perhaps none.

        Of the ends of the text that stood there before, the one whose continuation promises most
        accepted tokens counts, the longest of equals.
        """
        best: list[int] = []
        best_score = 0.0
        place = self._states[self._last].link
        for _ in range(NUM_COUNTED):
            if place in {ROOT, NOWHERE}:
                break
            draft, score = self._walk(place, min(limit, self._states[place].length))
            if score > best_score:
                best, best_score = draft, score
            place = self._states[place].link
        return best

    def _walk(self, place: int, limit: int) -> tuple[list[int], float]:
        """Follow the likeliest continuations; the score is the sum of their shares' products."""
        draft: list[int] = []
        share, score = 1.0, 0.0
        while len(draft) < limit:
            state = self._states[place]
            if state.likeliest != NOWHERE:
                token = state.likeliest
                share *= state.counts[token] / state.total
            elif len(state.follow) == 1:  # too deep to have been counted, but there is no doubt
                (token,) = state.follow
            else:
                break
            if share < LEAST_SHARE:
                break
            draft.append(token)
            score += share
            place = state.follow[token]
        return draft, score

    def _count(self, token: int) -> None:
        """Count the token as a continuation of the longest ends of the text."""
        place = self._last
        for _ in range(NUM_COUNTED):
            if place == NOWHERE:
                return
            self._states[place].count(token)
            place = self._states[place].link

    def _split(self, place: int, token: int) -> int:
        """Return the state of the longest earlier passage that the text now ends with."""
        states = self._states
        found = states[place].follow[token]
        if states[found].length == states[place].length + 1:
            return found
        clone, original = len(states), states[found]
        states.append(
            _State(
                states[place].length + 1,
                original.link,
                dict(original.follow),
                dict(original.counts),
                original.total,
                original.likeliest,
            )
        )
        original.link = clone
        while place != NOWHERE and states[place].follow.get(token) == found:
            states[place].follow[token] = clone
            place = states[place].link
        return clone


class SuffixDrafter:
    """Proposes what followed the last time the text ended as it ends now."""

    def __init__(self) -> None:
        """Start knowing nothing."""
        self._automaton = SuffixAutomaton()
        self._text: list[int] = []

    def begin(self, task: Task, tell: TellProgress | None = None) -> None:
        """Take in the prompt; what a conversation already said is not taken in again."""
        del tell
        known = len(self._text)
        if list(task.tokens[:known]) != self._text:
            self._automaton, self._text, known = SuffixAutomaton(), [], 0
        self._extend(task.tokens[known:])

    def propose(self, limit: int) -> Proposal:
        """Propose the likeliest continuation, certain of each token as far as verification goes."""
        tokens = self._automaton.continuation(limit)
        if not tokens:
            return NOTHING
        return Proposal(
            tuple(DraftToken(token, Distribution.certain(token), "suffix") for token in tokens)
        )

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Take in what the step added."""
        del num_accepted
        self._extend(emitted)

    def close(self) -> None:
        """Keep the automaton: the next question of this conversation begins with the same text."""

    def _extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._automaton.append(token)
        self._text.extend(tokens)
