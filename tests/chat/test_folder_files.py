"""The text files of a folder or a pattern."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specchat.chat import folder_files
from specchat.chat.folder_files import MOST_FILES, read_files
from specchat.chat.text_files import LARGEST_FILE
from specchat.errors import InvalidOption


def write(folder: Path, *names: str) -> None:
    """Write files, each with its name in it."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"of {name}", "utf-8")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with files of many kinds."""
    write(
        tmp_path, "README.md", "src/b.py", "src/a.py", "src/notes.md", "src/deep/c.py",
        "src/deep/er/d.md", "src/.hidden.py", "src/.git/config", "src/node_modules/e.py",
        "other/f.py",
    )  # fmt: skip
    return tmp_path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("src/*.py", ["src/a.py", "src/b.py"]),
        ("src/[b-z]*", ["src/b.py", "src/notes.md"]),
        ("*/?.py", ["other/f.py", "src/a.py", "src/b.py"]),
        ("**/*.md", ["README.md", "src/notes.md", "src/deep/er/d.md"]),
        ("src/**/er/*", ["src/deep/er/d.md"]),
        ("src/deep/**", ["src/deep/c.py", "src/deep/er/d.md"]),
        ("src/.h*", ["src/.hidden.py"]),
        ("src/*.rs", []),
        ("src/deep/", ["src/deep/c.py", "src/deep/er/d.md"]),
        ("src/deep", ["src/deep/c.py", "src/deep/er/d.md"]),
        ("./other/", ["./other/f.py"]),
    ],
)
def test_patterns_and_folders(tree: Path, name: str, expected: list[str]) -> None:
    """As a shell expands them; the names begin as they were written."""
    found = read_files(name, tree)

    assert list(found.contents) == expected
    for each in expected:
        assert found.contents[each] == f"of {each.removeprefix('./')}"


def test_what_is_skipped_is_counted_with_its_reason(tree: Path) -> None:
    """Hidden, generated, binary, large and linked files; nothing waits for a pipe."""
    source = tree / "src"
    (source / "program").write_bytes(b"\x7fELF\2\1\1\0")
    (source / "picture.png").write_bytes(b"\x89PNG\r\n")
    (source / "large.txt").write_text("x" * (LARGEST_FILE + 1))
    (source / "link.txt").symlink_to("/etc/hostname")
    (source / "around").symlink_to(tree)
    (source / "bad\nname").touch()
    os.mkfifo(source / "pipe")
    found = read_files("src/", tree)

    assert list(found.contents) == [
        "src/a.py", "src/b.py", "src/notes.md", "src/deep/c.py", "src/deep/er/d.md",
    ]  # fmt: skip
    assert found.skipped == {
        "hidden": 2, "generated": 1, "not text": 2, "larger than 512 KiB": 1, "links": 2,
        "with unprintable names": 1, "not files": 1,
    }  # fmt: skip
    assert str(found).startswith("5 files, skipped 10 (2 hidden, ")


def test_other_encodings_are_named(tree: Path) -> None:
    """As for a file that is named itself."""
    (tree / "src" / "latin.txt").write_bytes("Grüße".encode("latin-1"))
    found = read_files("src/*.txt", tree)

    assert found.contents == {"src/latin.txt": "Grüße"}
    assert found.encodings == {"src/latin.txt": "Windows-1252 (Latin-1)"}
    assert str(found) == "1 file"


def test_too_much_is_refused_in_words(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than cut off."""
    write(tree, *(f"many/{number}.txt" for number in range(MOST_FILES + 1)))
    with pytest.raises(InvalidOption, match=r"many has more than 100 text files\. Name fewer"):
        read_files("many", tree)
    for number in range(3):
        (tree / "large" / f"{number}.txt").parent.mkdir(exist_ok=True)
        (tree / "large" / f"{number}.txt").write_text("x" * (LARGEST_FILE - 1))
    with pytest.raises(InvalidOption, match=r"files of large are larger than 1 MiB together"):
        read_files("large", tree)
    monkeypatch.setattr(folder_files, "MOST_ENTRIES", 50)
    with pytest.raises(InvalidOption, match=r"many/\*\*/x has more than 50 entries"):
        read_files("many/**/x", tree)


def test_an_unreadable_folder_below_is_counted(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are read; a folder that does not exist is an error."""
    scan = os.scandir

    def refusing(path: Path) -> object:
        if path.name == "deep":
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    found = read_files("src", tree)

    assert list(found.contents) == ["src/a.py", "src/b.py", "src/notes.md"]
    assert found.skipped["unreadable"] == 1
    with pytest.raises(FileNotFoundError):
        read_files("nowhere/", tree)
