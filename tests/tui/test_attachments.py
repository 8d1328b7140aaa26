"""Files named with @."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.events import Paste

from scripted_chat import Script, chat
from specchat.chat.conversation import Attachment
from specchat.chat.text_files import LARGEST_FILE
from specchat.errors import InvalidOption
from specchat.images.image import Image
from specchat.images.picture import MOST_BYTES
from specchat.tui.mentions import completions, named_files
from specchat.tui.widgets.composer import Composer
from tui.driving import say, until


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

    assert named_files(text, tmp_path).attachments == []


def test_files_that_cannot_be_sent_are_refused(tmp_path: Path) -> None:
    """Files that are too large or neither text nor an image, each with the reason."""
    (tmp_path / "large.txt").write_text("x" * (LARGEST_FILE + 1), "utf-8")
    with (tmp_path / "large.png").open("wb") as file:
        file.write(b"\x89PNG")
        file.truncate(MOST_BYTES + 1)
    (tmp_path / "picture.heic").write_bytes(b"\0\0\0\x20ftypheic\xff\xfe")
    for name, reason in (
        ("large.txt", "larger than 512 KiB"),
        ("large.png", "is too large: more than 20 MiB"),
        ("picture.heic", r"neither text nor an image \(PNG, JPEG, WebP, GIF\)"),
    ):
        with pytest.raises(InvalidOption, match=reason):
            named_files(f"see @{name}", tmp_path)


def test_a_file_named_twice_is_attached_once(tmp_path: Path) -> None:
    """Its name stays in the text."""
    (tmp_path / "a.txt").write_text("content", "utf-8")

    named = named_files("@a.txt and @a.txt", tmp_path)
    assert named.attachments == [Attachment("a.txt", "content")]
    assert (named.missing, named.encodings, named.folders) == ([], {}, {})


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
    named = named_files("@a.txt", tmp_path)
    encodings = named.encodings

    assert named.attachments == [Attachment("a.txt", f"Text: {GERMAN}")]
    assert named.missing == []
    assert encodings.get("a.txt", "").startswith(said)
    assert bool(encodings) == bool(said)


def test_programs_are_no_text(tmp_path: Path) -> None:
    """Whatever they could be decoded as."""
    (tmp_path / "a.bin").write_bytes(b"\x7fELF\2\1\1\0")
    with pytest.raises(InvalidOption, match="neither text nor an image"):
        named_files("@a.bin", tmp_path)


@pytest.mark.parametrize(
    "content", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"\xff\xd8\xff\xe0\0\x10JFIF\0"]
)
def test_images_are_no_text(tmp_path: Path, content: bytes) -> None:
    """Their bytes tell them apart, whatever the name says, and however they are damaged."""
    (tmp_path / "a.txt").write_bytes(content)
    named = named_files("@a.txt", tmp_path)
    assert (named.attachments, named.images) == ([], [Image(content, "a.txt")])


def test_folders_and_patterns_are_attached(tmp_path: Path) -> None:
    """With what was skipped; punctuation after a name is none of it."""
    (tmp_path / "src").mkdir()
    (tmp_path / "my notes").mkdir()
    for name in ("src/a.py", "src/b.py", "src/.env", "my notes/c.md"):
        (tmp_path / name).write_text(f"of {name}", "utf-8")
    named = named_files('Compare @src/, @src/b*.py? and @"my notes/" with @*.zip.', tmp_path)

    assert [each.name for each in named.attachments] == ["src/a.py", "src/b.py", "my notes/c.md"]
    assert named.attachments[2].content == "of my notes/c.md"
    assert named.missing == ["*.zip"]
    assert list(named.notices()) == [
        "src/: attached 2 files, skipped 1 (1 hidden).",
        "src/b*.py: attached 1 file.",
        "my notes/: attached 1 file.",
    ]
    assert named_files("so @ ... @. @.. @/ @?", tmp_path).attachments == []


def test_files_of_a_folder_that_is_gone_are_taken_from_before(tmp_path: Path) -> None:
    """An edited question keeps what it had."""
    known = [Attachment("src/a.py", "A"), Attachment("src2/b.py", "B")]

    assert named_files("@src/", tmp_path, known).attachments == known[:1]
    assert named_files("@src2", tmp_path, known).attachments == known[1:]


def test_many_encodings_are_one_notice(tmp_path: Path) -> None:
    """With the first names."""
    for name in "abcde":
        (tmp_path / f"{name}.txt").write_bytes("Grüße".encode("latin-1"))
    first, _ = named_files("@*.txt", tmp_path).notices()

    assert first == "a.txt, b.txt, c.txt and 2 more were read as Windows-1252 (Latin-1)."


@pytest.mark.anyio
async def test_a_folder_is_sent_with_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the notice says what was skipped."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("print(1)")
    (tmp_path / "src" / "b.bin").write_bytes(bytes(9))
    monkeypatch.chdir(tmp_path)
    script = Script()
    app = chat(script)
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "What does @src/ do?")
        assert app.notices.latest[-1].message == "src/: attached 1 file, skipped 1 (1 not text)."
    sent = script.asked[0][0][-1]["content"]
    assert sent == "What does @src/ do?\n\nsrc/a.py:\n```\nprint(1)\n```"


@pytest.mark.anyio
async def test_a_folder_that_was_deleted_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is pasted, typed or sent in it names no files, and an export there fails."""
    app = chat(Script(["Answer", "Answer"]))
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "Hello")
        gone.rmdir()
        app.post_message(Paste("see @x.txt"))
        await until(pilot, lambda: app.query_one(Composer).text == "see @x.txt")
        await pilot.press("enter")
        await until(
            pilot, lambda: app.answers.current is None and len(app.state.conversations.branch) == 4
        )
        await say(pilot, "/export md", wait=False)
        await until(
            pilot, lambda: any("cannot be written" in each.message for each in app.notices.latest)
        )
    assert not app.failure
