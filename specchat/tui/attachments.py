"""Files that a message names by @: found while writing, put into the text when it is sent."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from specchat.errors import InvalidOption

__all__ = ["completions", "pasted_files", "with_files"]

NAME = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
"""A file's name, in quotes where there are spaces in it."""
LARGEST_FILE = 512 * 1024
MOST_COMPLETIONS = 200
LONGEST_PATHS = 4096


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
    for name in dict.fromkeys(quoted or plain for quoted, plain in NAME.findall(text)):
        path = (folder / Path(name).expanduser()).resolve()
        if path.is_file():
            parts.append(f"{name}:\n{_fenced(_content(path, name))}")
    return "\n\n".join(parts)


def pasted_files(text: str, folder: Path) -> list[str]:
    """Return how to name the text files that a pasted text consists of, if it does.

    Terminals paste the paths of files that are dropped on them, in quotes, with backslashes, or as
    file:// addresses.
    """
    words = text.strip()
    if not words or len(words) > LONGEST_PATHS or "\0" in words:
        return []
    paths = [_path(words)]
    if paths == [None]:
        with suppress(ValueError):  # a quotation mark too many
            paths = [_path(word) for word in shlex.split(words)]
    return [_named(path, folder) for path in paths if path] if all(paths) else []


def _path(word: str) -> Path | None:
    """Return the text file that a word names by its whole path; None if it names none."""
    if word.startswith("file://"):
        word = url2pathname(urlsplit(word).path)
    path = Path(word)
    with suppress(OSError, RuntimeError, InvalidOption):
        path = path.expanduser()
        if path.is_absolute() and path.is_file() and _content(path, word):
            return path
    return None


def _named(path: Path, folder: Path) -> str:
    """Return what names a file in a message, as short as can be."""
    name = str(path.relative_to(folder) if path.is_relative_to(folder) else path)
    return f'@"{name}"' if re.search(r"\s", name) else f"@{name}"


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
