"""Exports of a conversation as HTML and Markdown."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from specchat.chat.conversation import Attachment
from specchat.chat.export import as_html, as_markdown
from specchat.chat.store import Store

ANSWER = """<think>Let me see.</think># Heading

A **bold** word, `code`, and a [link](https://example.org).

| a | b |
|---|---|
| 1 | 2 |

<script>alert(1)</script> [bad](javascript:alert(2)) ![spy](https://example.org/spy.png)
"""
FIGURES = {
    "generated_tokens": 12, "tokens_per_second": 24.0, "decode_s": 0.5, "drafted": 10,
    "accepted": 5, "acceptance_rate": 0.5, "tokens_per_step": 2.0, "time_to_first_token_s": 0.25,
}  # fmt: skip
LINE = "24.0 tokens/s · 12 tokens · 50 % of 10 draft tokens accepted · 2.00 tokens per target pass"


def exported() -> tuple[str, str]:
    """Return a conversation with an attachment and a hostile answer as HTML and as Markdown."""
    with Store(None) as store:
        number = store.begin("Be <brief>.", "demo").id
        files = [Attachment("n.txt", "NOTES <b>")]
        question = store.add(number, "user", "Read *@n.txt*", attachments=files)
        answer = store.add(number, "assistant", "", question.id)
        store.write(answer.id, ANSWER, finish="stop", statistics=FIGURES)
        conversation, tree = store.conversation(number), store.tree(number)
    return as_html(conversation, tree), as_markdown(conversation, tree)


def test_a_page_renders_markdown_and_runs_nothing() -> None:
    """Headings, tables and code are rendered; scripts, images and script links are text."""
    page, _ = exported()

    for part in (
        "<h1>Heading</h1>", "<strong>bold</strong>", "<code>code</code>", "<td>2</td>",
        '<a href="https://example.org">link</a>', "<summary>Reasoning</summary>",
    ):  # fmt: skip
        assert part in page
    assert "<script" not in page
    assert "<img" not in page
    assert 'href="javascript' not in page
    assert "default-src 'none'" in page


def test_a_page_contains_the_whole_branch() -> None:
    """The page has the system prompt, the question, its files and the figures."""
    page, _ = exported()

    assert "Be &lt;brief&gt;." in page
    assert "Read *@n.txt*" in page
    assert "<summary>n.txt</summary>" in page
    assert "NOTES &lt;b&gt;" in page
    assert LINE in page


def test_markdown_has_a_line_of_figures_for_each_answer() -> None:
    """Attached files follow their question."""
    _, text = exported()

    assert f"*{LINE}" in text
    assert "n.txt:\n```\nNOTES <b>\n```" in text


def test_an_open_fence_ends_with_its_answer() -> None:
    """An answer stopped inside a code block leaves what follows it outside."""
    with Store(None) as store:
        number = store.begin().id
        question = store.add(number, "user", "Code")
        answer = store.add(number, "assistant", "", question.id)
        store.write(answer.id, "See:\n\n````py\nx = 1", finish="cancelled", statistics=FIGURES)
        store.add(number, "user", "```\nclosed\n```", answer.id)
        page = as_markdown(store.conversation(number), store.tree(number))
    assert "````py\nx = 1\n````\n\n*24.0" in page
    assert page.endswith("```\nclosed\n```\n")


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("<!-- todo", "-->"),
        ("See:\n\n<script>\nx", "</script>"),
        ("<PRE>", "</pre>"),
        ("<?php", "?>"),
        ("<![CDATA[x", "]]>"),
        ("<!DOCTYPE", ">"),
        ("<!-- done -->", ""),
        ("<div>", ""),
        ("in <!-- a line", ""),
    ],
)
def test_open_html_ends_with_its_answer(text: str, end: str) -> None:
    """What follows an answer is shown, whatever HTML the answer leaves open."""
    with Store(None) as store:
        number = store.begin().id
        question = store.add(number, "user", "Comment")
        answer = store.add(number, "assistant", text, question.id)
        store.add(number, "user", "What follows", answer.id)
        page = as_markdown(store.conversation(number), store.tree(number))

    assert page.count(end) >= 1
    assert "<p>What follows</p>" in MarkdownIt("commonmark").render(page)
    assert f"{text}\n{end}".rstrip() in page
