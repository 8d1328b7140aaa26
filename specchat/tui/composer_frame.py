"""What the composer's frame says: how the next answer is made, and what can be done; no widgets."""

from collections.abc import Iterable

from rich.text import Text
from textual.content import Content
from textual.style import Style

from specchat.chat.safe_text import harmless, in_one_line
from specchat.options.declarations import AUTO_THINK, GenerateOptions
from specchat.tui.commands import KeyOf
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.chat_state import ChatState

QUEUED_WIDTH, NAME_WIDTH = 40, 20
"""Columns shown of a queued question and of the name of a preset."""


def frame_title(chat: ChatState, key_of: KeyOf) -> Content:
    """Return which questions are queued, or that one is edited, or else how the next is answered.

    A click on a setting changes it.
    """
    answers = chat.answers
    if answers.queued:
        first, more = answers.queued[0][0], len(answers.queued) - 1
        return Content(f"Queued: {_cut(first, QUEUED_WIDTH)}" + (f" (+{more})" if more else ""))
    if answers.editing is not None:
        return Content(f"Editing: {key_of('send')} resends · {key_of('stop')} cancels")
    settings = [_thinking(chat), _prompting(chat), _temperature(answers)]
    return _joined([Content("Message"), *settings])


def frame_subtitle(answers: Answers, key_of: KeyOf, *, is_behind: bool) -> Content:
    """Return the way to stop the answer, and the way back to the newest message, to click."""
    is_writing = answers.current is not None
    stop = _clickable(f"■ stop {key_of('stop')}", "stop") if is_writing else None
    return _joined([stop, _clickable("▼ latest", "latest") if is_behind else None])


def _thinking(chat: ChatState) -> Content | None:
    """Return the value of the thinking switch, if the model has one or the user has set it."""
    facts, word = chat.pair_controller.facts, chat.answers.thinking
    has_switch = facts is not None and bool(facts.thinking)
    return _clickable(f"thinking {word}", "think") if has_switch or word != AUTO_THINK else None


def _prompting(chat: ChatState) -> Content | None:
    preset = chat.conversations.preset
    if preset is not None:
        return _clickable(f"preset {_cut(preset.name, NAME_WIDTH)}", "presets")
    return _clickable("own system prompt", "system") if chat.conversations.system_prompt else None


def _temperature(answers: Answers) -> Content:
    temperature = answers.options.get("temperature", GenerateOptions().temperature)
    return _clickable(f"temperature {temperature:g}", "settings")


def _joined(parts: Iterable[Content | None]) -> Content:
    return Content(" · ").join([part for part in parts if part is not None])


def _clickable(words: str, command: str) -> Content:
    """Return words that run a command; names in them are not read as markup."""
    return Content.styled(harmless(words), Style.from_meta({"@click": f"app.{command}"}))


def _cut(words: str, width: int) -> str:
    text = Text(harmless(in_one_line(words)))
    text.truncate(width, overflow="ellipsis")
    return text.plain
