"""Names of special tokens in messages, which stay text when a chat template renders them."""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from specchat.llama.tokenizer import Vocabulary
from specchat.prompts.prompt_room import PromptRoom

PLACEHOLDER = "zq{}qy"
"""ASCII, so that it survives JSON and Python's `repr`; numbered so that no message contains it."""
STRUCTURE = ("role", "type", "id", "tool_call_id")
"""Fields of messages and tools whose values a template may compare with its own words."""
WORD = re.compile(r"[\w-]*")


class QuotedNames:
    """Names of special tokens in messages, replaced by placeholders while the template renders.

    Otherwise a piped-in file could end its turn and continue in another role.
    """

    def __init__(
        self, vocabulary: Vocabulary, template: str, texts: Sequence[str], room: PromptRoom
    ) -> None:
        """Find the names in all texts of messages, tools and variables.

        Raises ContextFull if the `room` is not enough for them; not all are looked at then.
        """
        self._vocabulary = vocabulary
        names = set[str]()
        for tokens in room.tokens_of(texts):
            names |= vocabulary.names_of(tokens, template)
        self._names = sorted(names, key=len, reverse=True)
        used = "\n".join([template, *texts]) if names else ""
        marks = map(PLACEHOLDER.format, count())
        self._mark = next(mark for mark in marks if mark not in used)

    def hidden(self, value: Any) -> Any:
        """Return messages or tools with a placeholder for each special token's name in them.

        Words that the message format requires stay, whatever tokens a vocabulary has.
        """
        return self._hidden(value) if self._names else value

    def hidden_everywhere(self, value: Any) -> Any:
        """Return a nested value with a placeholder for each special token's name, in keys too."""
        return _mapped(value, self._hide)

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a rendered text; the hidden names are tokenized as plain text."""
        first, *others = re.split(f"{self._mark}([0-9]+){self._mark}", text)
        tokens = self._vocabulary.tokenize(first, add_special=False, parse_special=True)
        for number, rest in zip(others[::2], others[1::2], strict=True):
            tokens += self._vocabulary.tokenize_literally(self._names[int(number)])
            tokens += self._vocabulary.tokenize_more(rest, parse_special=True)
        return tokens

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {self._hide_unless_word(key): self._field(key, value[key]) for key in value}
        if isinstance(value, list | tuple):
            return [self._hidden(item) for item in value]
        return self._hide(value) if isinstance(value, str) else value

    def _field(self, key: str, value: Any) -> Any:
        if key in STRUCTURE and isinstance(value, str):
            return self._hide_unless_word(value)
        # a model wrote the arguments, including their names
        return _mapped(value, self._hide) if key == "arguments" else self._hidden(value)

    def _hide_unless_word(self, text: str) -> str:
        return text if WORD.fullmatch(text) else self._hide(text)

    def _hide(self, content: str) -> str:
        """Return a text with a placeholder for each special token's name in it."""
        for number, name in enumerate(self._names):
            content = content.replace(name, f"{self._mark}{number}{self._mark}")
        return content


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return a nested value with every string changed, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key): _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(item, change) for item in value]
    return value


def texts_in(value: Any) -> list[str]:
    """Return every string in a nested value."""
    texts: list[str] = []

    def note(text: str) -> str:
        texts.append(text)
        return text

    _mapped(value, note)
    return texts
