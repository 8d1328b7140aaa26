"""The constraint of a grammar, followed by llguidance."""

from collections import deque
from collections.abc import Sequence

import numpy as np
from llguidance import LLMatcher

from specchat.decoding.constraint import Mask
from specchat.errors import EngineFailed, InvalidOption
from specchat.structured.grammar_source import Grammar, one_line
from specchat.structured.grammar_vocabulary import GrammarVocabulary
from specchat.structured.schema_faults import LIMITS

NUM_KEPT = 64
"""How many tokens can be taken back without following the answer from its beginning again."""


class GrammarConstraint:
    """A Constraint that allows the texts of a grammar.

    Tokens are taken back by returning to a copy of the matcher made before them, which takes 3
    microseconds. llguidance's own rollback (1.9.1) leaves something behind: after a mask in one
    property of an object and a rollback, the masks in another property were those of the first.

    Where a grammar becomes too complex for llguidance, `mask` and `push` raise EngineFailed, so
    that nothing is allowed unchecked. Taking tokens back to an earlier place makes it usable again.
    """

    def __init__(
        self, grammar: Grammar, vocabulary: GrammarVocabulary, initial: LLMatcher | None = None
    ) -> None:
        """Compile a grammar, unless it is given compiled. Raises InvalidOption if that fails."""
        self._grammar, self._vocabulary = grammar, vocabulary
        self._initial = initial or _compiled(grammar, vocabulary)
        self._matcher = self._initial.deep_copy()
        self._tokens: list[int] = []
        self._before: deque[LLMatcher] = deque(maxlen=NUM_KEPT)

    def restarted(self) -> "GrammarConstraint":
        """Return a constraint of the same grammar at the beginning of a text."""
        return GrammarConstraint(self._grammar, self._vocabulary, self._initial)

    def mask(self) -> Mask:
        """Return the tokens that may come next."""
        bits = self._matcher.compute_bitmask()
        self._require_no_error()
        return Mask(np.frombuffer(bits, dtype=np.uint32))

    def forced(self) -> Sequence[int]:
        """Return the tokens that must come next, in order; none where there is a choice."""
        if self.is_over:
            return ()
        tokens, ends = self._matcher.compute_ff_tokens(), self._vocabulary.end_tokens
        # an end token is never followed, so the run stops before it
        first_end = next((index for index, token in enumerate(tokens) if token in ends), None)
        return tokens[:first_end]

    def push(self, token: int) -> None:
        """Follow a token that the mask allows. Raises InvalidOption for another one."""
        is_text = 0 <= token < self._vocabulary.size and token not in self._vocabulary.end_tokens
        before = self._matcher.deep_copy()
        if not is_text or self.is_over or not self._matcher.try_consume_tokens([token]):
            self._require_no_error()
            raise InvalidOption(f"token {token} is not allowed after {len(self._tokens)} others")
        self._tokens.append(token)
        self._before.append(before)

    def pop(self, count: int) -> None:
        """Take the last `count` tokens back."""
        if not count and not self._matcher.is_error():
            return
        del self._tokens[len(self._tokens) - count :]
        if 0 < count <= len(self._before):
            for _ in range(count):
                self._matcher = self._before.pop()
        else:  # a matcher that gave up stays so
            self._before.clear()
            self._matcher = self._initial.deep_copy()
            self._matcher.consume_tokens(self._tokens)

    @property
    def is_over(self) -> bool:
        """Whether only the end may follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def is_complete(self) -> bool:
        """Whether the answer may end here."""
        return self._matcher.is_accepting()

    def _require_no_error(self) -> None:
        """Raise EngineFailed if llguidance gave up."""
        if self._matcher.is_error():
            raise EngineFailed(
                f"the answer became too complex to check ({one_line(self._matcher.get_error())}):"
                " simplify the schema or grammar"
            )


def _compiled(grammar: Grammar, vocabulary: GrammarVocabulary) -> LLMatcher:
    """Return a matcher at the beginning. Raises InvalidOption if llguidance refuses the grammar."""
    matcher = LLMatcher(vocabulary.tokenizer, grammar.text, log_level=0, limits=LIMITS)
    initial = matcher.deep_copy()
    matcher.compute_bitmask()  # where nothing can ever be written, it is only known now
    if matcher.is_error():
        raise grammar.refused(matcher.get_error())
    return initial
