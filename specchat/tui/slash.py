"""What can be written after a slash: commands of the chat by name; no widgets here."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["SLASHES", "Slash", "find_slash", "is_slash", "matching"]

WORD = re.compile(r"/(\w*)(?:\s+(.*))?")


@dataclass(frozen=True, slots=True)
class Slash:
    """A command: its name, the action of the chat, the words it may be given, and what it does."""

    name: str
    action: str
    help: str
    takes: tuple[str, ...] = ()


SLASHES = (
    Slash("stats", "answers", "Statistics, answer by answer"),
    Slash("models", "models", "Choose another pair, or pull one"),
    Slash("new", "new", "Begin a new conversation"),
    Slash("clear", "new", "The same: the old one stays in the list"),
    Slash("retry", "regenerate", "Answer the last question once more"),
    Slash("continue", "go_on", "Continue an answer that was stopped"),
    Slash("compare", "compare", "Decode the last answer plainly, to compare"),
    Slash("steps", "steps", "Go through the last answer step by step"),
    Slash("system", "system", "Write what the model is told first"),
    Slash("presets", "presets", "System prompts and sampling by name"),
    Slash("search", "search", "Search in all conversations"),
    Slash("export", "export", "Write this to a file", ("md", "json", "html")),
    Slash("settings", "settings", "Change settings"),
    Slash("undo", "undo", "Bring back what was deleted last"),
    Slash("help", "help", "Keys, and what the figures mean"),
    Slash("quit", "quit", "Leave the chat"),
)


def is_slash(text: str) -> bool:
    """Say whether a text is meant as a command: one line that begins with a slash and a word.

    A path is none, for another slash follows its first name.
    """
    return bool(WORD.fullmatch(text))


def matching(text: str) -> list[Slash]:
    """Return the commands whose name a text may become."""
    found = WORD.fullmatch(text)
    is_name = found is not None and found[2] is None and not text[-1].isspace()
    return [each for each in SLASHES if is_name and each.name.startswith(text[1:].lower())]


def find_slash(text: str) -> tuple[Slash, str]:
    """Return the command that a text names, and the word it is given, or the first it may be.

    Raises ValueError with what to tell the user.
    """
    found = WORD.fullmatch(text.strip())
    name, given = (found[1].lower(), (found[2] or "").strip()) if found else ("", "")
    for slash in SLASHES:
        if slash.name == name:
            return slash, _word(slash, given)
    raise ValueError(
        f"There is no command /{name}: / lists them; a space before it sends it as text."
    )


def _word(slash: Slash, given: str) -> str:
    if given and given not in slash.takes:
        allowed = f"one of {', '.join(slash.takes)}" if slash.takes else "nothing"
        raise ValueError(f"/{slash.name} takes {allowed} after it, not {given}.")
    return given or next(iter(slash.takes), "")
