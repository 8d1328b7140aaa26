"""What a schema asks of a string that is written as bare text, as regular expressions."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

LONGEST_PATTERN = 1000
"""Characters of a pattern that is enforced."""
BOUNDS = ("pattern", "minLength", "maxLength")
LARGEST_FEWEST, LARGEST_MOST, LARGEST_MOST_BESIDE = 64, 2000, 256
"""The longest `minLength` and `maxLength` that are, and `maxLength` beside another bound: counting
takes states."""
ANY = "(?s:.*)"
LARGEST_COUNT_LATER = 4
"""The largest count of a repetition behind an unlimited one: each doubles the states."""
TOKENS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d+(?:,\d*)?\}|\(\?[^:]|[^\\]", re.DOTALL)
"""An escape, a class, a counted repetition, a group of a special kind, or a character."""


class TextBounds(NamedTuple):
    """What a whole text has to match: an expression if any, and its number of characters."""

    pattern: str = ""
    fewest: int = 0
    most: int | None = None

    @property
    def length(self) -> str:
        """The expression for texts of these lengths; empty if all are."""
        if not self.fewest and self.most is None:
            return ""
        return f"(?s:.{{{self.fewest},{'' if self.most is None else self.most}}})"


def bounds_of(schema: Mapping[str, Any]) -> TextBounds:
    """Return what a schema of strings asks of them, as far as it is enforced.

    A pattern with anchors elsewhere than at its ends, with look-around or with references to groups
    is not, nor are lengths and repetitions that take many states to count.
    """
    pattern = _of_pattern(schema.get("pattern"))
    fewest = _count(schema.get("minLength"), LARGEST_FEWEST) or 0
    is_beside = bool(pattern or fewest)
    most = _count(schema.get("maxLength"), LARGEST_MOST_BESIDE if is_beside else LARGEST_MOST)
    return TextBounds(pattern, fewest, most if most is None or most >= fewest else None)


def without_bounds(schema: Any) -> Any:
    """Return a schema without the bounds of texts."""
    if isinstance(schema, list):
        return [without_bounds(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        name: without_bounds(value)
        for name, value in schema.items()
        if name not in BOUNDS or isinstance(value, Mapping)  # a property may be named so
    }


def _of_pattern(pattern: Any) -> str:
    """Return the expression for the texts that a pattern is found in; empty if there is none."""
    if not isinstance(pattern, str) or not pattern or len(pattern) > LONGEST_PATTERN:
        return ""
    parts = TOKENS.findall(pattern)
    starts, ends = parts[0] == "^", parts[-1] == "$"
    inner = parts[starts : len(parts) - ends]
    if not _is_plain(inner, may_choose=not (starts or ends)) or _is_large(inner, starts):
        return ""
    return f"{'' if starts else ANY}(?:{''.join(inner)}){'' if ends else ANY}"


def _is_plain(parts: list[str], *, may_choose: bool) -> bool:
    """Return True if a pattern without its outer anchors is an expression of its own."""
    depth = 0
    for part in parts:
        depth += (part == "(") - (part == ")")
        is_outer_choice = part == "|" and depth == 0 and not may_choose
        is_reference = part[0] == "\\" and part[-1] in "123456789bBkAzZG"
        is_mark = part in {"^", "$"} or part.startswith("(?")
        if is_mark or is_outer_choice or is_reference or depth < 0:
            return False
    return depth == 0


def _is_large(parts: list[str], starts: bool) -> bool:
    """Return True for a count behind a part of any length, where each place may begin it."""
    is_later = not starts
    for part in parts:
        is_counted = part[0] == "{" and len(part) > 1
        counts = re.findall(r"\d+", part) if is_counted else ()
        if is_later and any(int(count[:9]) > LARGEST_COUNT_LATER for count in counts):
            return True
        is_later |= part in {"*", "+"} or (is_counted and part.endswith(",}"))
    return False


def _count(value: Any, largest: int) -> int | None:
    """Return a length; None if there is none, or none that is enforced."""
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return value if is_count and 0 <= value <= largest else None
