"""What has its place on narrow and wide screens, in the list of conversations and the palette."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from textual.theme import BUILTIN_THEMES

from scripted_chat import Script, chat
from specchat.chat.store import Store
from specchat.options.declarations import ScreenOptions
from specchat.settings.sources import read_settings
from specchat.tui.arrangement import LIST_WIDTH
from specchat.tui.house_theme import readable_theme
from specchat.tui.screens.dialogs import ChoiceScreen
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.message_views import QuestionView
from specchat.tui.widgets.panel import Panel
from specchat.tui.widgets.sidebar import Sidebar, when
from specchat.tui.widgets.transcript import Transcript
from tables import table
from tui.driving import frame_text, say, screen_text, type_keys, until

pytestmark = pytest.mark.anyio
SIZE = (110, 34)


@pytest.mark.slow
async def test_a_narrow_screen_shows_the_list_or_the_panel() -> None:
    """Never both: one replaces the other."""
    app = chat(Script(["an answer"]))
    async with app.run_test(size=(60, 20)) as pilot:
        await say(pilot, "A question")
        sidebar, panel = app.query_one(Sidebar), app.query_one(Panel)
        for width, height in ((60, 20), (80, 24)):
            await pilot.resize_terminal(width, height)
            for key, other in (("f2", "f3"), ("f3", "f2")):
                await pilot.press(key)
                await pilot.pause()
                await pilot.press(other)
                await pilot.pause()
                assert (sidebar.display, panel.display) == (other == "f2", other == "f3")
                assert app.query_one(Composer).region.width >= width - 36
                assert app.query_one(Transcript).region.width >= 24
                await pilot.press(other)
                await pilot.pause()
                assert not sidebar.display
                assert not panel.display


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 20), (79, 24)])
async def test_a_list_over_the_chat_takes_the_whole_width(size: tuple[int, int]) -> None:
    """A strip of the chat beside it could not be read."""
    app = chat(Script(["an answer"]))
    async with app.run_test(size=size) as pilot:
        await say(pilot, "A question")
        await pilot.press("f2")
        await pilot.pause()
        middle = app.query_one("#middle").region
        assert app.query_one(Sidebar).region == middle
        assert re.search(r"\d\d:\d\d A question", screen_text(app))
        await until(pilot, lambda: "Esc Back" in screen_text(app).splitlines()[-1])
        await pilot.resize_terminal(100, 24)
        await until(pilot, lambda: app.query_one(Sidebar).region.width == LIST_WIDTH)
        await until(pilot, lambda: " A question " in screen_text(app).splitlines()[5])


@pytest.mark.slow
@pytest.mark.parametrize("width", [104, 140, 200])
async def test_the_composer_is_in_line_with_the_messages(width: int) -> None:
    """Its border stands below the edge of the questions, and its text below theirs."""
    app = chat(Script(["an answer"]))
    async with app.run_test(size=(width, 30)) as pilot:
        await say(pilot, "A question")
        question, composer = app.query_one(QuestionView).region, app.query_one(Composer).region
        assert (question.x, question.right) == (composer.x, composer.right)


@pytest.mark.slow
@pytest.mark.parametrize("width", [104, 120, 140])
async def test_a_long_title_leaves_the_context_in_sight(width: int) -> None:
    """The title is shortened instead."""
    app = chat(Script(["an answer"]), system_prompt="Be brief.")
    async with app.run_test(size=(width, 30)) as pilot:
        await say(pilot, "A question with a title that is quite as long as titles may ever be")
        await until(pilot, lambda: "% of 4096" in screen_text(app).splitlines()[0])
        top = screen_text(app).splitlines()[0]
        assert "A question with" in top
        assert "system prompt" in frame_text(app)


@pytest.mark.slow
async def test_the_first_enter_in_the_list_opens_the_newest(tmp_path: Path) -> None:
    """From a new chat nothing is open that could be highlighted."""
    with Store(tmp_path / "history.db") as store:
        number = store.begin().id
        store.add(number, "user", "Older days")
    app = chat(Script(), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f2")
        await pilot.press("enter")
        await until(pilot, lambda: app.conversations.number == number)


def test_yesterday_is_not_today(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time alone is one of today, even if yesterday's is less than a day ago."""
    monkeypatch.setitem(os.environ, "TZ", "UTC")
    time.tzset()
    now = time.time()
    midnight = now - now % 86400
    assert when(midnight + 60) == "00:01"
    assert when(midnight - 60) == "yesterday 23:59"
    assert when(midnight - 86400 - 60).endswith(time.strftime("%Y", time.gmtime(midnight)))


@pytest.mark.slow
@pytest.mark.parametrize("size", [(59, 20), (6, 5), (3, 3)], ids=str)
async def test_the_panel_covers_the_chat_where_both_have_no_room(size: tuple[int, int]) -> None:
    """Esc uncovers it; the composer never becomes too narrow to be drawn."""
    app = chat(Script())
    async with app.run_test(size=size) as pilot:
        await pilot.press("f3")
        await until(pilot, lambda: app.query_one(Panel).region.width == size[0])
        await pilot.press("escape")
        assert not app.query_one(Panel).display
        assert app.focused is app.query_one(Composer)
        await until(pilot, lambda: app.query_one(Composer).region.width >= 8)
        await pilot.resize_terminal(100, 30)
        await pilot.press("f3")
        await until(pilot, lambda: app.query_one(Composer).region.width > 50)


@pytest.mark.slow
async def test_a_theme_chosen_from_the_palette_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start has it; the palette offers one way to choose it, and `/theme` the same."""
    path = tmp_path / "config.toml"
    path.write_text("", "utf-8")
    monkeypatch.setenv("SPECCHAT_CONFIG", str(path))
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        (command,) = [each for each in app.get_system_commands(app.screen) if each[0] == "Theme"]
        command.callback()
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await type_keys(pilot, *"nord", "enter")
        await until(pilot, lambda: app.theme == "nord")
        await until(pilot, lambda: read_settings()["screen.theme"] == "nord")
        await say(pilot, "/theme", wait=False)
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await type_keys(pilot, *"gruvbox", "enter")
        await until(pilot, lambda: read_settings()["screen.theme"] == "gruvbox")
    again = chat(Script(), screen=ScreenOptions(theme=read_settings()["screen.theme"]))
    async with again.run_test(size=SIZE):
        assert again.theme == "gruvbox"


@table(
    ("wanted", "colours", "found"),
    [
        ("nord", "truecolor", "nord"),
        ("nord", "standard", "ansi-dark"),
        ("ansi-light", "standard", "ansi-light"),
        ("ansi-dark", None, "specchat-dark"),
        ("nord", None, "nord"),
    ],
)
def test_a_theme_suits_the_colours_of_the_terminal(
    wanted: str, colours: str | None, found: str
) -> None:
    """With 16 colours those of most themes would all become grey."""
    assert readable_theme(BUILTIN_THEMES[wanted], colours) == found


@pytest.mark.slow
async def test_the_palette_offers_nothing_that_hides_the_chat() -> None:
    """A maximized composer cannot send."""
    app = chat(Script())
    async with app.run_test(size=SIZE):
        titles = {command.title for command in app.get_system_commands(app.screen)}
        assert "Quit" in titles
        assert not titles & {"Maximize", "Minimize"}


async def test_the_last_answer_is_copied() -> None:
    """`/copy` needs no focus; without an answer it says so."""
    app = chat(Script(["an answer"]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "/copy", wait=False)
        await until(pilot, lambda: bool(app._notifications))
        assert [each.message for each in app._notifications] == ["There is no answer to copy."]
        await say(pilot, "A question")
        await say(pilot, "/copy", wait=False)
        await until(pilot, lambda: app.clipboard == "an answer")
