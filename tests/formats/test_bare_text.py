"""What a schema asks of a bare text is an expression, or is left out as a whole."""

from __future__ import annotations

import re
from typing import Any

from specchat.formats.bare_text import TextBounds, bounds_of
from tables import table

TEXTS = ("", "a", "b", "ab", "ba", "xaby", "a\nb", "$a", "a^", "aaa", "|", "()", "12", "a-b", "^a$")


@table(
    "pattern",
    [
        "a", "^a", "a$", "^a$", "a|b", "^(a|b)$", "^[ab]{2}$", r"^\$a", r"a\^$", "^[$^|(]a",
        "[]ab]", r"[\]a]", "(?:a|b)a", r"\(\)", r"^a\|?", r"\d+", ".", "^.$", "^a*$", "^[^a]+$",
        r"a\nb", "a\nb", r"^\\", r"\$$", "^a{9}b*$", "a{2}", "^a{2,}b{4}$", r"\d{1,2}",
    ],
)  # fmt: skip
def test_the_expression_of_a_pattern_fits_what_it_is_found_in(pattern: str) -> None:
    """As `re.search` finds it."""
    expression = bounds_of({"pattern": pattern}).pattern
    for text in TEXTS:
        found = re.search(re.sub(r"(?<!\\)\$$", r"\\Z", pattern), text) is not None
        assert (re.fullmatch(expression, text) is not None) == found


@table(
    "pattern",
    [
        "^a|b$", "^a|b", "a|b$", "a^", "$a", "(^a)", "(a$)", "(?=a)b", "(?!a)b", "(?<!a)b", "(?i)a",
        r"\ba", r"(a)\1", "a)(b", "(a", "a{1,300}", ".*a{5}", "^a+(b|c){9}$", "^a{2,}b{5}$",
        "a" * 1001, "", 5, None, ["a"],
    ],
)  # fmt: skip
def test_other_patterns_are_left_out(pattern: Any) -> None:
    """Rather than enforced as something else."""
    assert bounds_of({"pattern": pattern}) == TextBounds()


@table(
    ("schema", "lengths"),
    [
        ({"minLength": 2}, {2, 3, 9}),
        ({"maxLength": 2}, {0, 1, 2}),
        ({"minLength": 1, "maxLength": 3}, {1, 2, 3}),
        ({"maxLength": 0}, {0}),
    ],
)
def test_lengths_count_characters(schema: dict[str, int], lengths: set[int]) -> None:
    """Line breaks, too."""
    expression = bounds_of(schema).length
    for length in (0, 1, 2, 3, 9):
        is_match = re.fullmatch(expression, "\n" * length) is not None
        assert is_match == (length in lengths)


@table("value", [-1, True, "3", 1.5, 10**9, None])
def test_other_lengths_are_left_out(value: Any) -> None:
    """A million of them would take as many states."""
    assert bounds_of({"minLength": value, "maxLength": value}).length == ""
