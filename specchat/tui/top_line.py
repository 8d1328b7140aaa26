"""The top line, with what is open and how full the context is, and the composer's title."""

from rich.cells import cell_len
from rich.markup import escape
from rich.text import Text
from textual.content import Content

from specchat.chat.safe_text import harmless, in_one_line
from specchat.hub.client import is_offline
from specchat.options.declarations import AUTO_THINK
from specchat.tui.commands import KeyOf
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.chat_state import ChatState

SEPARATOR = "  ·  "
STOP_WIDTH = 14
"""Columns reserved at the right for the stop button and the margin before it."""
MIN_TITLE_WIDTH = 12
QUEUED_WIDTH = 40
"""Columns shown of a queued question."""


def stop_button(answers: Answers, key_of: KeyOf) -> str:
    """Return the label of the stop button; empty while no answer is being written."""
    return f"■ stop {key_of('stop')} " if answers.current is not None else ""


def top_line(chat: ChatState, figures: str, width: int, *, is_saved: bool) -> Content:
    """Return the top line for a screen of this width, 0 for any narrow screen.

    On a wide screen the context use comes last, and the title is shortened to fit; on a narrow
    screen it comes first, because the end of the line is cut off.
    """
    conversations = chat.conversations
    prompt = "system prompt" if conversations.system_prompt else ""
    preset = f"preset {conversations.preset.name}" if conversations.preset else prompt
    facts = chat.pair_controller.facts
    size = facts.context if facts else 0
    is_kept = chat.answers.current is not None or bool(facts and facts.keeps_reasoning)
    context = chat.answers.figures.context_share(size, with_reasoning=is_kept)
    badges = ["not saved"] * (not is_saved) + ["offline"] * is_offline()
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
    parts = [
        *map(_plain, before),
        Content.styled(harmless(title.plain), "bold $foreground"),
        *map(_plain, after),
    ]
    return Content(SEPARATOR).join([part for part in parts if part])


def _plain(part: str) -> Content:
    return Content(harmless(part))


def composer_title(answers: Answers, key_of: KeyOf) -> str:
    """Return the title of the composer: which questions are queued, or that one is being edited."""
    if answers.queued:
        first, more = in_one_line(answers.queued[0][0]), len(answers.queued) - 1
        text = Text(first + (f" (+{more})" if more else ""))
        text.truncate(QUEUED_WIDTH, overflow="ellipsis")
        return escape(f"Queued: {text.plain}")
    editing = f"Editing: {key_of('send')} resends · {key_of('stop')} cancels"
    return editing if answers.editing is not None else ""
