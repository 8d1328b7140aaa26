"""Exports of a conversation: Markdown, JSON or HTML."""

import base64
import html
import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from time import localtime, strftime, time
from typing import Any

from specchat.chat.answer_statistics import add_up, measured_answers
from specchat.chat.conversation import Conversation, Message, Tree, fenced, with_attachments
from specchat.errors import InvalidOption, StoreFailed
from specchat.images.image import Image, data_url
from specchat.safe_text import in_one_line, safe_json
from specchat.system.current_folder import current_folder
from specchat.system.private_files import replace_file, write_new, write_private
from specchat.wording import answer_line, size_text

NAMES = {"user": "User", "assistant": "Assistant"}
MAX_NAME_LENGTH = 40
"""The most characters of a title to put into the name of an exported file."""
PAGE = Path(__file__).with_suffix(".html")
"""The template of an HTML export, whose content security policy blocks all loading."""

HTML_ENDS = {
    "<!--": "-->",
    "<![cdata[": "]]>",
    "<!": ">",
    "<?": "?>",
    **{f"<{tag}": f"</{tag}>" for tag in ("pre", "script", "style", "textarea")},
}
"""Starts of HTML blocks that can contain empty lines, and their ends (CommonMark 0.31, 4.6)."""


def as_markdown(conversation: Conversation, tree: Tree) -> str:
    """Return the current branch as Markdown, with the conversation's details as front matter."""
    branch = tree.branch(conversation.leaf)
    totals = add_up(answer.statistics for answer in measured_answers(branch))
    front = {
        "title": conversation.title,
        "date": date_text(conversation.created),
        "pair": conversation.pair,
        "schema": conversation.schema.typed if conversation.schema else "",
        "tokens_per_second": round(totals.tokens_per_second or 0.0, 1),
        "acceptance_rate": round(totals.acceptance_rate or 0.0, 3),
    }
    known = {name: json.dumps(value, ensure_ascii=False) for name, value in front.items() if value}
    lines = ["---", *(f"{name}: {value}" for name, value in known.items()), "---"]
    if conversation.system_prompt:
        lines += ["", "## System", "", conversation.system_prompt]
    for message in branch:
        lines += ["", f"## {NAMES[message.role]}"]
        if message.reasoning:
            lines += ["", _folded("Reasoning", message.reasoning)]
        lines += [f"\n*{in_one_line(image_line(each))}*" for each in message.images]
        if text := with_attachments(message.text, message.attachments):
            lines += ["", _closed(text)]
        for title, arguments in _calls(message):
            lines += ["", _folded(title, arguments)]
        if figures := answer_line(message.statistics):
            lines += ["", f"*{figures}*"]
    return "\n".join(lines) + "\n"


def as_json(conversation: Conversation, tree: Tree) -> str:
    """Return everything as JSON: all branches, statistics, and each token's origin and kind.

    Files of images are in base64.
    """
    messages = [
        {
            **asdict(replace(each, images=())),
            "tool_calls": [call._asdict() for call in each.tool_calls],
            "images": [{"name": image.name, "data": _base64(image)} for image in each.images],
        }
        for _, each in sorted(tree.items())
    ]
    return safe_json({**asdict(conversation), "messages": messages}, indent=2)


def as_html(conversation: Conversation, tree: Tree) -> str:
    """Return the current branch as a single HTML page that executes nothing the model wrote.

    Markdown is rendered, but HTML in it is shown as text, and images in it are not loaded, because
    the model could choose their address. Those of questions are in the page itself.
    """
    from jinja2 import Environment

    page = Environment(autoescape=True, trim_blocks=True).from_string(PAGE.read_text("utf-8"))
    parts = [_part(message) for message in tree.branch(conversation.leaf)]
    return page.render(conversation=conversation, date=date_text(conversation.created), parts=parts)


def output_path(name: str | Path, endings: Collection[str]) -> Path:
    """Return the path that a name stands for: as in a shell, in this folder or in one it names.

    Raises InvalidOption unless a file can be there, and for another ending than these.
    """
    try:
        path = current_folder() / Path(name).expanduser()
        has_folder, is_folder = path.parent.is_dir(), path.is_dir()
    except RuntimeError as error:  # no such user
        raise InvalidOption(f"{name}: {error}") from None
    except OSError as error:  # a folder that must not be searched, or a name that is too long
        raise InvalidOption(f"{name}: {error.strerror}") from None
    if path.suffix not in endings:
        raise InvalidOption(f"{name}: the file name must end in {', '.join(endings)}")
    if not has_folder:
        raise InvalidOption(f"{name}: no folder {path.parent}; create it first")
    if is_folder:
        raise InvalidOption(f"{name} is a folder: name a file in it")
    return path


def write_export(path: Path, content: str | bytes, *, overwrite: bool = False) -> Path:
    """Write a file and return its path; a new one is private. On StoreFailed nothing changes."""
    data = content.encode() if isinstance(content, str) else content
    try:
        if not overwrite:
            write_new(path, data)
        elif os.path.exists(path):
            replace_file(path, data)
        else:
            write_private(path, data)
    except OSError as error:
        raise StoreFailed(f"{path} cannot be written: {error.strerror}") from None
    return path


def export_file(folder: Path, form: str, conversation: Conversation, tree: Tree) -> Path:
    """Write a conversation to a new file of a form in `EXPORTS`, and return its path."""
    words = re.findall(r"\w+", conversation.title.lower())
    name = "-".join(words)[:MAX_NAME_LENGTH].strip("-") or "chat"
    path = folder / f"specchat-{conversation.id}-{name}-{int(time())}.{form}"
    return write_export(path, EXPORTS[form](conversation, tree))


EXPORTS: Mapping[str, Callable[[Conversation, Tree], str]] = {
    "md": as_markdown,
    "json": as_json,
    "html": as_html,
}


def _part(message: Message) -> dict[str, Any]:
    """Return a message's data for the template; only `answer` is HTML."""
    part = {"role": message.role, "name": NAMES[message.role]}
    if message.role == "user":
        files = [(attachment.name, attachment.content) for attachment in message.attachments]
        images = [(each.name, data_url(each.data)) for each in message.images]
        return {**part, "question": message.text, "folded": files, "images": images}
    return {
        **part,
        "folded": [("Reasoning", message.reasoning)] if message.reasoning else [],
        "answer": _rendered(message.text),
        "calls": _calls(message),
        "figures": answer_line(message.statistics),
    }


def image_line(image: Image) -> str:
    """Return what stands for an image where only text can."""
    return f"Image: {image.name} ({size_text(image.num_bytes)})"


def _base64(image: Image) -> str:
    return base64.b64encode(image.data).decode()


def _calls(message: Message) -> list[tuple[str, str]]:
    """Return the title and the arguments of each tool call of a message."""
    return [(f"Call: {in_one_line(call.name)}", call.arguments) for call in message.tool_calls]


def _folded(title: str, content: str) -> str:
    """Return Markdown with a collapsible text; the fence keeps the text from ending the element."""
    return (
        f"<details><summary>{html.escape(title, quote=False)}</summary>"
        f"\n\n{fenced(content)}\n\n</details>"
    )


def _rendered(text: str) -> str:
    from markdown_it import MarkdownIt

    rules = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    return str(rules.disable("image").render(text))


def _closed(text: str) -> str:
    """Return Markdown with an open code or HTML block closed, so that it ends with the message."""
    from markdown_it import MarkdownIt

    # "after", or the open block with it
    last = MarkdownIt("commonmark").parse(f"{text}\n\nafter")[-1]
    if last.type == "fence":
        return f"{text}\n{last.markup}"
    start = last.content.lower() if last.type == "html_block" else ""
    ends = (f"\n{end}" for begin, end in HTML_ENDS.items() if start.startswith(begin))
    return text + next(ends, "")


def date_text(moment: float) -> str:
    """Return a date and time in the user's time zone."""
    return strftime("%Y-%m-%d %H:%M", localtime(moment))
