"""What is taken of a title that a model wrote."""

from __future__ import annotations

from specchat.chat.model_title import title_from
from tables import table


@table(
    ("text", "title"),
    [
        ("A Fox and a Lazy Dog", "A Fox and a Lazy Dog"),
        ("  **Drafts, verified**\n", "Drafts, verified"),
        ('Title: "Speculative decoding explained."', "Speculative decoding explained"),
        ("# Titel: Grüße aus Köln", "Grüße aus Köln"),
        ("「投机解码入门」", "投机解码入门"),
        ("标题\uff1a节省显存", "节省显存"),
        ("What is C++?", "What is C++?"),
        ("Subtitle: A day in May", "Subtitle: A day in May"),
    ],
)
def test_a_title_is_taken_without_its_marks(text: str, title: str) -> None:
    """Quotation marks, Markdown, a label and the final full stop."""
    assert title_from(text) == title


@table(
    "text",
    [
        "", "   ", "...", "**", "1234", "word " * 10, "x" * 61, "Two\nlines", "a\tb",
        "\x1b[31mred", "turned \u202e round", "<b>bold</b>", "[link](http://a.b)", "`code` here",
        "see https://a.b", "a | b", "<think>hm", "\ud800 half",
    ],
)  # fmt: skip
def test_anything_else_is_no_title(text: str) -> None:
    """Empty, too long, several lines, markup, or characters that command a terminal."""
    assert title_from(text) == ""
