"""Exports of a conversation: Markdown, JSON or HTML."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from html import escape
from time import localtime, strftime

from specchat.chat.answer_statistics import add_up, answer_rows
from specchat.chat.attachments import with_attachments
from specchat.chat.conversation import Conversation, Message, Tree
from specchat.chat.figure_text import answer_line
from specchat.chat.reasoning import split_reasoning

__all__ = ["EXPORTS", "as_html", "as_json", "as_markdown"]

NAMES = {"user": "User", "assistant": "Assistant"}
GUARD = "default-src 'none'; style-src 'unsafe-inline'"
"""The page may load and run nothing but its own style."""
STYLE = """\
:root { color-scheme: light dark; }
body { font-family: sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
section { margin: 1.2rem 0; padding: .2rem 1rem; border-left: .3rem solid #8888; }
section.user { border-color: #0178d4; }
section.system { border-color: #ffa62b; }
h2.who { font-size: 1rem; margin: .4rem 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
pre.plain { font-family: inherit; }
code, pre { background: #8882; } pre.plain, pre code { background: none; }
table { border-collapse: collapse; } th, td { border: 1px solid #8888; padding: .2rem .5rem; }
summary { cursor: pointer; opacity: .7; }
p.figures { opacity: .6; font-size: .85rem; }
"""


def as_markdown(conversation: Conversation, tree: Tree) -> str:
    """Return the current branch as Markdown, after a front matter of its facts and figures."""
    branch = tree.branch(conversation.leaf)
    front = {
        "title": conversation.title,
        "date": _date(conversation.created),
        "pair": conversation.pair,
        **_rates(branch),
    }
    known = [
        (name, json.dumps(value, ensure_ascii=False)) for name, value in front.items() if value
    ]
    lines = ["---", *(f"{name}: {value}" for name, value in known), "---"]
    if conversation.system_prompt:
        lines += ["", "## System", "", conversation.system_prompt]
    for message in branch:
        text = with_attachments(message.text, message.attachments)
        lines += ["", f"## {NAMES[message.role]}", "", text]
        if figures := answer_line(message.statistics):
            lines += ["", f"*{figures}*"]
    return "\n".join(lines) + "\n"


def as_json(conversation: Conversation, tree: Tree) -> str:
    """Return everything as JSON: all branches, statistics and the origin of each token."""
    messages = [asdict(tree[number]) for number in tree.numbers]
    return json.dumps({**asdict(conversation), "messages": messages}, ensure_ascii=False, indent=2)


def as_html(conversation: Conversation, tree: Tree) -> str:
    """Return the current branch as one page that runs nothing the model wrote.

    Markdown is rendered, except HTML, which is shown as text, and images, which would be fetched
    from wherever the model says.
    """
    title = escape(conversation.title)
    system = conversation.system_prompt
    parts = [
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f'<meta http-equiv="Content-Security-Policy" content="{GUARD}">',
        f"<style>\n{STYLE}</style></head><body>",
        (
            f'<h1>{title}</h1><p class="figures">{_date(conversation.created)}'
            f" · {escape(conversation.pair)}</p>"
        ),
        *([_part("system", "System", _plain(system))] if system else []),
        *(_section(message) for message in tree.branch(conversation.leaf)),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


EXPORTS: Mapping[str, Callable[[Conversation, Tree], str]] = {
    "md": as_markdown,
    "json": as_json,
    "html": as_html,
}


def _section(message: Message) -> str:
    """Return a question as plain text with its files, or an answer as rendered Markdown."""
    if message.role == "user":
        files = (_folded(each.name, each.content) for each in message.attachments)
        return _part("user", NAMES["user"], "".join([_plain(message.text), *files]))
    reasoning, answer, _ = split_reasoning(message.text)
    figures = answer_line(message.statistics)
    content = [
        _folded("Reasoning", reasoning) if reasoning else "",
        _rendered(answer),
        f'<p class="figures">{escape(figures)}</p>' if figures else "",
    ]
    return _part("assistant", NAMES["assistant"], "".join(content))


def _part(kind: str, name: str, content: str) -> str:
    return f'<section class="{kind}"><h2 class="who">{name}</h2>{content}</section>'


def _plain(text: str) -> str:
    return f'<pre class="plain">{escape(text)}</pre>'


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{_plain(text)}</details>"


def _rendered(text: str) -> str:
    from markdown_it import MarkdownIt

    rules = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    return str(rules.disable("image").render(text))


def _rates(branch: list[Message]) -> dict[str, float]:
    """Return the rates of all answers together, as far as they are known."""
    totals = add_up(row.statistics for row in answer_rows(branch))
    rates = {
        "tokens_per_second": (totals.tokens_per_second, 1),
        "acceptance_rate": (totals.acceptance_rate, 3),
    }
    return {name: round(rate, digits) for name, (rate, digits) in rates.items() if rate is not None}


def _date(moment: float) -> str:
    return strftime("%Y-%m-%d %H:%M", localtime(moment))
