"""The settings screen: switches, choices, typed values and errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from scripted_chat import Script, chat
from specchat.tui.app import ChatApp
from specchat.tui.screens.dialogs import ChoiceScreen, LineScreen
from tui.driving import screen_text, type_keys, until

pytestmark = pytest.mark.anyio
SIZE = (110, 40)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's settings file, which sets nothing yet."""
    path = tmp_path / "config.toml"
    path.write_text("# mine\n", "utf-8")
    monkeypatch.setenv("SPECCHAT_CONFIG", str(path))
    return path


def says(file: Path, line: str) -> bool:
    """Return True if the file has that line."""
    return line in file.read_text("utf-8").splitlines()


async def choose(pilot: Pilot[None], app: ChatApp, name: str) -> None:
    """Choose a line of a list by its words."""
    await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
    await type_keys(pilot, *name)
    await pilot.press("enter")
    await pilot.pause()


async def test_a_switch_is_flipped_in_the_list(file: Path) -> None:
    """The switch stays highlighted: Enter flips it back."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f9")
        await choose(pilot, app, "screen.animations")
        await until(pilot, lambda: says(file, "animations = false"))
        await until(pilot, lambda: "●── off" in screen_text(app))
        assert "• animations" in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: says(file, "animations = true"))


async def test_a_theme_is_chosen_from_a_list(file: Path) -> None:
    """The current one is highlighted, and the default can be restored."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f9")
        await choose(pilot, app, "screen.theme")
        await choose(pilot, app, "nord")
        await until(pilot, lambda: app.theme == "nord")
        assert says(file, 'theme = "nord"')
        await until(pilot, lambda: "Default: textual-dark" in screen_text(app))
        await pilot.press("enter")
        await choose(pilot, app, "default")
        await until(pilot, lambda: app.theme == "textual-dark")
        assert not says(file, 'theme = "nord"')


async def test_a_wrong_value_keeps_the_dialog_open(file: Path) -> None:
    """The dialog says what is wrong and keeps what was typed, the cursor at its end."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f9")
        await choose(pilot, app, "sampling.temperature")
        await until(pilot, lambda: isinstance(app.screen, LineScreen))
        await pilot.press("x", "ctrl+s")
        await pilot.pause()
        assert app.screen.query_one(Input).value == "0.8x"
        assert "sampling.temperature must be a number of at least 0, not" in screen_text(app)
        await pilot.press("backspace", "5", "ctrl+s")
        await until(pilot, lambda: says(file, "temperature = 0.85"))


async def test_enter_saves_a_value_of_one_line(file: Path) -> None:
    """Every other one-line dialog works the same way."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f9")
        await choose(pilot, app, "sampling.top_k")
        await until(pilot, lambda: isinstance(app.screen, LineScreen))
        await pilot.press("backspace", "1", "enter")
        await until(pilot, lambda: says(file, "top_k = 41"))


async def test_settings_are_grouped(file: Path) -> None:
    """Those that are changed most come first; a group is found by its name too."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f9")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        options = app.screen.query_one(OptionList).options
        assert str(options[0].prompt) == "Sampling"
        headings = [str(each.prompt).strip() for each in options if each.disabled]
        assert headings[:3] == ["Sampling", "Chat", "Screen"]
        assert len(headings) == len(set(headings))
        await type_keys(pilot, *"screen.a")
        await until(pilot, lambda: "━━● on" in screen_text(app))
        await pilot.click(app.screen.query_one(OptionList), offset=(8, 1))
        await until(pilot, lambda: says(file, "animations = false"))
