# ruff: noqa: RUF001  # punctuation of other scripts
"""Answers are shown as they were written: no character that carries meaning disappears."""

from __future__ import annotations

import re
from collections import Counter

from hypothesis import assume, given
from hypothesis import strategies as st
from textual.theme import BUILTIN_THEMES

from specchat.tui.markdown.growing_text import GrowingMarkdown
from specchat.tui.markdown.prose import copied, has_mark
from specchat.tui.markdown.style_marks import COPY, SAVE, TITLE, WRAPPED
from specchat.tui.markdown.typesetter import Typesetter
from tables import table

TYPESETTER = Typesetter(BUILTIN_THEMES["textual-dark"].to_color_system().generate())
WIDTHS = (40, 76, 200)


def shown(text: str, width: int = 76) -> str:
    """Return what a whole text looks like, without the ends of lines."""
    lines = [line.text.rstrip() for line in TYPESETTER.markdown(text, width)]
    return "\n".join(lines).strip("\n")


def blocks(text: str, size: int) -> list[str]:
    """Return the blocks of a text that arrives in pieces of so many characters."""
    growing = GrowingMarkdown()
    finished = [
        block
        for start in range(0, len(text), size)
        for block in growing.append(text[start : start + size])
    ]
    return [*finished, growing.tail]


def streamed(text: str, size: int) -> str:
    """Return what a text looks like that arrives in pieces of so many characters."""
    return "\n".join(filter(None, map(shown, blocks(text, size))))


LITERAL = [
    r"\(a_i \unknown{b_j}\) and \[ y \]",
    r"$a_1 \begin{x} *b* \end{x} a_2$ and $$\mystery_1 * x_*$$",
    "between $5 and $10, or US$5*2 and $HOME/$USER",
    "$20/month ($240/year)",
    "https://example.org/*a*/_b_~~c~~ and (http://x.org/__init__)",
    '<a href="*x*" title="_y_"> and <!-- *z* -->',
    "a[^1] and [^1]: note",
    r"C:\_temp and \\server\share\new",
    r"the pattern \d+\.\w* matches",
    "__init__.py and __main__",
    "a*b*c is 2**3**4",
    "snake_case_name and *.py",
    r"10 \% of \{1, 2\}",
    "[1]: https://example.org/page",
    "3 < 4 > 2 & 5",
]


@table("text", LITERAL)
@table("width", WIDTHS)
def test_no_character_is_lost(text: str, width: int) -> None:
    """In formulas, paths, patterns, names and references."""
    assert shown(text, width).replace("\n", " ") == text
    assert streamed(text + "\n\nafter", 3).startswith(shown(text))


@table(
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


@table(
    ("text", "expected"),
    [
        ('[a **b** `c`](http://x.org "the title")', 'a b c (http://x.org "the title")'),
        ("see [a](b/ä%20c) and [](d)", "see a (b/ä%20c) and  (d)"),
        ('an ![alt *text*](p.png "title") here', 'an ▨ alt text (p.png "title") here'),
        ("[![alt](p.png)](http://x.org)", "▨ alt (p.png) (http://x.org)"),
        ("<https://x.org/a%20b> <me@x.org>", "https://x.org/a%20b me@x.org"),
        ("&copy; &amp; &#35; &bogus;", "© & # &bogus;"),
        ("a&#x202e;b&#13;c &#x2028;d", "a\ufffdb\ufffdc  d"),
        ("7) a\n8) b", " 7) a\n 8) b"),
        ("2. a\n5. b", " 2. a\n 5. b"),
        ("1. a\n1. b", " 1. a\n 2. b"),
        ("#", "#"),
        ("a\n=\nb\n-\nc", "a\n=\nb\n-\nc"),
        ("+", " +"),
        ("3.", " 3."),
        (">", "▌"),
        ("> a\n> > b", "▌ a\n▌ ▌ b"),
        ("- [ ] a\n- [x] b", " • ☐ a\n • ☑ b"),
        (r"a \<br> b<br/>c", "a <br> b\nc"),
    ],
)
@table("size", [1, 1000])
def test_what_marks_say_is_shown(text: str, expected: str, size: int) -> None:
    """Addresses, titles and descriptions; numbers as written; marks that mark nothing."""
    lines = [line.rstrip() for line in streamed(text, size).split("\n")]
    assert "\n".join(lines) == expected


@table(
    ("source", "expected"),
    [
        (r"$x^2 \leq \alpha_1$", "x² ≤ α₁"),
        (r"\(e^{-x^2}\)", "e^(-x²)"),
        (r"$\frac{a}{b+1}$ and $2\frac{1}{2}x$", "a/(b+1) and 2(1/2)x"),
        (r"$\sqrt{x}$ or $\sqrt{x+1}$", "√x or √(x+1)"),
        (r"$$\sum_{i=1}^{n} i = \frac{n(n+1)}{2}$$", "∑ᵢ₌₁ⁿ i = (n(n+1))/2"),
        (r"$\int_0^\infty f(x) \, dx$", "∫₀^∞ f(x) dx"),
        (r"$\mathbb{R}^n$, $\hat{y}$, $90^\circ$", "ℝⁿ, ŷ, 90°"),
        (r"$\sin\theta \times \left( x \right)$", "sin θ × ( x )"),
        (r"$n$ of \(k\)", "n of k"),
        (r"\[ a \implies b \]", "a ⟹ b"),
        (r"$E = mc^2$, **so** $p_{\text{max}}$", "E = mc², so pₘₐₓ"),
    ],
)
@table("size", [1, 1000])
def test_simple_formulas_are_readable(source: str, expected: str, size: int) -> None:
    """In Unicode, without their marks; others are shown as they were written."""
    assert streamed(source, size) == expected


@table("size", [1, 5, 1000])
@table(
    "source",
    [
        "$$\n\\begin{aligned}\na_1 &= *b* \\\\\n- c &= _d_\n+ e\n\\end{aligned}\n$$",
        "\\[\n\\mystery_{1}\n= x_*\n\\]",
        "\\begin{cases}\n- a_1 \\\\\n# b_1\n\\end{cases}",
    ],
)
def test_formulas_that_are_set_apart_keep_their_lines(source: str, size: int) -> None:
    """No list, heading or emphasis begins in them; after them Markdown goes on."""
    lines = streamed(f"Thus:\n{source}\n- item", size).split("\n")
    assert list(filter(None, lines)) == ["Thus:", *source.split("\n"), " • item"]


@table(
    "text",
    ["\\(x" * 3000, "\\[ x\n" * 1000 + "\\] end", "$" + "{" * 900 + "x" + "}" * 900 + "$"],
)
def test_hostile_formulas_are_text(text: str) -> None:
    """Without an end, with too many lines, or too deep, they lose nothing."""
    assert Counter("".join(shown(text).split())) == Counter("".join(text.split()))


def test_unclosed_formulas_are_ordinary_text() -> None:
    """An empty line ends them: dollars in a text do not take the rest of it."""
    assert streamed("$$ is a sign\n\n- *item*", 2) == "$$ is a sign\n\n • item"


@table("width", [10, 20, 40])
@table("size", [3, 1000])
def test_code_wraps_with_a_sign(width: int, size: int) -> None:
    """All its characters are there, spaces too, and so are those of its info string."""
    code = "value = function(first,  second) +   '注意注意注意' + other_name_without_spaces"
    lines = [
        line
        for block in blocks(f'```py title="a file.py" {{1,3}}\n{code}\n```\n', size)
        for line in TYPESETTER.markdown(block, width)
    ]
    assert all(line.cell_length <= width for line in lines)
    titles = [line for line in lines if has_mark(line, TITLE)]
    shown_title = "".join(each.text for each in titles).replace(COPY, "").replace(SAVE, "")
    assert "".join(shown_title.split()) == 'pytitle="afile.py"{1,3}'
    rows = [line for line in lines if not has_mark(line, TITLE)]
    assert "".join(copied(row, 0, -1) for row in rows) == code
    signs = [has_mark(row, WRAPPED) for row in rows if row.text]
    assert signs == [False] + [True] * (len(signs) - 1)
    assert all(row.text.startswith(" ↪ ") for row in rows if has_mark(row, WRAPPED))


WIDE = (
    "| name | address | count | note | more |\n|:--|---|--:|:-:|---|\n"
    "| **bold** | https://example.org/"
    + "a_b/" * 20
    + " | 12 | 注意"
    + "重点" * 20
    + " | a\\|b |\n"
    "| x | y | 3 | z | w | a cell too many |\n| only one |\n"
)


@table("width", [10, 20, 40, 60, 80])
@table("prefix", ["", "> ", "- "])
def test_wide_tables_lose_nothing(width: int, prefix: str) -> None:
    """Cells wrap; where columns would be too narrow, each row is a list of its cells."""
    source = "\n".join(
        (prefix if not number or prefix == "> " else " " * len(prefix)) + line
        for number, line in enumerate(WIDE.splitlines())
    )
    lines = TYPESETTER.markdown(source, width)
    assert all(line.cell_length <= width for line in lines)
    found = Counter("".join(line.text for line in lines))
    assert not Counter(re.sub(r"[|*:>\\\s-]", "", WIDE)) - found
    assert found["|"] >= 1


@table("width", [3, 10, 16, 40])
def test_deep_lists_and_quotations_lose_nothing(width: int) -> None:
    """Where there is no room beside bullets and bars, content stands below them."""
    source = "- one\n  1. two\n     > three\n     > - four\n     >   - fivesix\n     >     `code`"
    lines = TYPESETTER.markdown(source, width)
    text = "".join("".join(line.text for line in lines).replace("▌", "").split())
    assert text == "•one1.two•three•four•fivesix•code".replace("two•", "two").replace("six•", "six")
    assert all(line.cell_length <= width for line in lines)


def test_rules_are_lines() -> None:
    """From edge to edge, not hyphens."""
    assert shown("a\n\n---\n\nb", 20).split("\n") == ["a", "", "─" * 20, "", "b"]


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


@table("end", ODD_ENDS)
@table("size", [1, 3, 7, 1000])
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
    assume(not re.search(r"```|~~~", text))  # a box of code has a title, with letters of its own
    wanted = re.findall(r"\w", text.replace("_", ""))
    for found in (shown(text), streamed(text, 2)):
        assert [each for each in re.findall(r"\w", found.replace("_", "")) if each != "⋮"] == wanted
