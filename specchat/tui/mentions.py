"""Files that a message names by @: found while writing, put into the text when it is sent."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from specchat.chat.attachments import Attachment
from specchat.chat.safe_text import harmless
from specchat.errors import InvalidOption

__all__ = ["Named", "completions", "named_files", "pasted_files"]

NAME = re.compile(r'(?<![^\s(\[{<"\'])@(?:"([^"\n]+)"|(\S+))')
"""A file's name, in quotes where there are spaces in it."""
PUNCTUATION = ".,;:!?)]}>\"'"
"""What may follow a name in a sentence without being part of it."""
NO_PATH = (OSError, RuntimeError, ValueError)
"""Raised for names that no file can have: too long, a null in it, the home of nobody."""
LARGEST_FILE = 512 * 1024
MOST_COMPLETIONS = 200
LONGEST_PATHS = 4096


@dataclass(frozen=True, slots=True)
class Named:
    """The files that a message names, and the names that no file has."""

    files: tuple[Attachment, ...]
    missing: tuple[str, ...]


def completions(word: str, folder: Path) -> list[str]:
    """Return the names of files and folders that a word may become, in quotes where they must be.

    The quotes of a folder stay open, for its name goes on.
    """
    within, slash, begin = word.removeprefix('"').rpartition("/")
    try:
        parent = Path(within + slash).expanduser()
        found = sorted((folder / parent).iterdir(), key=lambda path: path.name.lower())
    except NO_PATH:
        return []
    matching = [
        path
        for path in found
        if path.name.lower().startswith(begin.lower())
        and (begin.startswith(".") or not path.name.startswith("."))
        and path.name == harmless(path.name)
    ]
    return [_completed(parent, path) for path in matching[:MOST_COMPLETIONS]]


def named_files(text: str, folder: Path, known: Iterable[Attachment] = ()) -> Named:
    """Return the files that a message names, with their contents.

    A file that is no longer there is taken from those that are known from before. Raises
    InvalidOption for a file that is no text or too large.
    """
    before = {each.name: each for each in known}
    files: dict[str, Attachment] = {}
    missing = []
    for quoted, plain in NAME.findall(text):
        for name in [quoted] if quoted else _possible(plain):
            path = _file(folder, name)
            if path is not None:
                files[name] = Attachment(name, _content(path, name))
            elif name in before:
                files[name] = before[name]
            if name in files:
                break
        else:
            missing.append(quoted or plain.rstrip(PUNCTUATION) or plain)
    return Named(tuple(files.values()), tuple(dict.fromkeys(missing)))


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


def _possible(word: str) -> Iterator[str]:
    """Yield the names that a word may stand for: the longest first, what follows a name last."""
    yield word
    while word and word[-1] in PUNCTUATION:
        word = word[:-1]
        yield word


def _file(folder: Path, name: str) -> Path | None:
    """Return the file of that name; None if there is none, or can be none."""
    with suppress(*NO_PATH):
        path = folder / Path(name).expanduser()
        return path if name and path.is_file() else None
    return None


def _completed(parent: Path, path: Path) -> str:
    """Return a whole name as it is written behind an @."""
    name, is_folder = str(parent / path.name), path.is_dir()
    whole = f"{name}/" if is_folder else name
    if not re.search(r"\s", name):
        return whole
    return f'"{whole}' if is_folder else f'"{whole}"'


def _path(word: str) -> Path | None:
    """Return the text file that a word names by its whole path; None if it names none."""
    if word.startswith("file://"):
        word = url2pathname(urlsplit(word).path)
    path = Path(word)
    with suppress(*NO_PATH, InvalidOption):
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
