"""Code blocks saved to files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from scripted_chat import Script, chat
from specchat.tui.actions.code_saver import suggested_name
from specchat.tui.app import ChatApp
from specchat.tui.screens.dialogs import ChoiceScreen, ConfirmScreen, LineScreen
from tables import table
from tui.driving import agree, say, screen_text, type_keys, until

pytestmark = pytest.mark.anyio
SIZE = (100, 30)
CODE = "def f():\n    return 'ü'\n"
ANSWER = f"First:\n\n```sh\nls\n```\n\nThen:\n\n```python\n{CODE}```\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(path: Path) -> str:
    """Return a file's text, empty if there is none."""
    return path.read_bytes().decode() if path.exists() else ""


def newest(app: ChatApp) -> str:
    """Return the newest notice."""
    return app.notices.latest[-1].message if app.notices.latest else ""


async def save(pilot: Pilot[None], command: str) -> None:
    """Run a slash command that saves."""
    await say(pilot, command, wait=False)


async def test_the_last_block_is_saved_under_a_name(folder: Path) -> None:
    """As it was written; executable for nobody, else as the umask says."""
    before = os.umask(0o027)
    try:
        app = chat(Script([ANSWER, "No code here."]))
        async with app.run_test(size=SIZE) as pilot:
            await save(pilot, "/save a.py")
            await until(pilot, lambda: newest(app) == "There is no code to save.")
            await say(pilot, "One?")
            await say(pilot, "Two?")
            await save(pilot, "/save my code.py")
            await until(pilot, lambda: newest(app) == "Saved 2 lines to my code.py.")
    finally:
        os.umask(before)
    assert read(folder / "my code.py") == CODE
    assert (folder / "my code.py").stat().st_mode & 0o777 == 0o640


@pytest.mark.slow
async def test_a_file_is_replaced_only_after_a_question(folder: Path) -> None:
    """Its size is named; Esc keeps it."""
    (folder / "a.py").write_text("mine")
    app = chat(Script([ANSWER]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        await save(pilot, "/save a.py")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await until(pilot, lambda: "a.py has 4 bytes" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, ConfirmScreen))
        assert read(folder / "a.py") == "mine"
        await save(pilot, "/save a.py")
        await agree(pilot)
        await until(pilot, lambda: newest(app).startswith("Saved"))
        assert read(folder / "a.py") == CODE


async def test_what_cannot_be_written_is_said(folder: Path) -> None:
    """In one line; nothing waits for a pipe."""
    (folder / "sub").mkdir()
    os.mkfifo(folder / "pipe")
    reasons = {
        "there/is/none.py": "there/is/none.py cannot be written: No such file or directory",
        "sub": "sub is not a file: choose another name",
        "pipe": "pipe is not a file: choose another name",
        "new/": "new/ is not a file: choose another name",
        "~nobody-at-all/a.py": "~nobody-at-all/a.py cannot be written",
        "x" * 300: "cannot be written: File name too long",
    }
    app = chat(Script([ANSWER]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        for name, reason in reasons.items():
            await save(pilot, f"/save {name}")
            await until(pilot, lambda reason=reason: reason in newest(app))  # type: ignore[misc]
            assert "\n" not in newest(app)


@pytest.mark.slow
async def test_a_link_into_nothing_is_not_followed(folder: Path) -> None:
    """Something else may want to put its file there."""
    (folder / "link.py").symlink_to(folder / "elsewhere.py")
    app = chat(Script([ANSWER]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        await save(pilot, "/save link.py")
        await until(pilot, lambda: "link.py is not a file" in newest(app))
        assert not (folder / "elsewhere.py").exists()


@pytest.mark.slow
async def test_without_a_name_the_block_and_the_name_are_asked_for(folder: Path) -> None:
    """The name has the ending of the language."""
    app = chat(Script([ANSWER]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        await save(pilot, "/save")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await until(pilot, lambda: "def f():" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, LineScreen))
        await until(pilot, lambda: app.screen.query_one(Input).value == "code.py")
        await pilot.press("enter")
        await until(pilot, lambda: newest(app) == "Saved 2 lines to code.py.")
    assert read(folder / "code.py") == CODE


@pytest.mark.slow
async def test_a_click_on_save_saves_that_block(folder: Path) -> None:
    """Beside "copy", which still copies."""
    app = chat(Script([ANSWER]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        await until(pilot, lambda: screen_text(app).count("save  copy") == 2)
        lines = screen_text(app).splitlines()
        y = next(place for place, line in enumerate(lines) if "save  copy" in line)
        x = lines[y].index("save  copy")
        await pilot.click(offset=(x + 1, y))
        await until(pilot, lambda: isinstance(app.screen, LineScreen))
        await until(pilot, lambda: app.screen.query_one(Input).value == "code.sh")
        await type_keys(pilot, "ctrl+u", *"b.sh", "enter")
        await until(pilot, lambda: newest(app) == "Saved 1 line to b.sh.")
        lines = screen_text(app).splitlines()
        y = next(place for place, line in enumerate(lines) if "save  copy" in line)
        await pilot.click(offset=(lines[y].index("save  copy") + 7, y))
        await until(pilot, lambda: app.clipboard == "ls\n")
    assert read(folder / "b.sh") == "ls\n"


@table(
    ("language", "name"),
    [
        ("python", "code.py"), ("rust", "code.rs"), ("c++", "code.cpp"), ("", "code.txt"),
        ("nonsense", "code.txt"), ("../../etc/passwd", "code.txt"),
    ],
)  # fmt: skip
def test_names_are_suggested_by_language(language: str, name: str) -> None:
    """Only known languages give an ending."""
    assert suggested_name(language) == name
