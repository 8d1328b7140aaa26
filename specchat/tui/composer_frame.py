"""What the composer's frame says: how the next answer is made, and what can be done; no widgets."""

from rich.markup import escape
from rich.text import Text

from specchat.chat.safe_text import harmless, in_one_line
from specchat.options.declarations import AUTO_THINK, GenerateOptions
from specchat.tui.commands import KeyOf
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.chat_state import ChatState

QUEUED_WIDTH, NAME_WIDTH = 40, 20
"""Columns shown of a queued question and of the name of a preset."""
SEPARATOR = " · "


def frame_title(chat: ChatState, key_of: KeyOf) -> str:
    """Return which questions are queued, or that one is edited, or else how the next is answered.

    The text is markup: a click on a setting changes it.
    """
    answers = chat.answers
    if answers.queued:
        first, more = in_one_line(answers.queued[0][0]), len(answers.queued) - 1
        return escape(f"Queued: {_cut(first + (f' (+{more})' if more else ''), QUEUED_WIDTH)}")
    if answers.editing is not None:
        return f"Editing: {key_of('send')} resends · {key_of('stop')} cancels"
    return SEPARATOR.join(filter(None, (_thinking(chat), _prompting(chat), _temperature(answers))))


def frame_subtitle(answers: Answers, key_of: KeyOf, *, is_behind: bool) -> str:
    """Return the way to stop the answer, and the way back to the newest message, as markup."""
    stops = f"[@click=app.stop]■ stop {key_of('stop')}[/]" if answers.current is not None else ""
    latest = "[@click=app.latest]▼ latest[/]" if is_behind else ""
    return SEPARATOR.join(filter(None, (stops, latest)))


def _thinking(chat: ChatState) -> str:
    """Return the value of the thinking switch, if the model has one or the user has set it."""
    facts, word = chat.pair_controller.facts, chat.answers.thinking
    has_switch = facts is not None and bool(facts.thinking)
    return _clickable(f"thinking {word}", "think") if has_switch or word != AUTO_THINK else ""


def _prompting(chat: ChatState) -> str:
    preset = chat.conversations.preset
    if preset is not None:
        return _clickable(f"preset {_cut(preset.name, NAME_WIDTH)}", "presets")
    return _clickable("system prompt", "system") if chat.conversations.system_prompt else ""


def _temperature(answers: Answers) -> str:
    temperature = answers.options.get("temperature", GenerateOptions().temperature)
    return _clickable(f"temperature {temperature:g}", "settings")


def _clickable(words: str, command: str) -> str:
    return f"[@click=app.{command}]{escape(harmless(words))}[/]"


def _cut(words: str, width: int) -> str:
    text = Text(harmless(in_one_line(words)))
    text.truncate(width, overflow="ellipsis")
    return text.plain
