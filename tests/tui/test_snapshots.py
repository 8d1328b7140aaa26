"""The main screens look as they did when somebody last looked at them.

`WRITE_SNAPSHOTS=1` writes them anew; look at the pictures before keeping them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from scripted_chat import Script, chat
from specchat.tui.composer import Composer
from specchat.tui.panel import Panel

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parent / "snapshots"
ANSWER = (Path(__file__).parent / "answer.md").read_text("utf-8")
SIZES = {"small": (60, 20), "medium": (110, 34), "large": (180, 50)}
SCREENS = {"chat": [], "origins": ["f4"], "steps": ["f6"], "help": ["f1"]}


def normal(picture: str) -> str:
    """Return a picture without the numbers that are drawn for each."""
    return re.sub(r"terminal-\d+", "terminal", picture)


@pytest.mark.parametrize(
    ("screen", "size", "theme"),
    [
        *(("chat", size, theme) for size in SIZES for theme in ("textual-dark", "textual-light")),
        *((screen, "medium", "textual-dark") for screen in ("origins", "steps", "help")),
    ],
)
async def test_screens_look_as_before(screen: str, size: str, theme: str) -> None:
    """Each of the main screens at three sizes in two themes."""
    app = chat(Script([ANSWER]), theme=theme)
    async with app.run_test(size=SIZES[size]) as pilot:
        composer = app.query_one(Composer)
        composer.cursor_blink = False
        composer.text = "What is speculative decoding?"
        await pilot.press("enter")
        for _ in range(200):
            await pilot.pause(0.02)
            if app._answering is None:
                break
        app._figures.rates.clear()  # how often the screen followed differs from run to run
        app._figures.acceptance.clear()
        app._figures._past.clear()
        app.query_one(Panel).show(app._figures)
        for key in SCREENS[screen]:
            await pilot.press(key)
        await pilot.pause(0.1)
        picture = normal(app.export_screenshot(title="specchat", simplify=True))
    path = FOLDER / f"{screen}-{size}-{theme}.svg"
    if os.environ.get("WRITE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(picture, "utf-8")

    assert picture == path.read_text("utf-8")
