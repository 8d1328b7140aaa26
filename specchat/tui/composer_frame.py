"""What the composer's frame says: how the next answer is made, and what can be done; no widgets."""

from collections.abc import Iterable

from rich.text import Text
from textual.content import Content
from textual.style import Style

from specchat.options.declarations import AUTO_THINK
from specchat.safe_text import harmless, in_one_line
from specchat.tui.commands import KeyOf
from specchat.tui.controllers.chat_state import ChatState
from specchat.wording import duration_text

QUEUED_WIDTH, NAME_WIDTH = 40, 20
"""Columns shown of a queued question and of the name of a preset or a schema."""


def frame_title(chat: ChatState, key_of: KeyOf) -> Content:
    """Return which questions are queued, or that one is edited, or else how the next is answered.

    A click on a setting changes it.
    """
    questions = chat.questions
    if waiting := questions.waiting:
        first, more = waiting[0].written, len(waiting) - 1
        return Content(f"Queued: {_cut(first, QUEUED_WIDTH)}" + (f" (+{more})" if more else ""))
    if questions.editing is not None:
        return Content(f"Editing: {key_of('send')} resends · {key_of('stop')} cancels")
    settings = [_thinking(chat), _schema(chat), _prompting(chat), _temperature(chat)]
    return _joined([Content("Message"), *settings])


def frame_subtitle(chat: ChatState, key_of: KeyOf, *, is_behind: bool, is_empty: bool) -> Content:
    """Return the message's size, and what to click: stop the answer, or show the newest message."""
    is_writing = chat.answers.here is not None
    stop = _clickable(f"■ stop {key_of('stop')}", "stop") if is_writing else None
    latest = _clickable("▼ latest" + " End" * is_empty, "latest") if is_behind else None
    return _joined([_size(chat), _read_again(chat), stop, latest])


def _read_again(chat: ChatState) -> Content | None:
    """Return what of the conversation the next question has read again, and how long that takes."""
    count, seconds = chat.message_size.num_again, chat.message_size.again_s
    if not count:
        return None
    takes = f": about {duration_text(seconds)}" if seconds else ""
    return Content.styled(f"reads {count} tokens again{takes}", "$text-warning")


def _size(chat: ChatState) -> Content | None:
    """Return how many tokens the message has, and what that means for the context."""
    size, facts = chat.message_size.size, chat.pair_controller.facts
    if size is None:
        return None
    count = size.message_tokens
    words = f"~{count}" if chat.message_size.is_estimate else f"{count}"
    words = f"{words} token{'s' * (count != 1)}"
    capacity = facts.context if facts else 0
    if size.is_too_long or count > capacity > 0:
        limit = f" of {capacity}" if capacity else ""
        return Content.styled(f"{words}: too long for the context{limit}", "$text-warning")
    if size.num_left_out > chat.answers.figures.statistics.left_out:
        return Content.styled(
            f"{words}: {size.num_left_out} older messages drop out", "$text-warning"
        )
    return Content(words)


def _thinking(chat: ChatState) -> Content | None:
    """Return the value of the thinking switch, if the model has one or the user has set it.

    Of a server's model it is not known; there, auto asks for nothing.
    """
    facts, word = chat.pair_controller.facts, chat.options.thinking
    has_switch = facts is not None and bool(facts.thinking) and not facts.served_by
    return _clickable(f"thinking {word}", "think") if has_switch or word != AUTO_THINK else None


def _schema(chat: ChatState) -> Content | None:
    """Return the schema that answers follow, if there is one."""
    schema = chat.conversations.schema
    return _clickable(f"schema {_cut(schema.name, NAME_WIDTH)}", "schema") if schema else None


def _prompting(chat: ChatState) -> Content | None:
    preset = chat.conversations.preset
    if preset is not None:
        return _clickable(f"preset {_cut(preset.name, NAME_WIDTH)}", "presets")
    return _clickable("own system prompt", "system") if chat.conversations.system_prompt else None


def _temperature(chat: ChatState) -> Content:
    return _clickable(
        f"temperature {chat.options.temperature:g}", "settings('sampling.temperature')"
    )


def _joined(parts: Iterable[Content | None]) -> Content:
    return Content(" · ").join([part for part in parts if part is not None])


def _clickable(words: str, command: str) -> Content:
    """Return words that run a command; names in them are not read as markup."""
    return Content.styled(harmless(words), Style.from_meta({"@click": f"app.{command}"}))


def _cut(words: str, width: int) -> str:
    text = Text(harmless(in_one_line(words)))
    text.truncate(width, overflow="ellipsis")
    return text.plain
