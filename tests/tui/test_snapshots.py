"""The main screens look as they did when they were last checked by eye.

`WRITE_SNAPSHOTS=1` draws them anew; look at the pictures before committing them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Footer, Input
from textual.widgets._footer import FooterKey

from scripted_chat import Script, chat
from specchat.decoding.chunk import ToolCall
from specchat.engine.api import Loading
from specchat.options.declarations import ScreenOptions
from specchat.tui.controllers.pulls import PullState
from specchat.tui.setup import Offer, PairChoice
from specchat.tui.widgets.composer import Composer
from tui.driving import until

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parent / "snapshots"
REASONING = "The user wants to know about speculation."
ANSWER = (Path(__file__).parent / "answer.md").read_text("utf-8")
CALLS = (ToolCall("get_speed", '{"drafter": "model", "lengths": [3, 7]}', raw="<call>"),)
SIZES = {"small": (60, 20), "medium": (110, 34), "large": (180, 50)}
SCREENS = {
    "chat": [],
    "origins": ["f4"],
    "steps": ["f6"],
    "help": ["f1"],
    "models": ["f8"],
    "stats": [*"/stats", "enter"],
    "commands": ["slash"],
    "settings": ["f9"],
    "sidebar": ["f2"],
    "calls": ["shift+up", "space"],
}
IN_ALL_SIZES = ("chat", "models", "stats", "settings", "sidebar", "help")
CHOICE = PairChoice("demo", "A tiny model that knows specchat", Loading(Path("target.gguf")))
OFFERS = (
    Offer("demo", CHOICE.description, "12.5 MB", choose=lambda: CHOICE),
    Offer("qwen3-4b", "Everyday questions on a laptop", "3.14 GB", "small", "Apache-2.0"),
    Offer(
        "qwen3-8b", "To begin with", "5.67 GB", "medium", fit="fits the GPU", share=0.34,
        is_recommended=True,
    ),
    Offer("qwen3-14b", "As qwen3-8b, better and slower", "9.64 GB", "medium", "Apache-2.0"),
    Offer("a-dspark", "Reasoning", "~20 GB", "large", needs="a DSpark draft"),
)  # fmt: skip
PULLS = {
    "qwen3-4b": PullState(share=0.34, words="1.07 GB of 3.14 GB, 34 %, 12.4 MB/s, 2 min 47 s left"),
    "qwen3-14b": PullState("failed", words="the disk is full at /cache: free some"),
}


TOPICS = {"chat": "Using the chat", "models": "Models"}
"""Topics of the help screen that do not change with the documentation."""

WRITE = bool(os.environ.get("WRITE_SNAPSHOTS"))
NUM_LOOKS = 50
"""A screen may take a moment to be drawn on a busy machine."""


def normal(picture: str) -> str:
    """Return a picture without the numbers Textual gives it, which differ from run to run."""
    return re.sub(r"terminal-\d+", "terminal", picture)


def is_drawn(pilot: Pilot[None]) -> bool:
    """Return whether all footers of the screen show their keys: they come last."""
    footers = pilot.app.screen.query(Footer)
    return all(footer.query(FooterKey) for footer in footers if footer.display)


async def settled_picture(pilot: Pilot[None], expected: str) -> str:
    """Return the picture of a screen that is drawn and has stopped changing.

    That is where two consecutive looks are equal. A picture other than the expected one, if there
    is one, is looked at again: on a busy machine a screen may pause halfway.
    """
    settled = before = ""
    for _ in range(NUM_LOOKS):
        for field in pilot.app.screen.query(Input):
            field.cursor_blink = False
        await pilot.pause(0.1)
        picture = normal(pilot.app.export_screenshot(title="specchat", simplify=True))
        if picture == before and is_drawn(pilot):
            settled = picture
            if expected in {"", settled}:
                return settled
        before = picture
    assert settled, "the screen never stopped changing, or its footer stayed empty"
    return settled


@pytest.mark.parametrize(
    ("screen", "size", "theme"),
    [
        *(
            (screen, size, theme)
            for screen in IN_ALL_SIZES
            for size in SIZES
            for theme in ("textual-dark", "textual-light")
        ),
        *((screen, "medium", "textual-dark") for screen in SCREENS if screen not in IN_ALL_SIZES),
    ],
)
async def test_screens_look_as_before(
    screen: str, size: str, theme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the main screens at three sizes in two themes."""
    monkeypatch.setattr("specchat.tui.widgets.sidebar.when", lambda _: "12:34")
    monkeypatch.setattr("specchat.tui.screens.help_screen.topics", lambda: TOPICS)
    monkeypatch.setattr("specchat.tui.screens.help_screen.read", lambda _: ANSWER)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").touch()  # the same name in every run
    monkeypatch.setenv("SPECCHAT_CONFIG", "config.toml")
    monkeypatch.setenv("COLORTERM", "truecolor")
    script = Script([ANSWER], REASONING)
    if screen == "calls":
        script.answers, script.calls = ["Let me measure that."], CALLS
    app = chat(script, screen=ScreenOptions(theme=theme), offers=lambda: OFFERS)
    async with app.run_test(size=SIZES[size]) as pilot:
        composer = app.query_one(Composer)
        composer.cursor_blink = False
        composer.text = "What is speculative decoding?"
        await pilot.press("enter")
        await until(pilot, lambda: app.answers.current is None)
        app.answers.figures.rates.clear()  # these depend on the speed of the machine
        app.answers.figures.acceptance.clear()
        app.answers.figures._past.clear()
        app.view.show_state()
        if screen == "models":
            app.pulls.latest.update(PULLS)
        await settled_picture(pilot, "")  # a footer behind a dialog is not drawn any more
        for key in SCREENS[screen]:
            await pilot.press(key)
        path = FOLDER / f"{screen}-{size}-{theme}.svg"
        expected = "" if WRITE else path.read_text("utf-8")
        picture = await settled_picture(pilot, expected)
    if WRITE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(picture, "utf-8")

    assert WRITE or picture == expected
