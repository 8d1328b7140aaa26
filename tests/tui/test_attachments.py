"""Files named with @."""

from __future__ import annotations

from pathlib import Path

import pytest

from specchat.chat.conversation import Attachment
from specchat.errors import InvalidOption
from specchat.tui.mentions import LARGEST_FILE, completions, named_files


def test_file_names_are_completed(tmp_path: Path) -> None:
    """Folders end in a slash; hidden files are offered after a dot."""
    for name in ("alpha.txt", "Alps.md", "beta.txt", ".hidden"):
        (tmp_path / name).touch()
    (tmp_path / "albums").mkdir()
    (tmp_path / "albums" / "one.txt").touch()

    assert completions("al", tmp_path) == ["albums/", "alpha.txt", "Alps.md"]
    assert completions("albums/", tmp_path) == ["albums/one.txt"]
    assert completions(".", tmp_path) == [".hidden"]
    assert completions("nothing/here", tmp_path) == []


def test_names_without_a_file_stay_as_they_are(tmp_path: Path) -> None:
    """Addresses and names of people are not files."""
    text = "Write to me@example.org and @someone."

    assert named_files(text, tmp_path)[0] == []


def test_files_that_cannot_be_sent_are_refused(tmp_path: Path) -> None:
    """Files that are too large or not text, each with the reason."""
    (tmp_path / "large.txt").write_text("x" * (LARGEST_FILE + 1), "utf-8")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(InvalidOption, match="larger than"):
        named_files("see @large.txt", tmp_path)
    with pytest.raises(InvalidOption, match="not a text file"):
        named_files("see @picture.png", tmp_path)


def test_a_file_named_twice_is_attached_once(tmp_path: Path) -> None:
    """Its name stays in the text."""
    (tmp_path / "a.txt").write_text("content", "utf-8")

    assert named_files("@a.txt and @a.txt", tmp_path) == ([Attachment("a.txt", "content")], [], {})


GERMAN = "Grüße, schöne Straße: 5 €"


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("utf-8", ""),
        ("utf-8-sig", ""),
        ("cp1252", "Windows-1252"),
        ("utf-16", "UTF-16"),
        ("utf-16-le", "UTF-16"),
        ("utf-16-be", "UTF-16"),
        ("utf-32", "UTF-32"),
    ],
)
def test_files_of_any_usual_encoding_are_read(tmp_path: Path, encoding: str, said: str) -> None:
    """Without a byte order mark in the prompt; the encoding is named unless it is UTF-8."""
    (tmp_path / "a.txt").write_bytes(f"Text: {GERMAN}".encode(encoding))
    files, missing, encodings = named_files("@a.txt", tmp_path)

    assert files == [Attachment("a.txt", f"Text: {GERMAN}")]
    assert missing == []
    assert encodings.get("a.txt", "").startswith(said)
    assert bool(encodings) == bool(said)


@pytest.mark.parametrize(
    "content",
    [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"\x7fELF\2\1\1\0", b"\xff\xd8\xff\xe0\0\x10JFIF\0"],
)
def test_pictures_and_programs_are_no_text(tmp_path: Path, content: bytes) -> None:
    """Whatever they could be decoded as."""
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(InvalidOption, match="not a text file"):
        named_files("@a.bin", tmp_path)
