"""Tool calls as Markdown: code blocks titled with the tools' names; no widgets here."""

import json
import re
from collections.abc import Iterable

from specchat.decoding.chunk import ToolCall
from specchat.safe_text import in_one_line, safe_json
from specchat.tui.markdown.growing_text import TITLED

WRITING, UNFINISHED = "writing a call …", "unfinished call"


def calls_markdown(calls: Iterable[ToolCall], open_call: str, *, is_growing: bool) -> str:
    """Return the complete calls with their arguments, then the raw text of an incomplete one."""
    blocks = [
        _block("json", f"call: {call.name}", pretty_arguments(call.arguments)) for call in calls
    ]
    if open_call:
        title = WRITING if is_growing else UNFINISHED
        blocks.append(_block("text", title, open_call, is_closed=False))
    return "\n\n".join(blocks)


def pretty_arguments(arguments: str) -> str:
    """Return JSON arguments indented; anything else unchanged."""
    try:
        return safe_json(json.loads(arguments), indent=2)
    except (ValueError, RecursionError):
        return arguments


def _block(language: str, title: str, code: str, *, is_closed: bool = True) -> str:
    """Return a code block with a title; without the closing fence it can grow."""
    longest = max((len(run) for run in re.findall("~+", code)), default=0)
    fence = "~" * max(3, longest + 1)
    lines = [f"{fence}{language} {TITLED}{in_one_line(title)}", code]
    return "\n".join([*lines, fence] if is_closed else lines)
