"""Copying: with a program of the desktop, without one via the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from image_files import encoded, picture
from scripted_chat import Script, chat
from specchat.tui.app import ChatApp
from specchat.tui.clipboard import copy_by_program, image_in_clipboard
from tables import table
from tui.driving import say, screen_text, type_keys, until

pytestmark = pytest.mark.anyio
PICTURE = encoded(picture(1, (8, 8)))
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "WSL_DISTRO_NAME")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder of programs, without a display."""
    for name in DISPLAYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(folder: Path, name: str, script: str) -> Path:
    """Put a program into a folder; return the file it writes."""
    copied = folder / f"{name}.copied"
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script.format(copied)}\n", "utf-8")
    program.chmod(0o700)
    return copied


TAKE = 'while IFS= read -r line || [ -n "$line" ]; do echo "$line"; done > {}'


def test_the_program_of_the_display_is_used(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program is used only with its display; the next one is tried if it fails."""
    wayland = install(programs, "wl-copy", TAKE)
    install(programs, "xclip", "exit 1")
    other = install(programs, "xsel", TAKE)

    assert copy_by_program("text") == ""
    monkeypatch.setenv("DISPLAY", ":0")
    assert copy_by_program("wörter") == "xsel"
    assert other.read_text("utf-8") == "wörter\n"
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert copy_by_program("text") == "wl-copy"
    assert wayland.read_text("utf-8") == "text\n"


@table(
    ("display", "program", "script"),
    [
        ("WAYLAND_DISPLAY", "wl-paste", "exec /bin/cat {0}.png"),
        ("DISPLAY", "xclip", "exec /bin/cat {0}.png"),
        ("DISPLAY", "xclip", "echo no picture"),
        ("DISPLAY", "xclip", "exit 1"),
    ],
)
def test_a_copied_picture_is_read(
    programs: Path, monkeypatch: pytest.MonkeyPatch, display: str, program: str, script: str
) -> None:
    """By the program of the display; what is no picture is none."""
    (programs / f"{program}.copied.png").write_bytes(PICTURE)
    install(programs, program, script)
    assert image_in_clipboard() == b""
    monkeypatch.setenv(display, "0")
    assert image_in_clipboard() == (PICTURE if "cat" in script else b"")
    monkeypatch.delenv(display)


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_picture_copied_on_a_mac_is_read(
    programs: Path, monkeypatch: pytest.MonkeyPatch, is_remote: bool
) -> None:
    """AppleScript prints it in hexadecimal digits; over SSH it is another machine's."""
    monkeypatch.setattr("sys.platform", "darwin")
    install(programs, "osascript", f"echo '«data PNGf{PICTURE.hex().upper()}»'")
    if is_remote:
        monkeypatch.setenv("SSH_CONNECTION", "1")
    assert image_in_clipboard() == (b"" if is_remote else PICTURE)


CODE = "```py\na = 1\n```\ntext\n```sh\nls\n```"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("keys", "copied"), [((), "a = 1\n"), (("down",), "ls\n"), (("up",), "a = 1\n\nls\n")]
)
@pytest.mark.usefixtures("programs")
async def test_one_of_several_blocks_of_code_is_copied(keys: tuple[str, ...], copied: str) -> None:
    """The chosen one, or all of them; a notice says how."""
    app = chat(Script([CODE]))
    async with app.run_test(size=(110, 40), notifications=True) as pilot:
        await say(pilot, "Code")
        await pilot.press("shift+up", "b")
        await until(pilot, lambda: "Which code?" in screen_text(app))
        await type_keys(pilot, *keys, "enter")
        await until(pilot, lambda: _notice(app) != "")
        assert app.clipboard == copied
        assert "via the terminal" in _notice(app)


def _notice(app: ChatApp) -> str:
    return " ".join(note.message for note in app._notifications)
