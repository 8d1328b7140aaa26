"""The line at the top: what is open and how full the context is; and the composer's title."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.markup import escape
from rich.text import Text
from textual.content import Content

from specchat.chat.safe_text import harmless, in_one_line
from specchat.hub.client import is_offline
from specchat.options.declarations import AUTO_THINK
from specchat.tui.commands import key_names

if TYPE_CHECKING:
    from specchat.tui.app import ChatApp
    from specchat.tui.controllers.answers import Answers

SEPARATOR = "  ·  "
STOP_WIDTH = 14
"""Columns at the right that belong to the stop button, with the margin before it."""
MIN_TITLE_WIDTH = 12
EDITING = "Editing: Enter resends · Esc cancels"
QUEUED_WIDTH = 40
"""Columns of the question that is shown while it waits."""


def stop_button(chat: ChatApp) -> str:
    """Return the words that stop an answer when they are clicked; nothing if none is written."""
    key = key_names(chat.setup.keys.get("stop", "escape"))
    return f"■ stop {key} " if chat.answers.current is not None else ""


def top_line(chat: ChatApp, figures: str, width: int) -> Content:
    """Return the top line for a screen of that width, 0 for a narrow one: the title stands out.

    A wide screen ends with the context, for which the title is shortened; a narrow one begins with
    it, because its end is cut off.
    """
    conversations = chat.conversations
    prompt = "system prompt" if conversations.system_prompt else ""
    preset = f"preset {conversations.preset.name}" if conversations.preset else prompt
    facts = chat.pair_controller.facts
    size = facts.context if facts else 0
    is_kept = chat.answers.current is not None or bool(facts and facts.keeps_reasoning)
    context = chat.answers.figures.context_share(size, with_reasoning=is_kept)
    badges = ["not saved"] * (chat.setup.history is None) + ["offline"] * is_offline()
    before = [chat.pulls.summary(), figures]
    word = chat.answers.thinking
    thinking = f"think: {in_one_line(word)}" if word != AUTO_THINK else ""
    after = [chat.pair_controller.pair.name, preset, thinking, *badges]
    title = Text(conversations.title or "new chat")
    if width:
        after.append(context and f"{context} of {size}")
        used = sum(cell_len(part) + len(SEPARATOR) for part in [*before, *after] if part)
        title.truncate(max(width - STOP_WIDTH - used, MIN_TITLE_WIDTH), overflow="ellipsis")
    else:
        before.insert(0, context)
    styles = {len(before): "bold $foreground"}
    parts = [
        Content.styled(harmless(part), styles.get(place, ""))
        for place, part in enumerate([*before, title.plain, *after])
    ]
    return Content(SEPARATOR).join([part for part in parts if part])


def composer_title(answers: Answers) -> str:
    """Return what stands above the composer: that a question is edited, or that some wait."""
    if answers.queued:
        first, more = in_one_line(answers.queued[0][0]), len(answers.queued) - 1
        text = Text(first + (f" (+{more})" if more else ""))
        text.truncate(QUEUED_WIDTH, overflow="ellipsis")
        return escape(f"Queued: {text.plain}")
    return EDITING if answers.editing is not None else ""
