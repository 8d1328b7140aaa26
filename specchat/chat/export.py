"""A conversation as a file: Markdown, JSON or HTML."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from html import escape
from time import localtime, strftime

from specchat.chat.conversation import Conversation, Message, Tree

__all__ = ["EXPORTS", "as_html", "as_json", "as_markdown"]

NAMES = {"user": "User", "assistant": "Assistant"}
STYLE = """\
:root { color-scheme: light dark; }
body { font-family: sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
section { margin: 1.2rem 0; padding: .2rem 1rem; border-left: .3rem solid #8888; }
section.user { border-color: #0178d4; }
h2 { font-size: 1rem; margin: .4rem 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-family: inherit; }
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
        lines += ["", f"## {NAMES[message.role]}", "", message.text]
    return "\n".join(lines) + "\n"


def as_json(conversation: Conversation, tree: Tree) -> str:
    """Return everything: all branches, statistics and where tokens came from."""
    messages = [asdict(tree[number]) for number in tree.numbers]
    return json.dumps({**asdict(conversation), "messages": messages}, ensure_ascii=False, indent=2)


def as_html(conversation: Conversation, tree: Tree) -> str:
    """Return the branch that is read as one page; nothing a model wrote is obeyed there."""
    title = escape(conversation.title)
    parts = [
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f"<style>\n{STYLE}</style></head><body>",
        (
            f'<h1>{title}</h1><p class="figures">{_date(conversation.created)}'
            f" · {escape(conversation.pair)}</p>"
        ),
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
    rate = message.statistics.get("tokens_per_second")
    figures = f'<p class="figures">{rate:.1f} tokens/s</p>' if rate else ""
    return (
        f'<section class="{message.role}"><h2>{NAMES[message.role]}</h2>'
        f"<pre>{escape(message.text)}</pre>{figures}</section>"
    )


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
