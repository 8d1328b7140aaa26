"""What the mouse does."""

from __future__ import annotations

import pytest
from textual.events import MouseDown, MouseMove, MouseUp
from textual.pilot import Pilot
from textual.widget import Widget

from scripted_chat import Script, chat
from specchat.tui.app import ChatApp
from specchat.tui.prose import Prose
from tui.driving import say

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


def prose(app: ChatApp, place: int) -> Prose:
    """Return the text of a message that is seen."""
    return next(each for each in app._transcript.views[place].query(Prose) if each.display)


ANSWER = "The first line.\n\nA **bold** word, and 漢字 wide ones.\n\n```py\nx = 1\n```\n"


async def test_what_is_dragged_over_is_marked_and_copied() -> None:
    """From the middle of one line to the middle of another, in characters and not in cells."""
    app = chat(Script([ANSWER]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "A question of mine")
        await drag(pilot, prose(app, 1), (4, 0), (5, 2))
        assert app.screen.get_selected_text() == "first line.\n\nA bold"
        await drag(pilot, prose(app, 1), (17, 2), (18, 2))
        assert app.screen.get_selected_text() == "漢字"
        await drag(pilot, prose(app, 0), (2, 0), (9, 0))
        assert app.screen.get_selected_text() == "question"


async def test_marking_everything_in_any_way_ends_nothing() -> None:
    """From question to answer, upwards, beyond the end of lines, and by clicking again."""
    app = chat(Script([ANSWER]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "A question of mine")
        for shows_origins in (False, True):
            for view in (0, 1):
                await pilot.click(prose(app, view), offset=(2, 0), times=3)
                await pilot.pause()
            for start in ((1, 2), (90, 4), (60, 30)):
                for end in ((0, 1), (100, 8), (20, 20), (109, 35)):
                    await pilot._post_mouse_events([MouseDown], offset=start, button=1)
                    await pilot._post_mouse_events([MouseMove], offset=end, button=1)
                    await pilot._post_mouse_events([MouseUp], offset=end, button=1)
                    await pilot.pause()
                    app.screen.get_selected_text()
            assert app._shows_origins == shows_origins
            await pilot.press("f4")
        await pilot.click(prose(app, 1), offset=(2, 0), times=3)
        await pilot.pause()
        assert "wide ones." in (app.screen.get_selected_text() or "")
