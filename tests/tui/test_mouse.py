"""The mouse: selecting, copying, clicking."""

from __future__ import annotations

import threading

import pytest
from textual.events import MouseDown, MouseMove, MouseUp
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.widget import Widget

from scripted_chat import Script, chat
from specchat.tui.app import ChatApp
from specchat.tui.screens.dialogs import ChoiceScreen, TextScreen
from specchat.tui.screens.help_screen import HelpScreen
from specchat.tui.screens.model_screen import ModelScreen
from specchat.tui.screens.statistics_screen import StatisticsScreen
from specchat.tui.screens.steps_screen import StepsScreen
from tui.driving import ask_twice, say, screen_text, type_keys, until

pytestmark = pytest.mark.anyio
SIZE = (110, 36)


async def drag(
    pilot: Pilot[None], widget: Widget, start: tuple[int, int], end: tuple[int, int]
) -> None:
    """Press the button at one place of a widget, move, and let go at another."""
    await pilot.mouse_down(widget, offset=start)
    await pilot.hover(widget, offset=end)
    await pilot.mouse_up(widget, offset=end)
    await pilot.pause()


async def drag_over_screen(
    pilot: Pilot[None], start: tuple[int, int], end: tuple[int, int]
) -> None:
    """Drag from one place of the screen to another, without waiting between the events."""
    for kind, (x, y) in ((MouseDown, start), (MouseMove, end), (MouseUp, end)):
        pilot.app.mouse_position = Offset(x, y)
        event = kind(pilot.app.screen, x, y, 0, 0, 1, False, False, False, screen_x=x, screen_y=y)
        pilot.app.screen._forward_event(event)
        await pilot.pause(0)
    await pilot.pause()


def prose(app: ChatApp, place: int) -> Widget:
    """Return the text widget of a message in sight."""
    texts = app.view.transcript.views[place].query("Prose, QuestionView > Static")
    return next(each for each in texts if each.display)


ANSWER = "The first line.\n\nA **bold** word, and 漢字 wide ones.\n\n```py\nx = 1\n```\n"


@pytest.mark.slow
async def test_dragging_selects_text_to_copy() -> None:
    """From the middle of one line to the middle of another, in characters, not in cells."""
    app = chat(Script([ANSWER]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "A question of mine")
        await drag(pilot, prose(app, 1), (4, 0), (5, 2))
        assert app.screen.get_selected_text() == "first line.\n\nA bold"
        await drag(pilot, prose(app, 1), (17, 2), (18, 2))
        assert app.screen.get_selected_text() == "漢字"
        await drag(pilot, prose(app, 0), (2, 0), (9, 0))
        assert app.screen.get_selected_text() == "question"


@pytest.mark.slow
async def test_no_selection_fails() -> None:
    """From question to answer, upwards, beyond the ends of lines, and by repeated clicks."""
    app = chat(Script([ANSWER]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "A question of mine")
        for shows_origins in (False, True):
            for view in (0, 1):
                await pilot.click(prose(app, view), offset=(2, 0), times=3)
                await pilot.pause()
            for start in ((1, 2), (90, 4), (60, 30)):
                for end in ((0, 1), (100, 8), (20, 20), (109, 35)):
                    await drag_over_screen(pilot, start, end)
                    app.screen.get_selected_text()
            assert app.view.appearance.shows_origins == shows_origins
            await pilot.press("f4")
        await pilot.click(prose(app, 1), offset=(2, 0), times=3)
        await pilot.pause()
        assert "wide ones." in (app.screen.get_selected_text() or "")


def place_of(app: ChatApp, words: str) -> tuple[int, int]:
    """Return the place of some words on the screen."""
    for row, line in enumerate(screen_text(app).splitlines()):
        if words in line:
            return line.index(words), row
    raise AssertionError(words)


@pytest.mark.slow
async def test_clicks_switch_versions() -> None:
    """The left end leads to the previous version, the right end to the next."""
    script = Script(["first", "second"])
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await ask_twice(pilot, script, "Versions")
        await pilot.pause()
        for sign, text in (("◂ 2/2", "first"), ("▸", "second")):
            await pilot.click(offset=place_of(app, sign))
            await until(pilot, lambda text=text: app.view.transcript.views[-1].text == text)  # type: ignore[misc]
        assert app.view.transcript.views[-1].query_one(".versions").display


async def test_a_click_stops_the_answer() -> None:
    """The stop sign is shown while an answer is being written."""
    script = Script(["one two three four five six seven"], hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        assert "stop" not in screen_text(app)
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: "■ stop" in screen_text(app) and len(script.asked) == 1)
        await pilot.click(offset=place_of(app, "■ stop"))
        await until(pilot, lambda: app.answers.current is None)
        assert app.conversations.branch[-1].finish == "cancelled"
        await pilot.pause()
        assert "■ stop" not in screen_text(app)


DIALOGS = {
    "help": HelpScreen,
    "steps": StepsScreen,
    "models": ModelScreen,
    "statistics": StatisticsScreen,
    "settings": ChoiceScreen,
    "system": TextScreen,
}
"""What opens each dialog, and its class."""


@pytest.mark.slow
async def test_clicks_close_dialogs() -> None:
    """A click on the key in the footer, or beside the dialog if nothing can be lost."""
    app = chat(Script(["abcdefghijkl"]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Dialogs")
        for action, kind in DIALOGS.items():
            await app.run_action(action)
            await until(pilot, lambda kind=kind: isinstance(app.screen, kind))  # type: ignore[misc]
            await pilot.pause()
            words = "Cancel" if kind is TextScreen else "Close"
            await pilot.click(offset=place_of(app, words))
            await until(pilot, lambda kind=kind: not isinstance(app.screen, kind))  # type: ignore[misc]
            await app.run_action(action)
            await until(pilot, lambda kind=kind: isinstance(app.screen, kind))  # type: ignore[misc]
            await pilot.click(offset=(1, 1))
            await pilot.pause()
            assert isinstance(app.screen, kind) == (kind is TextScreen)


@pytest.mark.slow
async def test_keys_in_a_footer_can_be_clicked() -> None:
    """The next step of an answer; saving a text."""
    app = chat(Script(["abcdefghijklmnop"]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Steps")
        await pilot.press("f6")
        await pilot.pause()
        await pilot.click(offset=place_of(app, "Rejected"))
        await until(pilot, lambda: "[✘ ·no]" in screen_text(app))
        await pilot.press("escape")
        await app.run_action("system")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await type_keys(pilot, *"Rhyme")
        await pilot.click(offset=place_of(app, "Save"))
        await until(pilot, lambda: app.conversations.system_prompt == "Rhyme")
