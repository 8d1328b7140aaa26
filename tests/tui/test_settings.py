"""The settings screen: switches, choices, typed values and errors."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from scripted_chat import Script, chat
from specchat.settings.editor import write_setting
from specchat.settings.schema import SETTINGS
from specchat.settings.sources import settings_path
from specchat.tui.app import ChatApp
from specchat.tui.screens.dialogs import ChoiceScreen, LineScreen
from specchat.tui.texts.setting_names import FIRST, NAMES, setting_title, settings_in_order
from tui.driving import say, screen_text, type_keys, until

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


@pytest.mark.slow
async def test_a_switch_is_flipped_in_the_list(file: Path) -> None:
    """The switch stays highlighted: Enter flips it back."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f9")
        await choose(pilot, app, "screen.animations")
        await until(pilot, lambda: says(file, "animations = false"))
        await until(pilot, lambda: "●── off" in screen_text(app))
        assert "• Animations" in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: says(file, "animations = true"))


@pytest.mark.slow
async def test_a_theme_is_chosen_from_a_list(file: Path) -> None:
    """The current one is highlighted, and the default can be restored."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f9")
        await choose(pilot, app, "screen.theme")
        await choose(pilot, app, "nord")
        await until(pilot, lambda: app.theme == "nord")
        assert says(file, 'theme = "nord"')
        await until(pilot, lambda: "Default: specchat-dark" in screen_text(app))
        await pilot.press("enter")
        await choose(pilot, app, "default")
        await until(pilot, lambda: app.theme == "specchat-dark")
        assert not says(file, 'theme = "nord"')


@pytest.mark.usefixtures("file")
async def test_a_setting_says_what_holds_in_this_chat_instead() -> None:
    """Where the model or the command line asks for another value than the settings."""
    app = chat(Script(), options={"temperature": 0.3})
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f9")
        await until(pilot, lambda: "In this chat: 0.3" in screen_text(app))
        assert screen_text(app).count("In this chat") == 1


@pytest.mark.slow
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


@pytest.mark.slow
async def test_enter_saves_a_value_of_one_line(file: Path) -> None:
    """Every other one-line dialog works the same way."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f9")
        await choose(pilot, app, "sampling.top_k")
        await until(pilot, lambda: isinstance(app.screen, LineScreen))
        await pilot.press("backspace", "1", "enter")
        await until(pilot, lambda: says(file, "top_k = 41"))


@pytest.mark.slow
async def test_settings_are_grouped_by_use(file: Path) -> None:
    """Theme, model, thinking and context come first, samplers late; groups are found by name."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f9")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        options = app.screen.query_one(OptionList).options
        assert str(options[0].prompt) == "Most used"
        headings = [str(each.prompt).strip() for each in options if each.disabled]
        assert headings.index("Sampling") > headings.index("Screen")
        assert len(headings) == len(set(headings))
        names = [str(each.prompt).split("  ")[1] for each in options if not each.disabled]
        assert names[:4] == ["Theme", "Model", "Thinking", "Context size"]
        await type_keys(pilot, *"screen.a")
        await until(pilot, lambda: "━━● on" in screen_text(app))
        await pilot.click(app.screen.query_one(OptionList), offset=(8, 1))
        await until(pilot, lambda: says(file, "animations = false"))


def test_settings_have_names_that_people_use() -> None:
    """No two share one, and none is a name of the file."""
    names = [setting_title(each) for each in SETTINGS]
    assert len(set(names)) == len(names)
    for name, setting in zip(names, SETTINGS, strict=True):
        assert name[0].isupper()
        assert "_" not in name
        assert name != setting.key
    assert {each.key for each in SETTINGS} >= set(NAMES)
    assert {each.name for each in SETTINGS} >= set(FIRST)
    assert sorted(map(id, settings_in_order())) == sorted(map(id, SETTINGS))


@pytest.mark.slow
@pytest.mark.usefixtures("file")
@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 36)], ids=str)
async def test_wrapped_lines_keep_their_indent(size: tuple[int, int]) -> None:
    """Of a long help text, at every width; what changed has a mark that moves nothing."""
    app = chat(Script())
    write_setting(settings_path(), "sampling.min_p", 0.1)
    async with app.run_test(size=size) as pilot:
        await pilot.press("f9")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await type_keys(pilot, *"min-p")
        await until(pilot, lambda: "• Min-p" in screen_text(app))
        settings = app.screen.query_one(OptionList)

        def prompt() -> str:
            return str(settings.highlighted_option and settings.highlighted_option.prompt)

        await until(pilot, lambda: "Min-p" in prompt() and "\n" in prompt())
        await pilot.pause(0.1)
        assert " ".join(prompt().split()).endswith("0 disables it. Default: 0.05")
        first, *others = prompt().split("\n")
        assert first.startswith("• Min-p")
        assert len(others) > 1
        assert all(line.startswith("    ") and line[4] != " " for line in others)
        assert max(map(len, others)) <= settings.scrollable_content_region.width
        assert "Enter Change" in screen_text(app)
        assert "Esc Close" in screen_text(app)


def is_theme(app: ChatApp, name: str) -> bool:
    """Return True if a theme is in use."""
    return app.theme == name


@pytest.mark.slow
async def test_a_theme_shows_while_the_cursor_is_on_it(file: Path) -> None:
    """Esc brings the former one back and saves nothing; Enter keeps it."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        before = app.theme
        for last in ("escape", "enter"):
            await say(pilot, "/theme", wait=False)
            await until(pilot, lambda: app.screen.has_class("-preview"))
            await type_keys(pilot, *"nord", "up", "down")
            await until(pilot, lambda: app.theme == "nord")
            assert not says(file, 'theme = "nord"')
            await pilot.press(last)
            await until(pilot, lambda: not app.screen.has_class("-preview"))
            expected = before if last == "escape" else "nord"
            await until(pilot, partial(is_theme, app, expected))
            if last == "enter":
                await until(pilot, lambda: says(file, 'theme = "nord"'))
            await pilot.pause(0.1)
            assert says(file, 'theme = "nord"') == (last == "enter")


@pytest.mark.slow
async def test_the_idle_minutes_change_at_once(file: Path) -> None:
    """The running chat follows its settings."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f9")
        await choose(pilot, app, "unload when idle")
        await until(pilot, lambda: isinstance(app.screen, LineScreen))
        await pilot.press("backspace", "5", "enter")
        await until(pilot, lambda: says(file, "unload_after = 5"))
        await until(pilot, lambda: app.state.idle.minutes == 5)


@pytest.mark.slow
async def test_the_limit_of_a_loop_changes_at_once(file: Path) -> None:
    """0 switches it off."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f9")
        await choose(pilot, app, "stop repeating")
        await until(pilot, lambda: isinstance(app.screen, LineScreen))
        await pilot.press(*["backspace"] * 4, "0", "enter")
        await until(pilot, lambda: says(file, "repeat_limit = 0"))
        await until(pilot, lambda: app.answers.repeat_limit == 0)
