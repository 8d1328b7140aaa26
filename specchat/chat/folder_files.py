"""The text files of a folder, or those that match a pattern such as `src/**/*.py`."""

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from specchat.chat.text_files import LARGEST_FILE, decoded
from specchat.errors import InvalidOption
from specchat.safe_text import in_one_line

WILDCARDS = frozenset("*?[")
ANY_DEPTH = "**"
GENERATED = frozenset({"node_modules", "__pycache__"})
"""Folders of which other programs write and read the files."""
MOST_FILES, LARGEST_TOTAL, MOST_ENTRIES = 100, 1024 * 1024, 10_000
"""The most text files to take at a time, their bytes together, and the entries to look at."""


@dataclass(slots=True)
class FolderFiles:
    """The texts of files by their names, their encodings other than UTF-8, and what was skipped."""

    contents: dict[str, str] = field(default_factory=dict)
    encodings: dict[str, str] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    """The number of files, and of whole folders, for each reason."""

    def __str__(self) -> str:
        """Return how many files there are, and how many were skipped and why."""
        count, num_skipped = len(self.contents), self.skipped.total()
        words = f"{count} file{'s' * (count != 1)}"
        reasons = ", ".join(f"{number} {reason}" for reason, number in self.skipped.items())
        return f"{words}, skipped {num_skipped} ({reasons})" if num_skipped else words


def has_wildcards(name: str) -> bool:
    """Return True if a name is a pattern."""
    return not WILDCARDS.isdisjoint(name)


def read_files(name: str, folder: Path) -> FolderFiles:
    """Return the text files in the folder `name` and below it, or those matching it as a pattern.

    A name relative to `folder` gives relative names. Hidden files, links, and files that are not
    text or too large are skipped, and counted. Raises InvalidOption if that is too much, and
    OSError or ValueError if there is no such folder.
    """
    base, patterns = _divided(name)
    root = folder / Path(base).expanduser()
    found = FolderFiles()
    total = 0
    for names, entry in _files(root, patterns, found.skipped, name):
        content = _content(entry, found.skipped)
        if content is None:
            continue
        total += entry.stat().st_size
        if len(found.contents) == MOST_FILES:
            raise InvalidOption(f"{name} has more than {MOST_FILES} text files. Name fewer.")
        if total > LARGEST_TOTAL:
            limit = f"{LARGEST_TOTAL >> 20} MiB"
            raise InvalidOption(
                f"The files of {name} are larger than {limit} together. Name fewer."
            )
        shown = base + "/".join(names)
        found.contents[shown], encoding = content
        if encoding:
            found.encodings[shown] = encoding
    return found


def _divided(name: str) -> tuple[str, list[str]]:
    """Return a folder with a slash at its end, and the patterns of the names below it."""
    parts = name.split("/")
    first = next((place for place, part in enumerate(parts) if has_wildcards(part)), None)
    if first is None:
        return f"{name.rstrip('/')}/", [ANY_DEPTH]
    return "".join(f"{part}/" for part in parts[:first]), parts[first:]


def _files(
    root: Path, patterns: Sequence[str], skipped: Counter[str], name: str
) -> Iterator[tuple[list[str], os.DirEntry[str]]]:
    """Yield the matching files below a folder in order, with the names that lead to them."""
    num_seen = 0
    waiting: list[list[str]] = [[]]
    while waiting:
        above = waiting.pop()
        try:
            entries = sorted(os.scandir(root.joinpath(*above)), key=lambda entry: entry.name)
        except OSError:
            if not above:
                raise
            skipped["unreadable"] += 1
            continue
        num_seen += len(entries)
        if num_seen > MOST_ENTRIES:
            raise InvalidOption(f"{name} has more than {MOST_ENTRIES} entries. Name a part of it.")
        folders = []
        for entry in entries:
            names = [*above, entry.name]
            is_folder = entry.is_dir(follow_symlinks=False)
            if not _matches(names, patterns, is_folder=is_folder):
                continue
            if reason := _why_not(entry, patterns):
                skipped[reason] += 1
            elif is_folder:
                folders.append(names)
            else:
                yield names, entry
        waiting += reversed(folders)


def _matches(names: Sequence[str], patterns: Sequence[str], *, is_folder: bool) -> bool:
    """Return True for a file that matches, and for a folder in which one may match."""
    if not names:
        return is_folder or not patterns
    if not patterns:
        return False
    first, *others = patterns
    if first == ANY_DEPTH:
        is_below = _matches(names[1:], patterns, is_folder=is_folder)
        return is_below or not others or _matches(names, others, is_folder=is_folder)
    return fnmatchcase(names[0], first) and _matches(names[1:], others, is_folder=is_folder)


def _why_not(entry: os.DirEntry[str], patterns: Sequence[str]) -> str:
    """Return why an entry is skipped, empty if it is not. Patterns may name hidden files."""
    is_named = any(
        fnmatchcase(entry.name, pattern) for pattern in patterns if pattern.startswith(".")
    )
    if entry.name.startswith(".") and not is_named:
        return "hidden"
    if in_one_line(entry.name) != entry.name:
        return "with unprintable names"
    if entry.is_symlink():
        return "links"
    if entry.is_dir(follow_symlinks=False):
        return "generated" if entry.name in GENERATED else ""
    if not stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
        return "not files"
    return ""


def _content(entry: os.DirEntry[str], skipped: Counter[str]) -> tuple[str, str] | None:
    """Return a file's text and the name of its encoding; None if it is skipped."""
    try:
        if entry.stat(follow_symlinks=False).st_size > LARGEST_FILE:
            skipped[f"larger than {LARGEST_FILE >> 10} KiB"] += 1
            return None
        return decoded(Path(entry.path).read_bytes())
    except ValueError:
        skipped["not text"] += 1
    except OSError:
        skipped["unreadable"] += 1
    return None
