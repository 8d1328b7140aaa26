"""What was written in the chat but not sent, kept until the chat is opened again."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from specchat.system.private_files import read_json, write_json


@dataclass(frozen=True, slots=True)
class Draft:
    """A text, and the long pasted texts for which it has placeholders."""

    text: str = ""
    pasted: Mapping[str, str] = field(default_factory=dict)


def take_draft(history: Path | None) -> Draft:
    """Return the draft kept beside a history, and remove it; without a history, an empty one."""
    if history is None:
        return Draft()
    draft = read_json(_path(history), Draft, Draft())
    with suppress(OSError):
        _path(history).unlink(missing_ok=True)
    return draft


def keep_draft(history: Path | None, draft: Draft) -> None:
    """Keep a draft beside a history, unless it is empty or the folder cannot be written."""
    if history is not None and draft.text.strip():
        with suppress(OSError):
            write_json(_path(history), draft)


def forget_draft(history: Path) -> None:
    """Remove what is kept beside a history."""
    _path(history).unlink(missing_ok=True)


def _path(history: Path) -> Path:
    return history.with_name("draft.json")
