"""A conversation as a file: Markdown, JSON or HTML."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from html import escape
from time import localtime, strftime

from specchat.chat.answer_statistics import in_words
from specchat.chat.attachments import with_attachments
from specchat.chat.conversation import Conversation, Message, Tree
from specchat.chat.reasoning import split_reasoning

__all__ = ["EXPORTS", "as_html", "as_json", "as_markdown"]

NAMES = {"user": "User", "assistant": "Assistant"}
GUARD = "default-src 'none'; style-src 'unsafe-inline'"
"""What the page may load and run: nothing but its own style."""
STYLE = """\
:root { color-scheme: light dark; }
body { font-family: sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
section { margin: 1.2rem 0; padding: .2rem 1rem; border-left: .3rem solid #8888; }
section.user { border-color: #0178d4; }
section.system { border-color: #ffa62b; }
h2.who { font-size: 1rem; margin: .4rem 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
pre.words { font-family: inherit; }
code, pre { background: #8882; } pre.words, pre code { background: none; }
table { border-collapse: collapse; } th, td { border: 1px solid #8888; padding: .2rem .5rem; }
summary { cursor: pointer; opacity: .7; }
p.figures { opacity: .6; font-size: .85rem; }
"""


def as_markdown(conversation: Conversation, tree: Tree) -> str:
    """Return the branch that is read, with what is known of it in front."""
    branch = tree.branch(conversation.leaf)
    front = {
        "title": conversation.title,
        "date": _date(conversation.created),
        "pair": conversation.pair,
        **_figures(branch),
    }
    known = [
        (name, json.dumps(value, ensure_ascii=False)) for name, value in front.items() if value
    ]
    lines = ["---", *(f"{name}: {value}" for name, value in known), "---"]
    if conversation.system_prompt:
        lines += ["", "## System", "", conversation.system_prompt]
    for message in branch:
        told = with_attachments(message.text, message.attachments)
        lines += ["", f"## {NAMES[message.role]}", "", told]
        if figures := in_words(message.statistics):
            lines += ["", f"*{figures}*"]
    return "\n".join(lines) + "\n"


def as_json(conversation: Conversation, tree: Tree) -> str:
    """Return everything: all branches, statistics and where tokens came from."""
    messages = [asdict(tree[number]) for number in tree.numbers]
    return json.dumps({**asdict(conversation), "messages": messages}, ensure_ascii=False, indent=2)


def as_html(conversation: Conversation, tree: Tree) -> str:
    """Return the branch that is read as one page; nothing a model wrote is obeyed there.

    Its Markdown is rendered, but for HTML, which is shown as it is written, and images, which
    would be fetched from wherever the model says.
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
        *([_part("system", "System", _words(system))] if system else []),
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
    """Return a question as it was written, with its files; an answer with its Markdown rendered."""
    if message.role == "user":
        files = (_folded(each.name, each.content) for each in message.attachments)
        return _part("user", NAMES["user"], "".join([_words(message.text), *files]))
    reasoning, answer, _ = split_reasoning(message.text)
    figures = in_words(message.statistics)
    content = [
        _folded("Reasoning", reasoning) if reasoning else "",
        _rendered(answer),
        f'<p class="figures">{escape(figures)}</p>' if figures else "",
    ]
    return _part("assistant", NAMES["assistant"], "".join(content))


def _part(kind: str, name: str, content: str) -> str:
    return f'<section class="{kind}"><h2 class="who">{name}</h2>{content}</section>'


def _words(text: str) -> str:
    return f'<pre class="words">{escape(text)}</pre>'


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{_words(text)}</details>"


def _rendered(text: str) -> str:
    from markdown_it import MarkdownIt

    rules = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    return str(rules.disable("image").render(text))


def _figures(branch: list[Message]) -> dict[str, float]:
    """Return what the answers came to on the mean."""
    known = [message.statistics for message in branch if message.statistics.get("decode_s")]
    seconds = sum(stats["decode_s"] for stats in known)
    drafted = sum(stats["drafted"] for stats in known)
    found: dict[str, float] = {}
    if seconds:
        tokens = sum(stats["generated_tokens"] for stats in known)
        found["tokens_per_second"] = round(tokens / seconds, 1)
    if drafted:
        found["acceptance_rate"] = round(sum(stats["accepted"] for stats in known) / drafted, 3)
    return found


def _date(moment: float) -> str:
    return strftime("%Y-%m-%d %H:%M", localtime(moment))
