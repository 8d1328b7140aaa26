"""Markdown that arrives in pieces looks as if it had arrived at once."""

from __future__ import annotations

import pytest
from textual.selection import SELECT_ALL

from scripted_chat import Script, chat
from specchat.tui.markdown.growing_text import (
    MAX_CHARACTERS,
    MAX_LINES,
    GrowingMarkdown,
    markdown_parser,
)
from specchat.tui.markdown.typesetter import Typesetter, code_blocks
from tables import table
from tui.driving import say, screen_text
from tui.test_mouse import prose

TEXT = """\
# A heading

A paragraph with **bold**, `code` and a [link](https://example.org),
going on here.

1. one
2. two

   with a paragraph of its own

| a | b |
| --- | --- |
| 1 | 2 |

```python
def f(x: int) -> int:

    return x
```

> quoted
> twice

Setext
======

- item
  - nested

    deeper

last words"""

COLOURS = {
    "text-primary": "#57a5e2",
    "text-success": "#4ebf71",
    "text-warning": "#ffa62b",
    "text-error": "#d17e92",
    "text-secondary": "#8fb9d2",
    "text-accent": "#ffc473",
    "surface-lighten-1": "#2b2b2b",
}


def laid_out(pieces: list[str], width: int = 60) -> list[str]:
    """Return the lines of a text that arrives in pieces."""
    growing, typesetter = GrowingMarkdown(), Typesetter(COLOURS)
    blocks = [block for piece in pieces for block in growing.append(piece)]
    lines = [
        line for block in [*blocks, growing.tail] for line in typesetter.markdown(block, width)
    ]
    return [line.text.rstrip() for line in lines]


@table("size", [1, 2, 3, 7, 50])
def test_pieces_of_any_size_give_the_same_lines(size: int) -> None:
    """The final screen does not depend on how the text is cut."""
    pieces = [TEXT[place : place + size] for place in range(0, len(TEXT), size)]

    assert laid_out(pieces) == laid_out([TEXT])


@pytest.mark.slow
def test_every_cut_in_two_gives_the_same_lines() -> None:
    """Wherever a step ends."""
    whole = laid_out([TEXT])
    for place in range(len(TEXT)):
        assert laid_out([TEXT[:place], TEXT[place:]]) == whole, place


def test_finished_blocks_are_not_laid_out_again() -> None:
    """The part that every step lays out again stays short in a long text."""
    growing = GrowingMarkdown()
    longest = 0
    for number in range(500):
        for piece in (f"Paragraph {number} ", "goes on.\n", "\n", "- item\n", "\n"):
            growing.append(piece)
            longest = max(longest, len(growing.tail))

    assert longest < 200


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("kind", ["fence", "list", "numbers", "words"])
def test_long_blocks_are_cut(kind: str) -> None:
    """Code, lists and paragraphs of a thousand lines stay cheap and complete."""
    lines = {
        "fence": ["```python\n", *(f"value_{n} = {n}\n" for n in range(1000)), "```\n"],
        "list": [f"- item {n}\n" for n in range(1000)],
        "numbers": [f"{n}. item {n}\n" for n in range(1, 1000)],
        "words": [f"word{n} " for n in range(3000)],
    }[kind]
    growing, typesetter = GrowingMarkdown(), Typesetter(COLOURS)
    blocks: list[str] = []
    for line in lines:
        blocks += growing.append(line)
        assert growing.tail.count("\n") <= MAX_LINES + 2
        assert len(growing.tail) < 5000
    shown = " ".join(
        line.text for block in [*blocks, growing.tail] for line in typesetter.markdown(block, 60)
    ).split()
    expected = {"fence": "value_", "list": "item", "numbers": "item", "words": "word"}[kind]

    assert sum(word.startswith(expected) for word in shown) == len(
        [line for line in lines if expected in line]
    )


@table("mark", ["-", "+", "*", "2.", "2)", "123456789.", "#", ">", "---", "___", "```", "~~~"])
@table("place", range(16))
def test_a_long_paragraph_does_not_go_on_as_something_else(mark: str, place: int) -> None:
    """It is cut before a word, wherever such a mark stands in it."""
    text = "word " * ((MAX_CHARACTERS - 14) // 5) + "." * place + f" {mark} one " + "word " * 10
    growing = GrowingMarkdown()
    [first] = growing.append(text)
    assert first + growing.tail == text
    assert len(first) <= MAX_CHARACTERS
    [token, *_] = markdown_parser(finds_inlines=False).parse(growing.tail)
    assert token.type == "paragraph_open"


def test_a_long_paragraph_is_cut_at_the_end_of_a_line() -> None:
    """It may have no other space: a word stays whole."""
    growing = GrowingMarkdown()
    blocks = [block for number in range(1000) for block in growing.append(f"word{number:03}x\n")]
    assert blocks
    assert all(block.startswith("word") for block in [*blocks, growing.tail])


def test_html_is_shown_as_text() -> None:
    """Tags have no effect."""
    assert "<b>bold</b>" in "\n".join(laid_out(["Some <b>bold</b> text"]))
    assert "<div>" in "\n".join(laid_out(["<div>\nblock\n</div>\n"]))


def test_code_blocks_are_found() -> None:
    """All fences count, also a last one that is still open."""
    assert code_blocks("a\n```py\nx\n```\nb\n```\ny\n") == ["x\n", "y\n"]


@table("width", [1, 2, 10, 300])
def test_any_width_is_kept(width: int) -> None:
    """No line is longer than the width, however narrow."""
    typesetter = Typesetter(COLOURS)
    for block in (TEXT, "x" * 1000, "日本語" * 50, "🙂" * 40):
        for line in typesetter.markdown(block, width):
            assert line.cell_length <= max(width, 2)


def test_headings_start_at_the_left() -> None:
    """Of level 1 as of the others."""
    lines = laid_out(["# One\n\n## Two\n\n### Three\n"])
    assert [line.rstrip() for line in lines if line.strip()] == ["One", "Two", "Three"]


@table("width", [17, 24, 60])
def test_spaces_around_inline_code_are_kept(width: int) -> None:
    """One on each side where there was one, none where there was none, at any width."""
    text = 'Type `@name` (or `@"my file.txt"`), `/` or **`x`** here.'
    lines = laid_out([text], width)
    assert " ".join(" ".join(lines).split()) == text.replace("`", "").replace("*", "")


MARKS = (
    "1. one\n2. two\n\n- [x] done\n- [ ] open\n\nSee <https://example.org/a> and"
    " [b](https://example.org/b).\n\n- code:\n  ```py\n  x = 1\n  ```\n\n```py\ny = 2\n```\n"
)


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize(
    "words",
    [
        "A sentence that says little. " * (2 * MAX_CHARACTERS // 29),
        "Hello.\n\n " + "\u4f60" * 2 * MAX_CHARACTERS,  # the only space comes first
        " " + "x" * 2 * MAX_CHARACTERS,
    ],
)
async def test_a_long_paragraph_is_shown_as_one(words: str) -> None:
    """It is cut to be laid out faster, with no empty line there."""
    app = chat(Script([words]))
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "hello")
        text, _ = prose(app, 1).get_selection(SELECT_ALL) or ("", "")
        lines = text.splitlines()
        assert len(lines) > 2 * MAX_CHARACTERS // 100
        assert "" not in lines[2:]


@pytest.mark.slow
@pytest.mark.anyio
async def test_lists_tasks_links_and_code_in_lists_look_right() -> None:
    """Numbers have dots, tasks boxes, an autolink is shown once, code one background."""
    app = chat(Script([MARKS]))
    async with app.run_test(size=(110, 40)) as pilot:
        await say(pilot, "Marks")
        text = screen_text(app)
        assert "1. one" in text
        assert "2. two" in text
        assert "☑ done" in text
        assert "☐ open" in text
        assert text.count("https://example.org/a") == 1
        assert "b (https://example.org/b)" in text
        rows = text.splitlines()
        first = next(row for row, line in enumerate(rows) if "• code:" in line)
        assert " py " in rows[first + 1]
        assert "x = 1" in rows[first + 2]
        strips = app.screen._compositor.render_strips()
        backgrounds = {
            style.bgcolor
            for strip in strips
            if "x = 1" in strip.text or "y = 2" in strip.text
            for word, style, _ in strip
            if style is not None and word.strip()[:1] in {"x", "y"}
        }
        assert len(backgrounds) == 1
