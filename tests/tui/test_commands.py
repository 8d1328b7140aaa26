"""Slash commands, pasted texts, and the statistics of a conversation."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from textual.events import Key, Paste
from textual.pilot import Pilot
from textual.widgets import DataTable

from scripted_chat import Script, chat
from specchat.chat.store import Store
from specchat.errors import InvalidOption
from specchat.tui.commands import COMMANDS, MENU, find_slash, is_slash, matching
from specchat.tui.mentions import named_files, pasted_files
from specchat.tui.screens.dialogs import LineScreen, TextScreen
from specchat.tui.screens.help_screen import HelpScreen
from specchat.tui.screens.model_screen import ModelScreen
from specchat.tui.screens.statistics_screen import StatisticsScreen
from specchat.tui.widgets.composer import LONGEST_PASTE, Composer, unfold
from specchat.tui.widgets.suggestions import MORE, Suggestions
from tui.driving import say, screen_text, type_keys, until

pytestmark = pytest.mark.anyio
SIZE = (110, 40)


async def paste(pilot: Pilot[None], text: str) -> Composer:
    """Paste a text into the composer as a terminal does."""
    composer = pilot.app.query_one(Composer)
    composer.focus()
    pilot.app.post_message(Paste(text))
    await pilot.pause()
    return composer


@pytest.mark.slow
async def test_a_slash_lists_commands_and_enter_runs_one() -> None:
    """Typing narrows the list, the arrows move in it, Esc hides it."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        listed = app.query_one(Suggestions)
        await pilot.press("slash")
        await pilot.pause()
        assert listed.option_count == len(MENU) + 1
        assert "Race the last answer" in screen_text(app)
        assert MORE in screen_text(app)
        await pilot.press("m")
        await pilot.pause()
        assert listed.marked == "models"
        await pilot.press("escape")
        await pilot.pause()
        assert not listed.display
        await pilot.press("backspace", "s", "down", "down")
        await pilot.pause()
        assert listed.marked == "settings"
        await pilot.press("down", "down", "down", "down", "down", "tab")
        await pilot.pause()
        assert app.query_one(Composer).text == "/search"
        await type_keys(pilot, "ctrl+u", *"/he", "enter")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        assert app.query_one(Composer).text == ""


@pytest.mark.slow
async def test_a_command_typed_quickly_is_the_one_that_runs() -> None:
    """Enter may arrive before the list is updated."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("slash")
        await pilot.pause()
        composer = app.query_one(Composer)
        for letter in "system":
            composer.post_message(Key(letter, letter))
        composer.post_message(Key("enter", "\r"))
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await pilot.press("escape")
        for letter in "/he":
            composer.post_message(Key("slash" if letter == "/" else letter, letter))
        composer.post_message(Key("enter", "\r"))
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))


@pytest.mark.slow
async def test_commands_can_be_clicked() -> None:
    """A click runs the command at once."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("slash", "m")
        await pilot.pause()
        await pilot.click(Suggestions, offset=(3, 0))
        await until(pilot, lambda: isinstance(app.screen, ModelScreen))


async def test_an_unknown_command_can_be_corrected() -> None:
    """The command stays in the composer and is not sent to the model."""
    script = Script()
    app = chat(script)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await type_keys(pilot, *"/nonsense", "enter")
        (note,) = app._notifications
        assert note.message.startswith("Unknown command /nonsense")
        assert app.query_one(Composer).text == "/nonsense"
        assert script.asked == []


@pytest.mark.slow
async def test_a_space_before_the_slash_sends_it() -> None:
    """A path that begins with a slash is sent, too."""
    script = Script()
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, " /stats is a command")
        await say(pilot, "/etc/passwd is a file")
    assert [asked[0][-1]["content"] for asked in script.asked] == [
        "/stats is a command",
        "/etc/passwd is a file",
    ]


@pytest.mark.slow
async def test_a_command_takes_an_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The conversation is exported in the format given, as it is in the history by now."""
    monkeypatch.chdir(tmp_path)
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "A question")
        await type_keys(pilot, *"/export json", "enter")
        await until(
            pilot, lambda: any("Exported to" in each.message for each in app.notices.latest)
        )
        [name] = (each for each in os.listdir(tmp_path) if each.endswith(".json"))  # noqa: PTH208
        exported = json.loads((tmp_path / name).read_text("utf-8"))
        assert exported["changed"] == app.conversations.store.conversation(1).changed


def test_every_command_is_an_action_of_the_chat() -> None:
    """Each of them can be run."""
    app = chat(Script())
    assert set(app.actions.calls) == {command.id for command in COMMANDS}
    app.conversations.store.close()


@pytest.mark.parametrize(
    ("text", "is_command"),
    [
        ("/stats", True),
        ("/", True),
        ("/export md", True),
        ("/a/b", False),
        ("a /b", False),
        ("/stats\nof whom?", False),
        ("/home\nis full", False),
        ("/schema {\n}", True),
        ("/schema\n{\n}", True),
        ("/SCHEMA {\n\n}", True),
    ],
)
def test_what_a_command_looks_like(text: str, is_command: bool) -> None:
    """A slash and a word at the beginning, on one line unless the command takes several."""
    assert is_slash(text) == is_command


REFUSED = (
    "/nothing", "/export pdf", "/regenerate temperature=hot", "/regenerate nothing", "/race save",
    "/serve nobody", "/think maybe", "/schema {",
)  # fmt: skip
"""An unknown command, and each kind of argument that is not understood."""


async def test_a_refused_command_stays_to_be_corrected() -> None:
    """With the reason, whatever part of it is wrong."""
    app = chat(Script(thinking=("on", "off")))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        for typed in REFUSED:
            app.clear_notifications()
            await say(pilot, typed, wait=False)
            await until(pilot, lambda: bool(app.notices.latest))
            assert app.query_one(Composer).text == typed


def test_wrong_arguments_are_refused() -> None:
    """The message lists the valid ones."""
    assert find_slash("/EXPORT html") == "export('html')"
    assert find_slash("/export") == "export('md')"
    with pytest.raises(InvalidOption, match="takes one of md, json, html"):
        find_slash("/export pdf")
    with pytest.raises(InvalidOption, match="takes no argument"):
        find_slash("/new thing")
    assert list(matching("/co")) == ["continue", "race", "context", "compact", "copy"]
    assert list(matching("/cl")) == ["new"]
    assert len(matching("/")) == 12
    assert matching("/co ") == {}


@pytest.mark.slow
async def test_the_statistics_of_a_conversation_are_a_table(tmp_path: Path) -> None:
    """The table has one row per answer, also from earlier sessions, and a row of totals."""
    path = tmp_path / "history.db"
    async with chat(Script(["abcdefghijkl" * 10]), path).run_test(size=SIZE) as pilot:
        await say(pilot, "One")
    app = chat(Script(["abcdefghijkl" * 20]), path)
    async with app.run_test(size=SIZE) as pilot:
        with Store(path) as store:
            (conversation,) = store.conversations()
        await app.actions.conversations.open(conversation.id)
        await say(pilot, "Two")
        await type_keys(pilot, *"/stats", "enter")
        await until(pilot, lambda: isinstance(app.screen, StatisticsScreen))
        table = app.screen.query_one(DataTable)
        rows = [
            [str(cell).strip() for cell in table.get_row_at(row)] for row in range(table.row_count)
        ]
        shown = screen_text(app)

    assert rows == [
        ["1", "30", "25.0", "2.2x faster", "67 %", "3.00", "0.12 s", "suffix, model"],
        ["2", "60", "25.0", "2.2x faster", "67 %", "3.00", "0.12 s", "suffix, model"],
        ["all", "90", "25.0", "2.2x faster", "67 %", "3.00", "", ""],
    ]
    assert "acceptance by draft position: 1: 100 %, 2: 100 %, 3: 0 %" in shown


@pytest.mark.slow
async def test_slash_words_rename_and_regenerate() -> None:
    """/rename asks for a title; /regenerate and /retry answer the last question again."""
    script = Script(["first", "second", "third"])
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One")
        for word in ("/regenerate", "/retry"):
            await type_keys(pilot, *word, "enter")
            await until(pilot, lambda: app.answers.current is None)
        await type_keys(pilot, *"/rename", "enter")
        await until(pilot, lambda: isinstance(app.screen, LineScreen))
    assert len(script.asked) == 3


@pytest.mark.slow
async def test_without_answers_there_are_no_statistics() -> None:
    """A notice says so."""
    app = chat(Script())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await app.run_action("statistics")
        await pilot.pause()
        assert not isinstance(app.screen, StatisticsScreen)
        assert len(app._notifications) == 1


@pytest.mark.parametrize("form", ["{}", "'{}'", "{} ", '"{}"', "file://{}"])
def test_a_pasted_path_names_its_file(tmp_path: Path, form: str) -> None:
    """All forms in which terminals paste a dropped file are known."""
    (tmp_path / "notes.txt").write_text("some notes", "utf-8")
    text = form.format(tmp_path / "notes.txt")

    assert pasted_files(text, tmp_path) == ["@notes.txt"]
    assert pasted_files(text, Path("/elsewhere")) == [f"@{tmp_path / 'notes.txt'}"]


@pytest.mark.parametrize("form", ["{}", "'{}'", "file://{}"])
def test_a_path_with_spaces_is_quoted(tmp_path: Path, form: str) -> None:
    """The file is found by its quoted name."""
    (tmp_path / "my notes.txt").write_text("some notes", "utf-8")
    path = str(tmp_path / "my notes.txt")
    written = path.replace(" ", "%20") if form.startswith("file") else path
    (name,) = pasted_files(form.format(written), tmp_path)

    assert name == '@"my notes.txt"'
    (file,) = named_files(f"Read {name}", tmp_path).attachments
    assert file.content == "some notes"
    escaped = path.replace(" ", "\\ ")
    assert pasted_files(f"{escaped} {escaped}", tmp_path) == [name, name]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "notes.txt",
        "/nowhere/at/all",
        "see {}",
        "'",
        "a\0b",
        "{}x",
        "file://[abc",
        "file://x]",
        "file://a\uff0fb",
        "~missing-user/a",
    ],
)
def test_other_texts_stay_as_they_are(tmp_path: Path, text: str) -> None:
    """Names alone, missing files, folders and binary files are not attached."""
    (tmp_path / "notes.txt").write_text("some notes", "utf-8")
    (tmp_path / "program").write_bytes(b"\x7fELF\2\1\1\0")

    assert pasted_files(text.format(tmp_path / "notes.txt"), tmp_path) == []
    assert pasted_files(str(tmp_path / "program"), tmp_path) == []
    assert pasted_files(str(tmp_path), tmp_path) == []


@pytest.mark.slow
async def test_a_dropped_file_is_attached(tmp_path: Path) -> None:
    """Its contents are sent with the question."""
    (tmp_path / "notes.txt").write_text("some notes", "utf-8")
    script = Script()
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        composer = await paste(pilot, f"'{tmp_path / 'notes.txt'}'")
        assert composer.text == f"@{tmp_path / 'notes.txt'} "
        await pilot.press("enter")
        await until(pilot, lambda: bool(script.asked))
    assert "some notes" in script.asked[0][0][0]["content"]


async def test_a_long_paste_is_folded() -> None:
    """The composer shows a placeholder; the model gets the whole text, again from the history."""
    script = Script()
    app = chat(script)
    long = "wörd " * LONGEST_PASTE
    async with app.run_test(size=SIZE) as pilot:
        composer = await paste(pilot, "short ")
        await paste(pilot, long)
        await paste(pilot, long.upper())
        folded = "[pasted 10,000 characters]", "[pasted 10,000 characters, 2]"
        assert composer.text == f"short {''.join(folded)}"
        await pilot.press("enter")
        await until(pilot, lambda: bool(script.asked) and app.answers.current is None)
        await pilot.press("up")
        assert composer.text == f"short {''.join(folded)}"
        await pilot.press("enter")
        await until(pilot, lambda: len(script.asked) == 2 and app.answers.current is None)
    contents: list[Any] = [asked[0][-1]["content"] for asked in script.asked]
    assert contents == [f"short {long}{long.upper()}"] * 2


def test_placeholders_inside_pasted_text_stay_as_they_are() -> None:
    """Each placeholder is replaced once, however the pasted texts look."""
    first, second = "[pasted 10,000 characters]", "[pasted 10,000 characters, 2]"
    pasted = {first: f"see {second}", second: f"see {first}"}

    assert unfold(f"{first} and {second}", pasted) == f"see {second} and see {first}"
    assert unfold(first, {}) == first


@pytest.mark.slow
async def test_a_paste_never_takes_the_place_of_another() -> None:
    """Two texts of one length have placeholders of their own, even once the first is forgotten."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        composer = await paste(pilot, "a" * 3000)
        await paste(pilot, "b" * 3000)
        kept = composer.text.removeprefix("[pasted 3,000 characters]")
        composer.text = kept
        await pilot.press("enter")
        await until(pilot, lambda: app.answers.current is None and composer.text == "")
        await paste(pilot, "c" * 3000)

        assert composer.text not in {"", kept}


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 20), (80, 24)], ids=str)
async def test_a_narrow_screen_leaves_whole_columns_of_statistics_out(
    size: tuple[int, int],
) -> None:
    """Rather than cutting one off; the speedup is written as everywhere."""
    app = chat(Script(["abcdefghijkl" * 10]))
    async with app.run_test(size=size) as pilot:
        await say(pilot, "One")
        await type_keys(pilot, *"/stats", "enter")
        await until(pilot, lambda: isinstance(app.screen, StatisticsScreen))
        await until(pilot, lambda: "per pass" in screen_text(app))
        table = app.screen.query_one(DataTable)
        assert table.max_scroll_x == 0
        assert ("drafter" in screen_text(app)) == (size[0] >= 80)
        assert "0.12 s" in screen_text(app)
        assert "25.0 2.2x faster" in screen_text(app)
