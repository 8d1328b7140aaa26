"""Exports of a conversation as HTML and Markdown."""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from specchat.chat.conversation import Attachment, ChatSchema
from specchat.chat.export import as_html, as_json, as_markdown, write_export
from specchat.chat.store import Store
from specchat.decoding.chunk import Piece, ToolCall
from specchat.errors import StoreFailed
from specchat.tui.actions.code_saver import _write
from tables import table

ANSWER = """# Heading

A **bold** word, `code`, and a [link](https://example.org).

| a | b |
|---|---|
| 1 | 2 |

<script>alert(1)</script> [bad](javascript:alert(2)) ![spy](https://example.org/spy.png)
"""
REASONING = "Let me see: </details> <script>\n````\n~~~\n\n# No heading"
CALL = ToolCall("open<b>\nfile", '{"path": "</pre>```"}', "1")
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
        store.write(
            answer.id,
            ANSWER,
            reasoning=REASONING,
            tool_calls=[CALL],
            finish="stop",
            statistics=FIGURES,
        )
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
    assert page.count("<h1>") == 2
    assert page.count("</details>") == 3
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


def test_a_page_folds_reasoning_and_calls() -> None:
    """The reasoning is above the answer, the calls are below it."""
    page, _ = exported()
    reasoning = page.index("Let me see: &lt;/details&gt; &lt;script&gt;\n````")
    call = page.index("<summary>Call: open&lt;b&gt; file</summary>")

    assert reasoning < page.index("<h1>Heading</h1>") < call
    assert "&#34;&lt;/pre&gt;```&#34;" in page[call:]


def test_markdown_folds_reasoning_and_calls() -> None:
    """Whatever they say stays in a fence inside its fold, and the answer is outside."""
    _, text = exported()
    tokens = MarkdownIt("commonmark").parse(text)
    folds = [each.content.strip() for each in tokens if each.type == "html_block"]
    fences = [each.content for each in tokens if each.type == "fence"]

    assert folds[:2] == ["<details><summary>Reasoning</summary>", "</details>"]
    assert "<details><summary>Call: open&lt;b&gt; file</summary>" in folds
    assert folds.count("</details>") == 2
    assert f"{REASONING}\n" in fences
    assert f"{CALL.arguments}\n" in fences
    headings = [
        following.content for each, following in pairwise(tokens) if each.type == "heading_open"
    ]
    assert headings[-3:] == ["User", "Assistant", "Heading"]


def test_json_has_every_part() -> None:
    """Reasoning, tool calls, and the kind of each token."""
    pieces = [Piece("Hm", "draft", "reasoning"), Piece("A", "target")]
    with Store(None) as store:
        number = store.begin().id
        message = store.add(number, "assistant", "")
        store.write(message.id, "A", reasoning="Hm", tool_calls=[CALL], pieces=pieces)
        (found,) = json.loads(as_json(store.conversation(number), store.tree(number)))["messages"]

    assert (found["text"], found["reasoning"]) == ("A", "Hm")
    assert found["tool_calls"] == [
        {"name": CALL.name, "arguments": CALL.arguments, "id": "1", "raw": ""}
    ]
    assert found["pieces"] == [["Hm", "draft", "reasoning"], ["A", "target", "answer"]]


def test_an_answer_without_text_is_exported() -> None:
    """It may have been stopped while the model was reasoning."""
    with Store(None) as store:
        number = store.begin().id
        message = store.add(number, "assistant", "", reasoning="Hm").id
        store.add(number, "user", "Go on", message)
        page = as_markdown(store.conversation(number), store.tree(number))

    fold = "<details><summary>Reasoning</summary>\n\n```\nHm\n```\n\n</details>"
    assert f"## Assistant\n\n{fold}\n\n## User\n\nGo on\n" in page


def test_exports_have_the_schema() -> None:
    """As it was typed where people read it; in JSON also what each answer followed."""
    schema = ChatSchema('<b>, "x": y', '{"type": "object"}')
    with Store(None) as store:
        number = store.begin(schema=schema).id
        store.add(number, "assistant", "{}", schema=schema.source)
        asked = store.conversation(number), store.tree(number)
        pages = [form(*asked) for form in (as_markdown, as_html, as_json)]
    assert r'schema: "<b>, \"x\": y"' in pages[0]
    assert "schema &lt;b&gt;, &#34;x&#34;: y" in pages[1]
    found = json.loads(pages[2])
    assert found["schema"] == {"typed": schema.typed, "source": schema.source}
    assert found["messages"][0]["schema"] == schema.source


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


@table(
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


class FullDisk(BytesIO):
    """Takes the first bytes only."""

    def write(self, data: Any, /) -> int:
        """Fail as the system does."""
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("before", ["", "precious"])
def test_a_full_disk_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """Neither what an export or saved code replaces, nor the folder."""
    path = tmp_path / "a.md"
    if before:
        path.write_text(before)
        path.chmod(0o750)
    mode = path.stat().st_mode if before else None

    def opened(descriptor: int, *_: object) -> FullDisk:
        os.close(descriptor)
        return FullDisk()

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", opened)
        with pytest.raises(StoreFailed, match="No space left"):
            write_export(path, "new", overwrite=bool(before))
        with pytest.raises(OSError, match="No space left"):
            _write(path, "new", is_new=not before)
    assert [each.read_text() for each in tmp_path.iterdir()] == [before] * bool(before)
    _write(path, "new", is_new=not before)
    assert path.read_text() == "new"
    assert mode in {None, path.stat().st_mode}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes")
def test_an_export_may_go_to_a_pipe(tmp_path: Path) -> None:
    """Which is no file to replace."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_export(path, "text", overwrite=True)
    assert os.read(reading, 9) == b"text"
    os.close(reading)
    assert path.is_fifo()


def test_an_export_that_replaces_a_file_keeps_its_mode(tmp_path: Path) -> None:
    """Also one whose name can be no longer; a new one is the user's alone."""
    old = tmp_path / ("a" * 252 + ".md")
    old.write_text("old")
    old.chmod(0o644)
    for path, mode in ((old, 0o644), (tmp_path / "new.md", 0o600)):
        write_export(path, "text", overwrite=True)
        assert path.read_text() == "text"
        assert path.stat().st_mode & 0o777 == mode


def test_a_file_in_a_folder_that_cannot_be_written_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place, as nothing can be made beside it."""
    path = tmp_path / "a.md"
    path.write_text("the old text")

    def refuse(**_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    write_export(path, "text", overwrite=True)
    assert path.read_text() == "text"
