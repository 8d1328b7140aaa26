"""Slash commands: what can be typed after a slash, from the table of commands; no Textual here."""

from __future__ import annotations

import re
from dataclasses import dataclass

from specchat.tui.commands import COMMANDS

__all__ = ["SLASHES", "Slash", "find_slash", "is_slash", "matching"]

WORD = re.compile(r"/(\w*)(?:\s+(.*))?")


@dataclass(frozen=True, slots=True)
class Slash:
    """A slash command: its name, its action, what it does, and the arguments it accepts."""

    name: str
    action: str
    help: str
    takes: tuple[str, ...] = ()


SLASHES = tuple(
    Slash(word, command.id, command.help, command.takes)
    for command in COMMANDS
    for word in command.slash
)


def is_slash(text: str) -> bool:
    """Return True for a command: one line that starts with a slash and a word.

    A path is not a command: another slash follows its first name.
    """
    return bool(WORD.fullmatch(text))


def matching(text: str) -> list[Slash]:
    """Return the commands whose name starts with what is typed."""
    found = WORD.fullmatch(text)
    is_name = found is not None and found[2] is None and not text[-1].isspace()
    return [each for each in SLASHES if is_name and each.name.startswith(text[1:].lower())]


def find_slash(text: str) -> tuple[Slash, str]:
    """Return the command that a text names, and its argument or the default one.

    Raises ValueError with a message for the user.
    """
    found = WORD.fullmatch(text.strip())
    name, given = (found[1].lower(), (found[2] or "").strip()) if found else ("", "")
    for slash in SLASHES:
        if slash.name == name:
            return slash, _argument(slash, given)
    raise ValueError(
        f"Unknown command /{name}. Type / for a list; a space before it sends it as text."
    )


def _argument(slash: Slash, given: str) -> str:
    if given and given not in slash.takes:
        allowed = f"takes one of {', '.join(slash.takes)}" if slash.takes else "takes no argument"
        raise ValueError(f"/{slash.name} {allowed}, not {given}.")
    return given or next(iter(slash.takes), "")
