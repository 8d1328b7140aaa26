"""Dialogs that take a value: everything in them is in sight on screens of every size."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.cells import cell_len
from textual.app import App
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Footer, Input, Static, TextArea

from scripted_chat import Script, chat
from specchat.options.option import Option
from specchat.settings.schema import SETTINGS
from specchat.settings.sources import read_settings
from specchat.tui.actions.settings_dialogs import PROMPT, THEME, SettingsDialogs
from specchat.tui.app import ChatApp
from specchat.tui.house_theme import own_variables
from specchat.tui.main_view import MainView
from specchat.tui.screens.dialogs import (
    ChoiceScreen,
    ConfirmScreen,
    LineScreen,
    ListEntry,
    TextScreen,
)
from tui.driving import screen_text, type_keys, until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("size", [(60, 20), (120, 40)], ids=str),
]
WRITTEN = [
    setting
    for setting in SETTINGS
    if setting.main_type is not bool
    and not setting.is_choice
    and setting.name not in {THEME, PROMPT}
]
"""The settings whose value is typed in one line."""


def require_all_in_sight(app: App[None]) -> None:
    """Fail unless the dialog is on the screen, with its title, value, reason and keys."""
    dialog = app.screen.query_one(".dialog")
    assert app.screen.region.contains_region(dialog.region)
    for child in dialog.children:
        assert dialog.content_region.contains_region(child.region), child
    assert app.screen.query_one(Footer).region.height == 1
    shown = screen_text(app)
    assert " Save" in shown
    assert "esc cancel" in shown.lower()


def require_reason(app: App[None], words: str) -> None:
    """Fail unless a reason is drawn completely."""
    wrong = app.screen.query_one(".wrong", Static)
    assert str(wrong.render()).startswith(words)
    assert wrong.virtual_size.height <= wrong.size.height
    assert words in " ".join(screen_text(app).replace("│", " ").split())


class BareApp(App[None]):
    """The chat's styles without the chat, which would be drawn anew behind each dialog."""

    CSS_PATH = Path(inspect.getfile(ChatApp)).with_name("specchat.tcss")

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Return the colours that the style sheet needs and Textual's themes lack."""
        return own_variables(self.current_theme)


async def open_box(pilot: Pilot[None], app: App[None], setting: Option) -> None:
    """Open the dialog of a setting."""
    setup = chat(Script()).setup
    state = SimpleNamespace(pair_controller=SimpleNamespace(facts=None))
    dialogs = SettingsDialogs(MainView(app, setup), cast(Any, state))
    app.run_worker(dialogs.change_one(setting, read_settings()))
    await until(pilot, lambda: isinstance(app.screen, TextScreen))
    await pilot.pause()


@pytest.mark.slow
async def test_every_setting_fits_with_its_keys_and_errors(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after a value that it rejects."""
    (tmp_path / "config.toml").touch()
    monkeypatch.setenv("SPECCHAT_CONFIG", os.fspath(tmp_path / "config.toml"))
    app = BareApp()
    async with app.run_test(size=size) as pilot:
        for setting in WRITTEN:
            await open_box(pilot, app, setting)
            require_all_in_sight(app)
            assert isinstance(app.screen, LineScreen)
            app.screen.query_one(Input).value = "wrong"
            if setting.main_type not in {str, Path} and not setting.is_list:
                await type_keys(pilot, "enter")
                require_all_in_sight(app)
                require_reason(app, f"{setting.name} must be {setting.description}, not")
            app.post_message(Key("escape", None))
            await until(pilot, lambda: not isinstance(app.screen, TextScreen))


@pytest.mark.slow(keep=1)
async def test_a_long_text_leaves_room_for_its_keys(size: tuple[int, int]) -> None:
    """Enter begins another line; Ctrl+S saves."""
    app = chat(Script())
    async with app.run_test(size=size) as pilot:
        app.conversations.set_system_prompt("line\n" * 60 + "end")
        await app.run_action("system")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await pilot.press("enter", "x")
        await pilot.pause()
        require_all_in_sight(app)
        assert app.screen.query_one(TextArea).size.height >= 5
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.conversations.system_prompt.endswith("end\nx"))


@pytest.mark.slow
async def test_wrong_sampling_is_explained_in_the_dialog(size: tuple[int, int]) -> None:
    """The name of a preset is one line, its sampling several."""
    app = chat(Script())
    async with app.run_test(size=size) as pilot:
        await app.run_action("presets")
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, LineScreen))
        await pilot.pause()
        require_all_in_sight(app)
        await type_keys(pilot, *"poet", "enter")
        require_all_in_sight(app)
        await pilot.press("ctrl+s")
        await pilot.pause()
        await type_keys(pilot, *"top_k = x", "ctrl+s")
        require_all_in_sight(app)
        require_reason(app, 'top_k must be a whole number of at least 0, not "x"')
        assert app.conversations.store.presets() == []


@pytest.mark.slow
async def test_the_highlighted_choice_is_in_sight(size: tuple[int, int]) -> None:
    """The choice is in view also below choices whose lines are wrapped."""
    long = "words that take more than one line of the list, however wide the screen is, " * 2
    app = chat(Script())
    choices = [ListEntry(str(number), f"choice {number}", long) for number in range(30)]
    choices.append(ListEntry("last", "the last one", "its end"))
    async with app.run_test(size=size) as pilot:
        app.push_screen(ChoiceScreen("Choose", choices, marked="last"))
        await until(pilot, lambda: "the last one" in screen_text(app))
        await until(pilot, lambda: "its end" in screen_text(app))


@pytest.mark.slow
async def test_values_are_aligned_by_cells(size: tuple[int, int]) -> None:
    """Characters that take two cells do not move the values beside them."""
    app = chat(Script())
    choices = [ListEntry("1", "温度设置", value="=1"), ListEntry("2", "top_k", value="=2")]
    async with app.run_test(size=size) as pilot:
        app.push_screen(ChoiceScreen("Choose", choices))
        await until(pilot, lambda: "=2" in screen_text(app))
        lines = screen_text(app).splitlines()
        first, second = (
            next(line.partition(each)[0] for line in lines if each in line) for each in ("=1", "=2")
        )

        assert cell_len(first) == cell_len(second)


async def test_no_key_typed_quickly_is_lost(size: tuple[int, int]) -> None:
    """Enter right after a letter does not drop that letter."""
    app, kept = chat(Script()), list[str | None]()
    async with app.run_test(size=size) as pilot:
        app.push_screen(LineScreen("Title", "ab"), kept.append)
        await until(pilot, lambda: isinstance(app.focused, Input))
        for key, character in (("c", "c"), ("d", "d"), ("enter", "\r")):
            app.post_message(Key(key, character))
        await until(pilot, lambda: bool(kept))
    assert kept == ["abcd"]


@pytest.mark.slow
async def test_a_question_names_each_key_once(size: tuple[int, int]) -> None:
    """Below the answers; y and n work too."""
    app = chat(Script())
    answers = list[bool | None]()
    async with app.run_test(size=size) as pilot:
        for key, expected in (("enter", True), ("y", True), ("escape", False), ("n", False)):
            details = "A chat\n" * (1 if key == "n" else 40)  # more than fits the screen
            app.push_screen(ConfirmScreen("Delete it?", details, "Delete", "Keep"), answers.append)
            await until(pilot, lambda: "Enter Choose Esc Cancel" in screen_text(app))
            shown = screen_text(app)
            assert "Delete it?" in shown
            assert " Keep " in shown
            assert "(Enter)" not in shown
            assert "(Esc)" not in shown
            assert " y " not in shown
            await pilot.press(key)
            await until(pilot, lambda: len(answers) == 1)
            assert answers.pop() is expected
