"""One table of commands: keys, footer, palette, F1 and slash words all come from it."""

from __future__ import annotations

import gc
import threading
import weakref
from dataclasses import replace
from functools import partial

import pytest
from textual.binding import Binding
from textual.widgets import Footer, Input, OptionList
from textual.widgets._footer import FooterKey

from scripted_chat import Script, chat
from specchat.chat.export import EXPORTS
from specchat.docs import read
from specchat.tui.app import ChatApp
from specchat.tui.commands import (
    CANCEL_EDIT,
    COMMANDS,
    COMPOSER_COMMANDS,
    FOOTER,
    KEY_ACTIONS,
    SLASHES,
    find_command,
    find_slash,
    key_of,
    key_rows,
    palette_rows,
)
from specchat.tui.screens.help_screen import HelpScreen
from specchat.tui.setup import Offer
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.panel import Panel
from tables import table
from tui.driving import frame_text, say, screen_text, stop_halfway, type_keys, until

WIDE = (240, 60)
KEYS = ["Enter", "Send", "F8", "Models", "F7", "Race", "F6", "Steps", "F1", "Help"]


def test_ids_keys_and_slash_words_are_unique() -> None:
    """A key or a word means one thing."""
    for names in (
        [command.id for command in COMMANDS],
        [command.key for command in COMMANDS if command.key],
        [word for command in COMMANDS for word in command.slash],
    ):
        assert len(names) == len(set(names))


def test_keys_come_from_the_table() -> None:
    """With their titles, their place in the footer and their priority."""
    bindings = [each for each in ChatApp.BINDINGS if isinstance(each, Binding)]
    (cancel,) = (each for each in bindings if each.action == CANCEL_EDIT)
    bindings.remove(cancel)
    assert (cancel.key, cancel.id) == ("escape", "stop")
    assert [(b.key, b.action, b.description, b.id, b.show, b.priority) for b in bindings] == [
        (each.key, each.id, each.title, each.id, each.id in FOOTER, each.is_priority)
        for each in COMMANDS
        if each.key
    ]
    assert {each.id for each in bindings} == KEY_ACTIONS


@pytest.mark.anyio
async def test_the_footer_comes_from_the_table() -> None:
    """It shows six, in their order, also on the narrowest screen."""
    app = chat(Script())
    async with app.run_test(size=(60, 20)) as pilot:
        for width in (60, 80, 240):
            await pilot.resize_terminal(width, 20)
            await until(
                pilot,
                lambda: screen_text(app).splitlines()[-1].split() == KEYS,
            )


@pytest.mark.anyio
async def test_the_footer_says_what_esc_does_now() -> None:
    """It stops an answer or cancels an edit, also under another key; else it is not there."""
    script = Script(["abcdefghijkl" * 3], hold=threading.Event())
    app = chat(script, keys={"stop": "f10"})
    async with app.run_test(size=WIDE) as pilot:

        def named() -> list[str]:
            keys = app.screen.query_one(Footer).query(FooterKey)
            return [key.description for key in keys if key.key_display == "F10"]

        assert named() == []
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: named() == ["Stop"])
        await pilot.press("f10")
        await until(pilot, lambda: named() == [])
        await pilot.press("shift+up", "up", "e")
        await until(pilot, lambda: named() == ["Cancel"])
        assert "Editing" in frame_text(app)
        await pilot.press("f10")
        await until(pilot, lambda: named() == [])
        assert "Editing" not in frame_text(app)


def test_a_key_promises_nothing_that_only_its_slash_command_does() -> None:
    """What may be written behind a slash command is named with it alone."""
    keys, slashes = dict(key_rows()), {word: each.slash_help for word, each in SLASHES.items()}
    assert keys[key_of("regenerate")] == "Answer the last question again"
    assert slashes["regenerate"].endswith("; temperature=0.2 or a pair's name changes how")
    for command in COMMANDS:
        words = f"{command.help} {command.title}"
        assert not (command.key and ("=" in words or "NAME" in words)), command.id
        assert command.takes_text or not command.text_help


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_footer_stays_behind_a_dialog() -> None:
    """A screen that is covered keeps its keys, also when it is back."""
    app = chat(Script())
    async with app.run_test(size=WIDE) as pilot:
        footer = app.screen.query_one(Footer)
        await until(pilot, lambda: app.pair_controller.facts is not None)
        # it is composed again once the composer has the focus
        await until(pilot, lambda: screen_text(app).splitlines()[-1].split() == KEYS)
        await pilot.pause(0.5)
        keys = list(footer.query(FooterKey))
        await pilot.press("f1")
        await pilot.pause(0.2)
        assert list(footer.query(FooterKey)) == keys
        assert all(key.region for key in keys)
        await pilot.press("escape")
        await until(pilot, lambda: "Help" in screen_text(app).splitlines()[-1])
        assert all(key.region for key in footer.query(FooterKey))


def _is_removed(key: weakref.ref[FooterKey]) -> bool:
    found = key()
    return found is None or found.parent is None


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_footer_lets_go_of_its_old_keys() -> None:
    """It is composed again when the focus moves to other keys; what was removed is freed."""
    app = chat(Script())
    async with app.run_test(size=WIDE) as pilot:
        footer = app.screen.query_one(Footer)
        await until(pilot, lambda: bool(footer.query(FooterKey)))
        await say(pilot, "Hi")
        # it is composed again once the composer has the focus
        await until(pilot, lambda: "Send" in screen_text(app).splitlines()[-1])
        await pilot.pause(0.5)
        kept = [(key, key._styles_cache) for key in footer.query(FooterKey)]
        removed = [weakref.ref(each) for pair in kept for each in pair]
        del kept
        for pressed in ("shift+up", "escape", "shift+up"):
            before = weakref.ref(footer.query(FooterKey).first())
            await pilot.press(pressed)
            await until(pilot, partial(_is_removed, before))
        await pilot.pause(0.1)
        gc.collect()
    assert [key for each in removed if (key := each())] == []
    assert removed


@pytest.mark.anyio
async def test_the_palette_comes_from_the_table() -> None:
    """An entry for each command that can be run, and for each argument it accepts."""
    app = chat(Script())
    offers = [Offer("one", "", is_recommended=True), Offer("two", "", is_trial=True)]
    app.state.hint.begin_with(offers)
    async with app.run_test(size=WIDE):
        titles = [each.title for each in app.get_system_commands(app.screen)]
    for command in COMMANDS:
        own = command.palette_title or command.title
        entries = [title for title in titles if title.startswith(own)]
        assert len(entries) >= max(1, len(command.takes)), command
    ours = [title for title, _, _ in palette_rows(key_of)]
    assert set(ours) <= set(titles)
    assert [each.takes for each in COMMANDS if each.id == "export"] == [tuple(EXPORTS)]
    assert len(ours) == len(EXPORTS) - 1 + sum(each.in_palette for each in COMMANDS)


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_palette_finds_titles_help_and_slash_words() -> None:
    """What has the words in its title comes first."""
    app = chat(Script())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("ctrl+p")
        for typed, found in (
            ("regen", "Regenerate"),
            ("retry", "Regenerate"),
            ("last question", "Regenerate"),
            ("download", "Switch or download models"),
            ("clear", "New"),
            ("without spec", "Race"),
            ("compare", "Race"),
            ("/stats", "Statistics"),
        ):
            app.screen.query_one(Input).value = ""
            await type_keys(pilot, *typed)
            await until(pilot, lambda: app.screen.query_one(OptionList).option_count > 0)
            first = app.screen.query_one(OptionList).get_option_at_index(0)
            assert str(first.prompt).startswith(found)
            app.screen.query_one(Input).value = "!?"
            await until(pilot, lambda: "No matches" in screen_text(app))


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_palette_and_the_stop_button_name_the_keys_of_the_settings() -> None:
    """A changed key instead of the default."""
    script = Script(hold=threading.Event())
    app = chat(script, keys={"steps": "ctrl+b", "stop": "f12"})
    async with app.run_test(size=WIDE) as pilot:
        titles = [each.title for each in app.get_system_commands(app.screen)]
        await say(pilot, "Hi", wait=False)
        await until(pilot, lambda: "stop F12" in screen_text(app))
        await pilot.press("f12")
        await until(pilot, lambda: app.answers.current is None)
    assert any(title.endswith("(Ctrl+B)") for title in titles)
    assert any(title.endswith("(Ctrl+G)") for title in titles)


@pytest.mark.slow
@pytest.mark.anyio
async def test_f1_comes_from_the_table() -> None:
    """Every key with what it does."""
    app = chat(Script())
    async with app.run_test(size=(140, 130)) as pilot:
        await pilot.press("f1")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        shown = screen_text(app)
    rows = key_rows()
    assert len(rows) == len(KEY_ACTIONS)
    for key, words in rows:
        assert any(key in line and words in line for line in shown.splitlines()), key


@pytest.mark.slow
@pytest.mark.anyio
async def test_f1_shows_the_keys_of_the_settings() -> None:
    """A changed key, or several, instead of the default; the others as they are."""
    app = chat(Script(), keys={"models": "ctrl+b,pagedown", "stop": "f12"})
    async with app.run_test(size=(140, 130)) as pilot:
        await pilot.press("f1")
        await pilot.pause()
        rows = [line.strip("│ ").split("  ") for line in screen_text(app).splitlines()]
    shown = {row[-1].strip(): row[0] for row in reversed(rows)}  # slash commands come after
    help_of = {command.id: command.help for command in COMMANDS}
    assert shown[help_of["models"]] == "Ctrl+B, PgDn"
    assert shown[help_of["stop"]] == "F12"
    assert shown[help_of["help"]] == "F1"


def test_slash_words_come_from_the_table() -> None:
    """The table gives their help and their arguments."""
    words = {word: command for command in COMMANDS for word in command.slash}
    assert words == SLASHES
    for word, command in words.items():
        argument = f"({command.takes[0]!r})" if command.takes else ""
        assert find_slash(f"/{word}") == command.id + argument


@table("command", COMMANDS, ids=lambda command: command.id)
def test_every_command_is_found_by_its_action(command: object) -> None:
    """Keys, slash words and clicks use the same action names."""
    assert isinstance(command, type(COMMANDS[0]))
    for action in (command.id, f"app.{command.id}", f"{command.id}('md')"):
        assert find_command(action) is command
    assert replace(command) == command


@pytest.mark.anyio
async def test_a_command_that_must_wait_says_so_however_it_is_called() -> None:
    """Keys and slash words refuse it; a command that need not wait runs."""
    app = chat(Script())
    async with app.run_test(size=WIDE, notifications=True):
        ran: list[str] = []
        app.actions.calls = {each.id: partial(ran.append, each.id) for each in COMMANDS}
        app.answers.is_busy = lambda: True  # type: ignore[method-assign]
        offers = [Offer("one", "", is_recommended=True), Offer("two", "", is_trial=True)]
        app.state.hint.begin_with(offers)  # without them their keys belong to the composer
        for command in COMMANDS:
            if not command.takes:
                await app.run_action(command.id)
        waiting = [each.id for each in COMMANDS if not each.while_answering]
    assert waiting == [
        "regenerate", "go_on", "compare", "compact", "unload",
    ]  # fmt: skip
    running = {each.id for each in COMMANDS if each.while_answering and not each.takes}
    assert set(ran) == running - {"stop"}  # nothing is written here


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_composers_keys_come_from_the_table() -> None:
    """Each has an action of the composer or of the app, and stands on the help page."""
    app = chat(Script())
    async with app.run_test(size=(110, 40)):
        composer = app.query_one(Composer)
        for command in COMPOSER_COMMANDS:
            for key in command.key.split(","):
                bindings = composer._bindings.key_to_bindings[key]
                assert command.id in {each.action for each in bindings}
            target, _, name = command.id.partition("(")[0].rpartition(".")
            assert name in app.actions.key_calls if target else hasattr(composer, f"action_{name}")
        for keys, words in key_rows(COMPOSER_COMMANDS):
            assert f"| {keys} | {words} |" in read("chat")


@pytest.mark.slow
@pytest.mark.anyio
async def test_texts_name_the_keys_of_the_settings() -> None:
    """The advice, the explanations, the line below a stopped answer, the legend and notices."""
    keys = {
        "improve": "ctrl+b", "help": "f12", "compare": "f11", "go_on": "ctrl+k", "origins": "f1",
        "regenerate": "f4,ctrl+e",
    }  # fmt: skip
    script = Script(["abcdefghijkl" * 9], num_drafted=0, hold=threading.Event())
    app = chat(script, None, {"drafter": "none"}, keys=keys)
    async with app.run_test(size=(140, 50), notifications=True) as pilot:
        await stop_halfway(pilot, script, first=4)
        await pilot.press("f1")
        await until(pilot, lambda: "Ctrl+B: turn speculation on" in screen_text(app))
        for words in ("F12 explains", "stopped · Ctrl+K continues", "F1 hides"):
            assert words in screen_text(app)
        app.query_one(Panel).focus()
        await pilot.press("enter")
        await until(pilot, lambda: "press Ctrl+B if the panel" in screen_text(app))
        assert "F11 races" in screen_text(app)
        await pilot.press("escape", "ctrl+b")
        await until(pilot, lambda: "F4, Ctrl+E answers again." in screen_text(app))


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_palette_lists_what_can_be_done_by_use() -> None:
    """New chat first; accepting an offer only while there is one; Textual's own commands last."""
    app = chat(Script())
    async with app.run_test(size=(120, 60)) as pilot:
        await pilot.press("ctrl+p")
        await until(pilot, lambda: "New chat (Ctrl+N)" in screen_text(app))
        titles = [each.title for each in app.get_system_commands(app.screen)]
        first = ["New chat", "Switch or download models", "Regenerate the answer"]
        assert [title.partition(" (")[0] for title in titles[:3]] == first
        assert not any("offer" in title for title in titles)
        assert titles.index("Quit") > titles.index("Copy answer")
        listed = app.screen.query_one(OptionList)
        await until(pilot, lambda: listed.option_count == len(titles))
        shown = [str(each.prompt).partition("\n")[0] for each in listed.options]
        assert shown == titles
        await pilot.press("escape")
        app.state.hint.begin_with([Offer("one", "", is_recommended=True)])
        titles = [each.title for each in app.get_system_commands(app.screen)]
        assert [title for title in titles if "offer" in title] == ["Accept the offer (Ctrl+Y)"]
