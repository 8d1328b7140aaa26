"""Functions that drive the chat in tests, and read its screen."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import pytest
from textual.app import App
from textual.content import Content
from textual.events import Key
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.widgets import Static

from scripted_chat import Script
from specchat.tui.app import ChatApp
from specchat.tui.screens.dialogs import ConfirmScreen
from specchat.tui.screens.race_screen import RaceScreen
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.panel import FigureView, Panel

__all__ = [
    "PATIENCE", "agree", "ask_twice", "frame_text", "header_text", "hint", "panel_text", "race",
    "say", "screen_text", "status", "stop_halfway", "type_keys", "until",
]  # fmt: skip

PATIENCE = 60.0
"""Seconds: longer than anything takes on a machine that runs other things too."""


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = monotonic() + PATIENCE
    while monotonic() < deadline:
        await pilot.pause(0.01)
        if holds():
            return
    pytest.fail("timed out; the screen shows:\n" + screen_text(pilot.app))


async def type_keys(pilot: Pilot[None], *keys: str) -> None:
    """Send keys one right after the other, as a terminal does, and wait until they are handled.

    `Pilot.press` waits twice after each key until the process has been idle for 20 ms.
    """
    for key in keys:
        is_character = len(key) == 1
        name = _character_to_key(key) if is_character else key
        pilot.app.post_message(Key(name, key if is_character else None))
        await pilot.pause(0)
    await pilot.pause()


async def say(pilot: Pilot[None], text: str, *, wait: bool = True) -> None:
    """Write something and send it."""
    app = pilot.app
    assert isinstance(app, ChatApp)
    app.query_one(Composer).focus()
    app.query_one(Composer).text = text
    await type_keys(pilot, "enter")
    if wait:
        await until(pilot, lambda: app.answers.current is None)


async def ask_twice(pilot: Pilot[None], script: Script, text: str) -> None:
    """Ask something, and have it answered once more: two versions of one answer."""
    await say(pilot, text)
    await pilot.press("f5")
    app = pilot.app
    assert isinstance(app, ChatApp)
    await until(pilot, lambda: app.answers.current is None and len(script.asked) == 2)


async def agree(pilot: Pilot[None], *keys: str) -> None:
    """Press keys after which something is asked, and agree to it."""
    await pilot.press(*keys)
    await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen))
    question = pilot.app.screen
    await pilot.press("enter")
    await until(pilot, lambda: question not in pilot.app.screen_stack)
    await pilot.pause()


async def race(pilot: Pilot[None], call: str = "f7") -> None:
    """Race the last answer, by a key or a slash command, and wait for the race's screen."""
    app = pilot.app
    assert isinstance(app, ChatApp)
    await until(pilot, lambda: app.pair_controller.facts is not None)
    if call.startswith("/"):
        await say(pilot, call, wait=False)
    else:
        await pilot.press(call)
    await until(pilot, lambda: isinstance(app.screen, RaceScreen))


async def stop_halfway(pilot: Pilot[None], script: Script, first: int = 12) -> None:
    """Have an answer stopped after its first step, of so many letters; later ones are not held."""
    app = pilot.app
    assert isinstance(app, ChatApp)
    await say(pilot, "Count", wait=False)
    await until(pilot, lambda: script.answers[0][:first] in screen_text(app))
    await pilot.press("escape")
    await until(pilot, lambda: app.answers.current is None)
    script.hold = None


def status(app: ChatApp) -> str:
    """Return the line above the composer."""
    return str(app.query_one("#status", Static).render())


def hint(app: ChatApp) -> str:
    """Return the quiet line that offers something, empty while it is hidden."""
    line = app.query_one("#hint", Static)
    return str(line.render()) if line.display else ""


def header_text(app: ChatApp) -> str:
    """Return the header."""
    return str(app.query_one("#header", Static).content)


def frame_text(app: ChatApp) -> str:
    """Return what the composer's frame says, above and below."""
    composer = app.query_one(Composer)
    parts = composer.border_title, composer.border_subtitle
    return " ".join(Content.from_markup(part or "").plain for part in parts)


def panel_text(app: ChatApp) -> str:
    """Return what the panel says."""
    shown = [each for each in app.query_one(Panel).query(FigureView) if each.display]
    return "\n".join(str(each.content) for each in shown)


def screen_text(app: App[None]) -> str:
    """Return all that is on the screen, without colours."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)
