"""Refuses a prompt that is far too long before all of it is read, which may take minutes."""

import sys
from collections.abc import Iterable, Iterator, Sequence

from specchat.decoding.request import SHORTER_OR_LARGER
from specchat.errors import ContextFull
from specchat.llama.tokenizer import Vocabulary

FAR = 4
"""Texts of more contexts are refused; of shorter prompts all tokens are counted."""
LONG_TOKEN = 8
"""Characters of a token in a text whose tokens are few."""
AT_ONCE, OVERLAP = 16384, 256
"""Characters of a text that are tokenized at once, and what two such parts have in common: a name
of a special token may lie across their border."""


class PromptRoom:
    """The room that a context of some tokens has for the texts of a prompt."""

    def __init__(self, vocabulary: Vocabulary, capacity: int = sys.maxsize) -> None:
        """Allow for texts that may fit a context, or for any."""
        self._vocabulary, self._capacity = vocabulary, capacity

    def require(self, text: str) -> None:
        """Raise ContextFull for a text that is far too long."""
        if len(text) > self._capacity:
            for _ in self.tokens_of([text]):
                pass

    def tokens_of(self, texts: Iterable[str]) -> Iterator[Sequence[int]]:
        """Yield the tokens of texts, part by part; a special token's name is that token.

        Raises ContextFull as soon as they are clearly too many.
        """
        count = 0
        for text in texts:
            for begin in range(0, max(1, len(text)), AT_ONCE):
                part = text[begin : begin + AT_ONCE + OVERLAP]
                tokens = self._vocabulary.tokenize(part, add_special=False, parse_special=True)
                yield tokens
                count += max(1, len(tokens))
                if count > FAR * self._capacity:
                    raise too_long(count, self._capacity, is_all=False)


def too_long(count: int, capacity: int, *, is_all: bool = True) -> ContextFull:
    """Return the error for a prompt of so many tokens, or more if that is not all."""
    more = "" if is_all else "more than "
    error = ContextFull(
        f"the prompt has {more}{count} tokens and the context holds {capacity}: {SHORTER_OR_LARGER}"
    )
    error.num_tokens, error.capacity, error.is_all = count, capacity, is_all
    return error
