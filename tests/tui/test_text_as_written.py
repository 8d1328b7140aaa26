# ruff: noqa: RUF001  # punctuation of other scripts
"""Answers are shown as they were written: no character that carries meaning disappears."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.theme import BUILTIN_THEMES

from specchat.tui.widgets.growing_text import GrowingMarkdown
from specchat.tui.widgets.typesetter import Typesetter

TYPESETTER = Typesetter(BUILTIN_THEMES["textual-dark"].to_color_system().generate())
WIDTHS = (40, 76, 200)


def shown(text: str, width: int = 76) -> str:
    """Return what a whole text looks like, without the ends of lines."""
    lines = [line.text.rstrip() for line in TYPESETTER.markdown(text, width)]
    return "\n".join(lines).strip("\n")


def streamed(text: str, size: int) -> str:
    """Return what a text looks like that arrives in pieces of so many characters."""
    growing = GrowingMarkdown()
    blocks = [
        block
        for start in range(0, len(text), size)
        for block in growing.append(text[start : start + size])
    ]
    return "\n".join(filter(None, map(shown, [*blocks, growing.tail])))


LITERAL = [
    r"\(x^2\) and \[ y \]",
    r"C:\_temp and \\server\share\new",
    r"the pattern \d+\.\w* matches",
    "__init__.py and __main__",
    "a*b*c is 2**3**4",
    "snake_case_name and *.py",
    r"10 \% of \{1, 2\}",
    "[1]: https://example.org/page",
    "3 < 4 > 2 & 5",
]


@pytest.mark.parametrize("text", LITERAL)
@pytest.mark.parametrize("width", WIDTHS)
def test_no_character_is_lost(text: str, width: int) -> None:
    """In formulas, paths, patterns, names and references."""
    assert shown(text, width).replace("\n", " ") == text
    assert streamed(text + "\n\nafter", 3).startswith(shown(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\*not italic\* and snake\_case", "*not italic* and snake_case"),
        ("**bold**, *italic*, __bold words__ and _italic_", "bold, italic, bold words and italic"),
        ("**S**pecial **A**cronym and *P*refix", "Special Acronym and Prefix"),
        ("这是**“重点”**的内容", "这是“重点”的内容"),
        ("**注意：**请看", "注意：请看"),
        ("これは**「重要」**です", "これは「重要」です"),
        ("~~gone~~ and `a*b*c`", "gone and a*b*c"),
    ],
)
def test_marks_are_still_marks(text: str, expected: str) -> None:
    """Also where bold text touches punctuation of scripts without spaces."""
    assert shown(text) == expected


def test_lines_stay_lines() -> None:
    """Of a poem, an address, or key and value."""
    text = "An old silent pond\nA frog jumps into the pond\nSplash! Silence again."
    assert shown(text) == text
    assert streamed(text, 4) == text
    assert shown("Name: Bob  \nStreet: Elm 3\\\nCity: Ur") == "Name: Bob\nStreet: Elm 3\nCity: Ur"


def test_html_line_breaks_break_lines() -> None:
    """Most of all in cells of tables; other HTML stays text."""
    lines = shown("| a | b |\n|---|---|\n| x<br>y<br/>z | H<sub>2</sub>O |").split("\n")
    assert [line.split() for line in lines[2:]] == [["x", "H<sub>2</sub>O"], ["y"], ["z"]]


ODD_ENDS = ("\u2028", "\u2029", "\x85", "\x0c", "\x0b", "\x1c")


@pytest.mark.parametrize("end", ODD_ENDS)
@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_code_boxes_begin_and_end_at_their_fences(end: str, size: int) -> None:
    """Whatever else ends a line somewhere, before a fence or inside."""
    text = f"A paragraph{end}one.\n\n```python\nx = 1{end}y{end}\n```\n\nText after.\n"
    lines = [line.strip() for line in streamed(text, size).split("\n") if line.strip()]
    assert lines[0] == "A paragraph one."
    assert lines[1].startswith("python")
    assert lines[2].startswith("x = 1 y")
    assert lines[3:] == ["Text after."]


@given(
    st.lists(st.sampled_from([*"ab12 *_\\`~.:/#\n", "**", "__", "注", "：", "\\("]), max_size=24)
)
def test_no_letter_or_digit_is_lost(pieces: list[str]) -> None:
    """In any mixture of words and marks, whole or streamed, each stays in its order."""
    text = "x" + "".join(pieces)
    wanted = re.findall(r"\w", text.replace("_", ""))
    for found in (shown(text), streamed(text, 2)):
        assert [each for each in re.findall(r"\w", found.replace("_", "")) if each != "⋮"] == wanted
