"""What was written in the chat but not sent, kept until a chat is opened again."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specchat.system.private_files import make_private, read_json, write_json

MOST_FILES = 16
"""Chats on one history that keep a draft at the same time."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A text, and the long pasted texts for which it has placeholders."""

    text: str = ""
    pasted: Mapping[str, str] = field(default_factory=dict)

    def above(self, other: "Draft") -> "Draft":
        """Return this draft with another one below it."""
        texts = [each.text for each in (self, other) if each.text.strip()]
        return replace(self, text="\n\n".join(texts), pasted={**self.pasted, **other.pasted})


class DraftFile:
    """The file in which one chat keeps its draft, beside a history.

    Several chats may share a history: each locks a file of its own, which the system frees however
    the chat ends. The next one then finds what is in it. For use in one thread.
    """

    def __init__(self, history: Path) -> None:
        """Choose no file yet."""
        self._history = history
        self._path: Path | None = None
        self._lock: Any = None

    def take(self) -> Draft:
        """Choose a file that no other chat has, one with a draft if there is one; return that."""
        from filelock import FileLock, Timeout

        with suppress(OSError):
            make_private(self._history.parent)
            paths = sorted(_paths(self._history), key=lambda path: not path.exists())
            while self._path is None and paths:
                path = paths.pop(0)
                self._lock = FileLock(path.with_suffix(".lock"), timeout=0, mode=0o600)
                with suppress(Timeout):
                    self._lock.acquire()
                    self._path = path
        return Draft() if self._path is None else read_json(self._path, Draft, Draft())

    def keep(self, draft: Draft) -> None:
        """Keep a draft in place of the last one, unless the folder cannot be written."""
        if self._path is None:
            return
        with suppress(OSError):
            if draft.text.strip():
                write_json(self._path, draft)
            else:
                self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Leave the file to the next chat."""
        if self._lock is not None:
            self._lock.release()


def forget_drafts(history: Path) -> None:
    """Remove what is kept beside a history."""
    for path in _paths(history):
        path.unlink(missing_ok=True)


def _paths(history: Path) -> Iterator[Path]:
    """Yield the files for drafts, those that the first chats take first."""
    yield history.with_name("draft.json")
    for number in range(2, MOST_FILES + 1):
        yield history.with_name(f"draft-{number}.json")
