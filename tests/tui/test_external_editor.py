"""The message in the user's own editor."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from textual.app import App, SuspendNotSupported

from scripted_chat import Script, chat
from specchat.tui.widgets.composer import Composer
from tui.driving import say, type_keys, until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def suspended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a screen without a terminal be suspended, and record when it is."""
    record: list[str] = []

    @contextmanager
    def suspend(_: App[None]) -> Iterator[None]:
        record.append("suspended")
        yield
        record.append("resumed")

    monkeypatch.setattr(App, "suspend", suspend)
    return record


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary"


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that sets an editor which runs Python with the file's `path`."""

    def use(code: str) -> None:
        script = tmp_path / "an editor.py"
        script.write_text(f"import os, sys, pathlib\npath = pathlib.Path(sys.argv[-1])\n{code}\n")
        words = sys.executable, str(script), "--wait"
        monkeypatch.setenv("VISUAL", shlex.join(words))

    return use


async def test_what_the_editor_saves_is_the_message(
    editor: Callable[[str], None], folder: Path, suspended: list[str]
) -> None:
    """What is typed right before the key counts too; undo restores it. The file is private."""
    script = Script()
    app = chat(script)
    editor(
        "mode = path.stat().st_mode, path.parent.stat().st_mode\n"
        "path.write_text(f'{path.read_text()}{mode[0] & 0o777:o} {mode[1] & 0o777:o}\\n\\n')"
    )
    async with app.run_test(size=(100, 30)) as pilot:
        await type_keys(pilot, *"Hi", "ctrl+e")
        composer = app.query_one(Composer)
        await until(pilot, lambda: composer.text == "Hi\n600 700\n")
        assert suspended == ["suspended", "resumed"]
        assert os.listdir(folder) == []  # noqa: PTH208
        await pilot.press("ctrl+z")
        assert composer.text == "Hi"
        await say(pilot, "/edit", wait=False)
        await until(pilot, lambda: composer.text == "600 700\n")
        await pilot.press("enter")
        await until(pilot, lambda: len(script.asked) == 1)
    assert script.asked[0][0][-1]["content"] == "600 700"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "text", "what"),
    [
        ("path.write_text('saved'); os.kill(os.getpid(), 9)", "saved", "was ended by SIGKILL"),
        ("os.kill(os.getpid(), 15)", "written", "was ended by SIGTERM"),
        ("path.write_text('saved'); sys.exit(3)", "saved", "failed with exit code 3"),
        ("path.write_bytes(bytes(20))", "written", "not text"),
        ("path.unlink()", "written", "No such file"),
    ],
)
async def test_nothing_is_lost_when_the_editor_fails(
    editor: Callable[[str], None], folder: Path, code: str, text: str, what: str
) -> None:
    """What was saved last is the message, or else what was written before."""
    app = chat(Script())
    editor(code)
    async with app.run_test(size=(100, 30)) as pilot:
        app.query_one(Composer).text = "written"
        await pilot.press("ctrl+e")
        await until(pilot, lambda: bool(app.notices.latest))
        (notice,) = app.notices.latest
        assert what in notice.message
        assert "\n" not in notice.message
        assert app.query_one(Composer).text == text
    assert os.listdir(folder) == []  # noqa: PTH208


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "what"),
    [("no-such-editor", "no-such-editor cannot be started"), ("'unclosed", "VISUAL: 'unclosed")],
)
async def test_a_missing_editor_is_named(
    monkeypatch: pytest.MonkeyPatch, suspended: list[str], command: str, what: str
) -> None:
    """In one line; the screen comes back."""
    monkeypatch.setenv("VISUAL", command)
    app = chat(Script())
    async with app.run_test(size=(100, 30)) as pilot:
        app.query_one(Composer).text = "written"
        await pilot.press("ctrl+e")
        await until(pilot, lambda: bool(app.notices.latest))
        assert what in app.notices.latest[0].message
        assert app.query_one(Composer).text == "written"
    assert suspended[-1] == "resumed"


@pytest.mark.slow
async def test_control_characters_of_the_file_do_no_harm(editor: Callable[[str], None]) -> None:
    """They are replaced, and Windows' line ends are newlines."""
    app = chat(Script())
    editor("path.write_bytes(b'one\\r\\ntwo\\x1b[2J\\n')")
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("ctrl+e")
        await until(pilot, lambda: app.query_one(Composer).text == "one\ntwo\ufffd[2J")


@pytest.mark.slow
async def test_a_terminal_that_cannot_be_given_away_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a browser."""

    def suspend(_: App[None]) -> nullcontext[None]:
        raise SuspendNotSupported

    monkeypatch.setattr(App, "suspend", suspend)
    app = chat(Script())
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("ctrl+e")
        await until(pilot, lambda: bool(app.notices.latest))
        assert "cannot be given to an editor" in app.notices.latest[0].message
