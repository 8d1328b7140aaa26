"""A toy language model whose exact distribution is known; tests use it in place of llama.cpp.

It ships for anyone who writes a drafter: decoding with any drafter must reproduce the toy's own
distribution, within a toy grammar too.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import takewhile
from typing import TypeAlias

import numpy as np

from specchat.decoding.constraint import Mask
from specchat.decoding.distribution import Logits
from specchat.decoding.ports import PromptProgress, Rows
from specchat.errors import InvalidOption

LogitsAfter: TypeAlias = Callable[[Sequence[int]], Logits]
"""The logits after a text, given as its tokens."""


def random_logits(vocabulary: int, seed: int, scale: float = 1.5, order: int = 2) -> LogitsAfter:
    """Return a model whose logits depend on the last `order` tokens, fixed by the seed."""
    table = np.random.default_rng(seed).normal(0.0, scale, size=(vocabulary,) * (order + 1))
    table = table.astype(np.float32)

    def after(tokens: Sequence[int]) -> Logits:
        recent = tuple(tokens[-order:])
        row: Logits = table[(0,) * (order - len(recent)) + recent]
        return row

    return after


def scripted_logits(vocabulary: int, script: Sequence[int]) -> LogitsAfter:
    """Return a model that always continues a text of n tokens with the script's token n."""

    def after(tokens: Sequence[int]) -> Logits:
        row = np.zeros(vocabulary, dtype=np.float32)
        row[script[len(tokens) % len(script)]] = 50.0
        return row

    return after


class ToyLanguageModel:
    """A LanguageModel made of a logits function, strict about how its memory is used.

    `ledger` lists every evaluation and rollback as ("evaluate" | "rollback", length afterwards).
    `branches` has the text up to each branch of the last pass, that token included, until `keep` is
    called.
    """

    def __init__(
        self, logits_after: LogitsAfter, capacity: int = 4096, most_branches: int = 0
    ) -> None:
        """Start with an empty memory for up to `capacity` tokens."""
        self.tokens: list[int] = []
        self.branches: list[list[int]] = []
        self.most_branches, self.num_waiting = most_branches, 0
        self.ledger: list[tuple[str, int]] = []
        self._logits_after = logits_after
        self.capacity = capacity
        self._marks: list[int] = []

    @property
    def length(self) -> int:
        """The number of tokens in the memory."""
        return len(self.tokens)

    def count_known(self, tokens: Sequence[int]) -> int:
        """Return how many leading tokens of this text are in the memory."""
        pairs = zip(self.tokens, tokens, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def prefill(self, tokens: Sequence[int], on_progress: PromptProgress | None = None) -> int:
        """Make the memory hold exactly these tokens; return how many it already held."""
        num_cached = self.count_known(tokens)
        self.tokens = list(tokens)
        self._marks = [len(tokens)]
        if on_progress:
            on_progress(len(tokens), len(tokens))
        return num_cached

    def mark(self) -> None:
        """Allow rolling back to here."""
        self._marks.append(len(self.tokens))

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Append tokens; return the logits after each of the last `num_rows`."""
        if self.branches:
            raise ValueError("what was kept of the last pass is not said")
        if not tokens or len(self.tokens) + len(tokens) > self.capacity:
            raise ValueError("no tokens" if not tokens else "the toy's memory is full")
        self.tokens.extend(tokens)
        self.ledger.append(("evaluate", len(self.tokens)))
        ends = range(len(self.tokens) - num_rows + 1, len(self.tokens) + 1)
        return [self._logits_after(self.tokens[:end]) for end in ends]

    def evaluate_tree(
        self, tokens: Sequence[int], branches: Sequence[tuple[int, int]], num_rows: int
    ) -> Rows:
        """Append tokens, and branches beside them; return the logits after each."""
        if not 0 < len(branches) <= self.most_branches:
            raise ValueError(f"{len(branches)} branches")
        if len(self.tokens) + len(tokens) + len(branches) > self.capacity:
            raise ValueError("the toy's memory is full")
        rows = list(self.evaluate(tokens, num_rows))
        first = len(self.tokens) - num_rows + 1
        for token, row in branches:
            is_behind = row >= num_rows
            before = self.branches[row - num_rows] if is_behind else self.tokens[: first + row]
            self.branches.append([*before, token])
            rows.append(self._logits_after(self.branches[-1]))
        return rows

    def keep(self, length: int, branches: Sequence[int]) -> None:
        """Keep a text that ends with these branches; ValueError unless they follow one another."""
        ends, self.branches = [self.branches[number] for number in branches], []
        shorter = length - len(ends)
        self.rollback(shorter)
        for end in ends:
            if end[:-1] != self.tokens:
                raise ValueError("a branch does not follow what is kept")
            self.tokens.append(end[-1])

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens; ValueError for a length that no mark allows."""
        if self.branches:
            raise ValueError("what was kept of the last pass is not said")
        if length == len(self.tokens):
            return
        self._marks = [mark for mark in self._marks if mark <= length]
        if length > len(self.tokens) or not self._marks:
            raise ValueError(f"cannot roll back from {len(self.tokens)} to {length} tokens")
        del self.tokens[length:]
        self.ledger.append(("rollback", length))


class ToyGrammar:
    """A Constraint: a finite automaton over tokens, strict about how it is used.

    `rules[state]` maps the tokens that may come to the states they lead to. The answer may end in
    the `final` states; where no rule leads on, it must.
    """

    def __init__(
        self,
        rules: Sequence[Mapping[int, int]],
        final: Collection[int] = (),
        end_tokens: Collection[int] = (),
        vocabulary: int = 5,
    ) -> None:
        """Begin in state 0."""
        self._rules, self._final = rules, final
        self._masks = [
            Mask.of([*rule, *(end_tokens if state in final else ())], vocabulary)
            for state, rule in enumerate(rules)
        ]
        self._states = [0]

    @property
    def state(self) -> int:
        """The state that the tokens so far have led to."""
        return self._states[-1]

    @property
    def is_over(self) -> bool:
        """Whether nothing may follow."""
        return not self._rules[self.state]

    @property
    def is_complete(self) -> bool:
        """Whether the answer may end here."""
        return self.state in self._final

    def mask(self) -> Mask:
        """Return the tokens that may come next."""
        return self._masks[self.state]

    def forced(self) -> Sequence[int]:
        """Return the tokens that must come next; the rules must not force an endless run."""
        tokens, state = [], self.state
        while len(self._rules[state]) == 1 and state not in self._final:
            ((token, state),) = self._rules[state].items()
            tokens.append(token)
        return tokens

    def push(self, token: int) -> None:
        """Follow a token; InvalidOption if there is no rule for it."""
        if token not in self._rules[self.state]:
            raise InvalidOption(f"token {token} may not come in state {self.state}")
        self._states.append(self._rules[self.state][token])

    def pop(self, count: int) -> None:
        """Take tokens back; ValueError for more than there are."""
        if not 0 <= count < len(self._states):
            raise ValueError(f"cannot take {count} tokens back")
        del self._states[len(self._states) - count :]
