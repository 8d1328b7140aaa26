"""Files that a message names by @: found while writing, put into the text when it is sent."""

from __future__ import annotations

import re
from pathlib import Path

from specchat.errors import InvalidOption

__all__ = ["completions", "with_files"]

NAME = re.compile(r"(?<!\S)@(\S+)")
LARGEST_FILE = 512 * 1024
MOST_COMPLETIONS = 200


def completions(word: str, folder: Path) -> list[str]:
    """Return the names of files and folders that a word may become."""
    within, slash, begin = word.rpartition("/")
    parent = Path(within + slash).expanduser()
    try:
        found = sorted((folder / parent).iterdir(), key=lambda path: path.name.lower())
    except OSError:
        return []
    names = [
        str(parent / path.name) + ("/" if path.is_dir() else "")
        for path in found
        if path.name.lower().startswith(begin.lower())
        and (begin.startswith(".") or not path.name.startswith("."))
        and " " not in path.name
    ]
    return names[:MOST_COMPLETIONS]


def with_files(text: str, folder: Path) -> str:
    """Return a message with the contents of the files it names below it.

    What names no file is left as it is. Raises InvalidOption for a file that is no text or too
    large.
    """
    parts = [text]
    for name in dict.fromkeys(NAME.findall(text)):
        path = (folder / Path(name).expanduser()).resolve()
        if path.is_file():
            parts.append(f"{name}:\n{_fenced(_content(path, name))}")
    return "\n\n".join(parts)


def _content(path: Path, name: str) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InvalidOption(f"{name} is larger than {LARGEST_FILE // 1024} KiB: attach a part")
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise InvalidOption(f"{name} is no text in UTF-8: attach a text file") from None
    except OSError as error:
        raise InvalidOption(f"{name} cannot be read: {error.strerror}") from None


def _fenced(content: str) -> str:
    """Put a text into a fence that nothing in it can end."""
    longest = max((len(run) for run in re.findall(r"`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{content.rstrip()}\n{fence}"
