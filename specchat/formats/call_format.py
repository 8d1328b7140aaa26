"""How a model writes tool calls, described once for both sides.

`call_grammar.py` makes the grammar that enforces calls from this description, `call_reading.py` the
reader that recognizes them. `call_learning.py` learns it from a template.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Tools: TypeAlias = Sequence[Mapping[str, Any]]

KEY_AGAIN, ANY_ID, ANY_INDEX, ANY_NAME = "\0", "\x01", "\x02", "\x03"
"""Stand in a call's text for an argument's key, the call's id, its number, any function's name."""
PLACES = re.compile(f"([{KEY_AGAIN}{ANY_ID}{ANY_INDEX}{ANY_NAME}])")
JSON_TYPES = ("string", "number", "boolean", "null", "object", "array")
PYTHON_WORDS: Mapping[str, str] = {"True": "true", "False": "false", "None": "null"}


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed call; valid only if `arguments` is an object."""

    name: str
    arguments: Any
    id: str = ""


Parser: TypeAlias = Callable[[str, Tools], list[Call] | None]
"""Parses a text with its marks into calls; returns None or raises on failure."""


@dataclass(frozen=True, slots=True)
class ArgumentText:
    """How arguments are written one by one: the texts around keys and values.

    `first` stands before the first key, `following` before each other one, `none` in place of all.
    `before` stands between key and value and `after` behind the value, by the value's JSON type;
    `KEY_AGAIN` in them stands for the key. A type that is missing cannot be written. A string is
    plain text that ends where `after` begins, or in `quotes` as in Python. With `has_words`,
    booleans and null are Python's. With `is_sorted`, arguments are in the order of their names, not
    in that of the schema. With `is_nested`, objects are written in the same way as all
    arguments, between braces, and arrays in brackets; otherwise both are JSON.
    """

    first: str
    following: str
    none: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    quotes: str = ""
    has_words: bool = False
    is_sorted: bool = False
    is_nested: bool = False


def for_types(text: str) -> dict[str, str]:
    """Return the same text for every JSON type."""
    return dict.fromkeys(JSON_TYPES, text)


@dataclass(frozen=True, slots=True)
class CallText:
    """The text of calls: `begin`, name, arguments, `between` with another call, and so on, `end`.

    Before all calls, an answer has `lead`. `named` stands between a name and arguments in JSON,
    whose separators are `comma` and `colon`; they are `arguments` in other forms. `between` is None
    if an answer has one call only.
    """

    begin: str
    end: str
    between: str | None = None
    named: str = ""
    arguments: ArgumentText | None = None
    lead: str = ""
    comma: str = ", "
    colon: str = ": "

    @property
    def fixed_begin(self) -> str:
        """The text that all calls begin with: up to a name, or an id before it."""
        return PLACES.split(self.begin)[0]


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How a model writes calls: `begin` and `end` are the marks around them; `end` may be empty.

    `text` starts with `begin`. `parser` reads what models write otherwise than `text` says. The
    generic form (`is_generic`) is specchat's own, for templates that show none.
    """

    begin: str
    end: str
    text: CallText
    parser: Parser | None = None
    is_generic: bool = False

    @property
    def is_bare(self) -> bool:
        """True if calls begin with a word or brace that may also be ordinary text."""
        return len(self.begin) == 1 or not re.search(r"[<\[]", self.begin or "<")

    @property
    def needs_tools(self) -> bool:
        """True if what looks like a call is text in answers to requests without tools."""
        return self.is_bare or self.is_generic

    @property
    def opening(self) -> str:
        """The text that all calls begin with, and nothing else; "" if there is none."""
        fixed = self.text.fixed_begin
        opening = fixed if self.is_bare else self.begin
        return opening if fixed.startswith(opening) else ""
