"""Files named by @."""

from __future__ import annotations

from pathlib import Path

import pytest

from specchat.chat.attachments import Attachment
from specchat.errors import InvalidOption
from specchat.tui.mentions import LARGEST_FILE, completions, named_files


def test_files_are_completed_by_their_beginning(tmp_path: Path) -> None:
    """Folders end in a slash; hidden files are offered when asked for."""
    for name in ("alpha.txt", "Alps.md", "beta.txt", ".hidden"):
        (tmp_path / name).touch()
    (tmp_path / "albums").mkdir()
    (tmp_path / "albums" / "one.txt").touch()

    assert completions("al", tmp_path) == ["albums/", "alpha.txt", "Alps.md"]
    assert completions("albums/", tmp_path) == ["albums/one.txt"]
    assert completions(".", tmp_path) == [".hidden"]
    assert completions("nothing/here", tmp_path) == []


def test_what_names_no_file_stays_as_it_is(tmp_path: Path) -> None:
    """Addresses and names of people are no files."""
    text = "Write to me@example.org and @nobody."

    assert named_files(text, tmp_path).files == ()


def test_files_that_cannot_be_sent_are_refused(tmp_path: Path) -> None:
    """Large ones and those that are no text, each with the reason."""
    (tmp_path / "large.txt").write_text("x" * (LARGEST_FILE + 1), "utf-8")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(InvalidOption, match="larger than"):
        named_files("see @large.txt", tmp_path)
    with pytest.raises(InvalidOption, match="not a text file"):
        named_files("see @picture.png", tmp_path)


def test_a_file_named_twice_goes_once(tmp_path: Path) -> None:
    """And its name stays in the text."""
    (tmp_path / "a.txt").write_text("content", "utf-8")

    assert named_files("@a.txt and @a.txt", tmp_path).files == (Attachment("a.txt", "content"),)
