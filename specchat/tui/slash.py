"""Slash commands: what can be typed after a slash, from the table of commands; no Textual here."""

import re

from specchat.tui.commands import COMMANDS, Command

WORD = re.compile(r"/(\w*)(?:\s+(.*))?")
SLASHES = {word: command for command in COMMANDS for word in command.slash}


def is_slash(text: str) -> bool:
    """Return True for a command: one line that starts with a slash and a word.

    A path is not a command: another slash follows its first name.
    """
    return bool(WORD.fullmatch(text))


def matching(text: str) -> dict[str, Command]:
    """Return the commands whose word starts with what is typed, by their words."""
    found = WORD.fullmatch(text)
    is_word = found is not None and found[2] is None and not text[-1].isspace()
    start = text[1:].lower()
    return {word: each for word, each in SLASHES.items() if is_word and word.startswith(start)}


def find_slash(text: str) -> str:
    """Return the action that a text calls, such as `export('md')`.

    Raises ValueError with a message for the user.
    """
    found = WORD.fullmatch(text.strip())
    word, given = (found[1].lower(), (found[2] or "").strip()) if found else ("", "")
    command = SLASHES.get(word)
    if command is None:
        raise ValueError(
            f"Unknown command /{word}. Type / for a list; a space before it sends it as text."
        )
    if given and given not in command.takes:
        takes = f"one of {', '.join(command.takes)}" if command.takes else "no argument"
        raise ValueError(f"/{word} takes {takes}, not {given}.")
    argument = given or next(iter(command.takes), "")
    return f"{command.id}({argument!r})" if argument else command.id
