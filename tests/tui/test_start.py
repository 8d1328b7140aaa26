"""The start screen, the list of conversations, and the files that are listed while typing."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from time import time

import pytest
from textual.widgets import Input, OptionList, Static

from scripted_chat import FACTS, Script, chat
from specchat.chat.store import Store
from specchat.options.declarations import ScreenOptions
from specchat.tui.app import ChatApp
from specchat.tui.screens.dialogs import LineScreen
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.sidebar import Sidebar
from specchat.tui.widgets.suggestions import Suggestions
from specchat.tui.widgets.welcome import QUESTIONS, Welcome
from tui.driving import say, screen_text, type_keys, until

pytestmark = pytest.mark.anyio
SIZE = (120, 36)
DAY = 24 * 3600.0


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 36)], ids=str)
async def test_an_empty_chat_shows_the_pair_and_questions(size: tuple[int, int]) -> None:
    """While it loads and after it; the first question takes their place."""
    script = Script(load_hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "loading…" in screen_text(app))
        script.load_hold.set()  # type: ignore[union-attr]
        shown = ("Scripted 8B · 5.03 GB", "Scripted 0.6B · 639 MB", *(q[:40] for q in QUESTIONS))
        await until(pilot, lambda: all(words in screen_text(app) for words in shown))
        await say(pilot, "My own")
        assert not app.query_one(Welcome).display
        await app.actions.conversations.new()
        await until(pilot, lambda: QUESTIONS[0] in screen_text(app))


async def test_the_start_screen_names_the_ways_on(tmp_path: Path) -> None:
    """To the questions, which say how to send one, and to earlier chats once there are some."""
    app = chat(Script(), tmp_path / "history.db", keys={"conversations": "f12"})
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "Tab: questions to try" in screen_text(app))
        assert "earlier chats" not in screen_text(app)
        await pilot.press("tab")
        assert isinstance(app.focused, OptionList)
        await until(pilot, lambda: "Enter Send" in screen_text(app).splitlines()[-1])
        await type_keys(pilot, *"My")  # goes to the message, as the list takes no text
        assert app.query_one(Composer).text == "My"
        await say(pilot, " own")
        await app.actions.conversations.new()
        await until(pilot, lambda: "F12: earlier chats" in screen_text(app))
    app = chat(Script(), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "F2: earlier chats" in screen_text(app))


@pytest.mark.slow
async def test_the_card_shows_whole_sizes_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `list` and `show` do, and below a name that leaves no room for them."""
    name = "Draft-with-a-name-of-forty-characters-q8"
    facts = replace(FACTS, draft=name, draft_bytes=12_459_264, draft_file_bytes=14_229_888)
    monkeypatch.setattr("scripted_chat.FACTS", facts)
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: f"{name} · 14.2 MB" in screen_text(app))
        await pilot.resize_terminal(60, 36)
        await until(pilot, lambda: f"{name} · " not in screen_text(app))
        assert f"{name} " in screen_text(app)
        assert "14.2 MB" in screen_text(app)
        await pilot.resize_terminal(*SIZE)
        await until(pilot, lambda: f"{name} · 14.2 MB" in screen_text(app))


async def test_the_card_names_a_target_as_the_catalogue_does() -> None:
    """Whatever the file calls itself; other files have their own names only."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        card = app.query_one("#pair", Static)
        await until(pilot, lambda: "target   Scripted 8B · 5.03 GB" in str(card.content))
        named = app.state.pair_controller.pair
        app.state.pair_controller.pair = replace(named, title="small")
        app.view.show_state()
        await until(pilot, lambda: "target   small · 5.03 GB" in str(card.content))
        assert "Scripted 8B" not in screen_text(app)


async def test_the_card_names_the_target_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head has its target's name, too."""
    facts = replace(FACTS, draft=f"{FACTS.target}, trained head")
    monkeypatch.setattr("scripted_chat.FACTS", facts)
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "draft    trained head · " in screen_text(app))


@pytest.mark.slow
@pytest.mark.parametrize("uses_mouse", [True, False])
async def test_a_question_of_the_start_screen_is_asked(*, uses_mouse: bool) -> None:
    """By a click, or by Shift+Up and Enter."""
    script = Script()
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "Scripted 8B" in screen_text(app))
        questions = app.query_one(Welcome).query_one(OptionList)
        await until(pilot, lambda: bool(questions.region))
        await pilot.pause()
        if uses_mouse:
            await pilot.click(questions, offset=(5, 1))
        else:
            await pilot.press("shift+up", "escape")
            assert isinstance(app.focused, Composer)
            await pilot.press("shift+up", "down", "enter")
        await until(pilot, lambda: len(script.asked) == 1)
        assert script.asked[0][0][-1]["content"] == QUESTIONS[1]
        assert isinstance(app.focused, Composer)


def fill(path: Path) -> None:
    """Store conversations of several ages."""
    with Store(path) as store:
        for title, days in (
            ("Whales", 0),
            ("Llamas", 1),
            ("Prime numbers", 5),
            ("Whale songs", 40),
        ):
            number = store.begin().id
            store.add(number, "user", title)
            store.run(
                "UPDATE conversation SET changed = ? WHERE id = ?", (time() - days * DAY, number)
            )


def listed(app: ChatApp) -> list[str]:
    """Return the lines of the list of conversations."""
    options = app.query_one(Sidebar).query_one(OptionList).options
    return [str(each.prompt).strip() for each in options]


@pytest.mark.slow
async def test_conversations_are_grouped_by_age_and_filtered(tmp_path: Path) -> None:
    """The filter is typed after a slash; Enter leads back to what it found."""
    fill(tmp_path / "history.db")
    app = chat(Script(), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f2")
        await pilot.pause()
        assert listed(app) == [
            "Today", "Whales", "Yesterday", "Llamas", "This week", "Prime numbers",
            "Older", "Whale songs",
        ]  # fmt: skip
        await type_keys(pilot, "/", *"whale")
        assert listed(app) == ["Today", "Whales", "Older", "Whale songs"]
        await pilot.press("enter", "down", "enter")
        await until(pilot, lambda: app.conversations.title == "Whale songs")
        app.query_one(Sidebar).focus()
        await pilot.press("escape")
        assert app.query_one(Sidebar).query_one(Input).value == ""
        assert len(listed(app)) == 8


@pytest.mark.slow
async def test_the_list_is_filled_where_it_is_open_from_the_start(tmp_path: Path) -> None:
    """Elsewhere the first frame makes neither the list nor its filter."""
    fill(tmp_path / "history.db")
    for is_open in (True, False):
        screen = ScreenOptions(conversations=is_open)
        app = chat(Script(), tmp_path / "history.db", screen=screen)
        async with app.run_test(size=SIZE):
            assert bool(app.query_one(Sidebar).children) is is_open
            assert app.focused is app.query_one(Composer)
            if is_open:
                assert "Llamas" in listed(app)


@pytest.mark.slow
async def test_a_conversation_is_renamed_in_the_list(tmp_path: Path) -> None:
    """Whether it is open or not."""
    fill(tmp_path / "history.db")
    app = chat(Script(), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f2", "down", "r")
        await until(pilot, lambda: isinstance(app.screen, LineScreen))
        await type_keys(pilot, *" of Peru", "enter")
        await until(pilot, lambda: "Llamas of Peru" in listed(app))
        assert app.conversations.title == ""


async def test_files_are_listed_while_their_name_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tab takes the first; Down and Enter another; Enter alone sends."""
    for name in ("notes.txt", "notice.md", "other.py"):
        (tmp_path / name).write_text("content", "utf-8")
    monkeypatch.chdir(tmp_path)
    script = Script()
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        files, composer = app.query_one(Suggestions), app.query_one(Composer)
        await type_keys(pilot, *"Sum up @no")
        await until(pilot, lambda: files.option_count == 2)
        assert "@notice.md" in screen_text(app)
        await type_keys(pilot, "down", "down", "enter")
        assert composer.text == "Sum up @notice.md"
        assert script.asked == []
        await until(pilot, lambda: not files.display)
        await type_keys(pilot, *" @no")
        await until(pilot, lambda: files.display)
        await type_keys(pilot, "tab")
        assert composer.text == "Sum up @notice.md @notes.txt"
        await type_keys(pilot, *" @o")
        await until(pilot, lambda: files.display)
        await pilot.click(files, offset=(3, 0))
        await until(pilot, lambda: composer.text.endswith("@other.py"))
        await type_keys(pilot, *" @not")
        await until(pilot, lambda: files.display)
        await type_keys(pilot, "enter")
        await until(pilot, lambda: len(script.asked) == 1)
        assert not files.display
