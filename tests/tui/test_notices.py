"""Notices stay out of the way, and the wait for an answer is visible."""

from __future__ import annotations

import re
import threading

import pytest
from textual.widgets._toast import Toast

from scripted_chat import Script, chat
from specchat.tui.app import ChatApp
from specchat.tui.screens.dialogs import TextScreen
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.notice_line import NoticeLine
from specchat.tui.widgets.sidebar import Sidebar
from specchat.tui.widgets.strip import Strip
from specchat.tui.widgets.transcript import Transcript
from tui.driving import say, screen_text, until

pytestmark = pytest.mark.anyio


def shown_toasts(app: ChatApp) -> list[Toast]:
    """Return the notices that are on the screen."""
    return [each for each in app.screen.query(Toast) if each.region.height]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("size", [(60, 20), (110, 34)], ids=str)
async def test_notices_cover_neither_text_nor_lists_nor_dialog_titles(
    size: tuple[int, int],
) -> None:
    """The newest one alone is shown: in lines of its own, or over the header beside a dialog."""
    app = chat(Script(["an answer"]))
    async with app.run_test(size=size, notifications=True) as pilot:
        await say(pilot, "A question")
        await pilot.press("f2")
        for number in range(3):
            app.notify(f"Notice number {number}.")
        await until(pilot, lambda: "Notice number 2." in screen_text(app))
        assert not shown_toasts(app)
        assert "Notice number 1." not in screen_text(app)
        line = app.query_one(NoticeLine).region
        for covered in (Sidebar, Transcript, Strip, Composer):
            assert not line.overlaps(app.query_one(covered).region)
        app.push_screen(TextScreen("A title", "text"))
        app.notify("Notice over a dialog.")
        await until(pilot, lambda: len(shown_toasts(app)) == 1)
        assert "Notice over a dialog." in screen_text(app)
        (toast,) = shown_toasts(app)
        assert not toast.region.overlaps(app.screen.query_one(".title").region)
        assert not app.query_one(NoticeLine).display  # the dialog would cover a part of it
        await pilot.press("escape")
        await until(pilot, lambda: app.query_one(NoticeLine).display)
        assert "Notice over a dialog." in screen_text(app)


@pytest.mark.slow
async def test_notices_end_with_what_they_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next command or question removes them; an error waits for a key, with time to read."""
    app = chat(Script(["an answer"]))
    async with app.run_test(size=(110, 34), notifications=True) as pilot:
        app.notify("Deleted.", timeout=60)
        await pilot.press("f3")
        await until(pilot, lambda: not app._notifications)
        app.view.report("The disk is full.")
        await say(pilot, "A question")
        assert [each.message for each in app._notifications] == ["The disk is full."]
        monkeypatch.setattr("specchat.tui.shown_notices.LEAST_SECONDS", 0.0)
        app.view.report("The disk is full again.")
        await pilot.pause()
        (error,) = {each.message for each in app._notifications} - {"The disk is full."}
        assert max(each.time_left for each in app._notifications) > 3600
        await pilot.press("left")
        assert error == "The disk is full again."
        assert not app._notifications


@pytest.mark.slow
async def test_the_wait_for_the_first_token_is_visible() -> None:
    """The seconds count up until it arrives, in one place: the status line has them here."""
    script = Script(["an answer"], load_hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=(110, 34)) as pilot:
        await say(pilot, "A question", wait=False)
        await until(pilot, lambda: "waiting for the first token" in screen_text(app))
        for seconds in ("1 s", "2 s"):
            await until(pilot, lambda now=f"50 % · {seconds}": now in screen_text(app))  # type: ignore[misc]
            assert re.findall(r" · \d+ s", screen_text(app)) == [f" · {seconds}"]
            assert "waiting for the first token" in screen_text(app)
        assert script.load_hold is not None
        script.load_hold.set()
        await until(pilot, lambda: app.answers.current is None and "an answer" in screen_text(app))
        assert "waiting" not in screen_text(app)


@pytest.mark.slow
async def test_an_answer_that_never_begins_does_not_wait_on() -> None:
    """Stopped before its first token."""
    script = Script(["an answer"], load_hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=(110, 34)) as pilot:
        await say(pilot, "A question", wait=False)
        await until(pilot, lambda: "waiting for the first token" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: "waiting" not in screen_text(app))
        assert script.load_hold is not None
        script.load_hold.set()


@pytest.mark.slow
async def test_a_reader_who_scrolls_up_is_led_back() -> None:
    """A click on the cue returns to the newest message."""
    app = chat(Script(["word\n\n" * 80]))
    async with app.run_test(size=(110, 34)) as pilot:
        await say(pilot, "A question")
        transcript = app.view.transcript
        await until(pilot, lambda: transcript.max_scroll_y - transcript.scroll_y < 1)
        assert "▼ latest" not in screen_text(app)
        await pilot.press("pageup")
        await until(pilot, lambda: "▼ latest" in screen_text(app))
        rows = screen_text(app).splitlines()
        row = next(place for place, line in enumerate(rows) if "▼ latest" in line)
        await pilot.click(offset=(rows[row].index("▼ latest") + 2, row))
        await until(pilot, lambda: "▼ latest" not in screen_text(app))
        assert transcript.max_scroll_y - transcript.scroll_y < 1


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 110])
async def test_a_notice_of_any_length_is_shown_whole(width: int) -> None:
    """Its last word too, where it just needs another line."""
    app = chat(Script())
    async with app.run_test(size=(width, 30), notifications=True) as pilot:
        for length in range(width // 2, width, 2):
            app.clear_notifications()
            app.notify("a " * (length // 2) + "end.")
            await until(pilot, lambda: "end." in screen_text(app))
