"""Every theme and every name can be shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripted_chat import Script, chat
from specchat.chat.preset import Preset
from specchat.options.declarations import ScreenOptions
from tui.driving import say, screen_text, type_keys, until

pytestmark = pytest.mark.anyio
SIZE = (110, 40)


@pytest.mark.slow
async def test_every_theme_draws_everything() -> None:
    """Markdown, code, token colours and the stats."""
    text = "# Heading\n\n`code` and [link](there)\n\n> said\n\n```py\nx = 1\n```\n\n1. one\n"
    app = chat(Script([text]), screen=ScreenOptions(theme="ansi-light"))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Colours")
        assert app.theme == "ansi-light"
        for theme in app.available_themes:
            app.theme = theme
            await pilot.pause()
            await type_keys(pilot, "f4")
            assert "Heading" in screen_text(app)
        assert "ansi-dark" in app.available_themes


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", ["[/x] [red]name", "a[", "[b]"])
async def test_names_are_not_markup(name: str, tmp_path: Path) -> None:
    """Notices and commands of the palette show them as they are."""
    app = chat(Script(), tmp_path / "history.db")
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        app.conversations.store.save_preset(Preset(name, "Answer in verse.", {}))
        app.actions.conversations.use_preset(app.conversations.store.presets()[0])
        await until(pilot, lambda: f"now uses preset {name}." in screen_text(app))
        app.screen.notify(f"{name} again")
        await until(pilot, lambda: f"{name} again" in screen_text(app))
        await pilot.press("ctrl+p")
        await type_keys(pilot, *"preset:")
        await until(pilot, lambda: f"Preset: {name}" in screen_text(app))
        await type_keys(pilot, *["backspace"] * 7)
        await pilot.pause(0.1)


async def test_updates_do_not_walk_the_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes with every step finds its widgets in Textual's cache."""
    app = chat(Script())
    async with app.run_test(size=(120, 40)):

        def update(words: str) -> None:
            app.view.say(words)
            app.view.show_state()

        update("first")
        with monkeypatch.context() as patched:
            for walk in ("walk_breadth_first", "walk_depth_first", "walk_breadth_search_id"):
                patched.delattr(f"textual.dom.{walk}")
            update("second")
            update("")
