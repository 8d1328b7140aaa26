"""Text selected with the mouse stays legible, and is copied as it was written."""

from __future__ import annotations

import pytest
from rich.style import Style
from textual.selection import SELECT_ALL
from textual.widget import Widget

from scripted_chat import Script, chat
from specchat.tui.app import ChatApp
from tui.driving import say
from tui.test_mouse import drag, prose

pytestmark = pytest.mark.anyio
SIZE = (110, 36)
ANSWER = "The first line.\n\n```py\nif x:\n    x = 1\n```\n\n- item\n  ```py\n  y = 2\n  ```\n"


def styles(app: ChatApp, widget: Widget, row: int) -> list[Style]:
    """Return the styles of the letters of a row as they are drawn."""
    region = widget.content_region
    strip = app.screen._compositor.render_strips()[region.y + row]
    line = strip.crop(region.x, region.right)
    return [style for text, style, _ in line if text.strip() and style is not None]


@pytest.mark.slow
async def test_selected_text_is_legible() -> None:
    """Every letter of prose and of code has another colour than the selection behind it."""
    app = chat(Script([ANSWER]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Select this")
        for theme in ("textual-dark", "textual-light", "nord", "ansi-dark"):
            app.screen.clear_selection()
            app.theme = theme
            await pilot.pause()
            before = styles(app, prose(app, 1), 0)
            await drag(pilot, prose(app, 1), (0, 0), (60, 5))
            for row in (0, 3, 4):
                drawn = styles(app, prose(app, 1), row)
                assert drawn
                assert all(style.color != style.bgcolor for style in drawn), theme
            assert styles(app, prose(app, 1), 0)[0].bgcolor != before[0].bgcolor, theme


async def test_copied_code_is_the_code() -> None:
    """Without the margin beside it, wherever the selection starts, in lists too."""
    app = chat(Script([ANSWER]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Select code")
        await drag(pilot, prose(app, 1), (0, 2), (60, 4))
        assert app.screen.get_selected_text() == "if x:\n    x = 1"
        await drag(pilot, prose(app, 1), (1, 3), (2, 3))
        assert app.screen.get_selected_text() == "if"
        await drag(pilot, prose(app, 1), (4, 8), (60, 8))
        assert app.screen.get_selected_text() == "y = 2"


@pytest.mark.slow
async def test_wrapped_code_is_copied_as_it_was_written() -> None:
    """Without the signs, and with all spaces: the lines that were wrapped are one again."""
    code = "call(first,  " + "second_argument, " * 12 + "last)"
    app = chat(Script([f"```py title='a'\n{code}\n    next()\n```\n"]))
    async with app.run_test(size=(60, 30)) as pilot:
        await say(pilot, "Select code")
        text, _ = prose(app, 1).get_selection(SELECT_ALL) or ("", "")
        assert text.rstrip("\n") == f"{code}\n    next()"


@pytest.mark.slow
async def test_carriage_returns_before_newlines_are_not_shown() -> None:
    """Even if they arrive in separate tokens; copying gives what was written."""
    app = chat(Script(["one\r\ntwo\r\n\r\n- three\r\n"]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Lines")
        text, _ = prose(app, 1).get_selection(SELECT_ALL) or ("", "")
        assert text.strip() == "one\ntwo\n\n • three"
