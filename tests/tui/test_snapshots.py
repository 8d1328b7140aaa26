"""The main screens look as they did when they were last checked by eye.

`WRITE_SNAPSHOTS=1` draws them anew; look at the pictures before committing them.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import mean

import pytest
from textual.color import Color
from textual.pilot import Pilot
from textual.widgets import Footer, Input
from textual.widgets._footer import FooterKey

from scripted_chat import Script, chat
from specchat.catalogue.outlook import Outlook
from specchat.decoding.chunk import ToolCall, TreeToken
from specchat.engine.api import Loading
from specchat.options.declarations import ScreenOptions
from specchat.tui.controllers.pulls import PullState
from specchat.tui.house_theme import DARK, HOUSE
from specchat.tui.setup import Offer, PairChoice
from specchat.tui.widgets.composer import Composer
from tui.contrast import READABLE, VISIBLE, contrast, luminance
from tui.driving import screen_text, until

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
    "tree": ["f6", "down", "down"],
    "help": ["f1"],
    "models": ["f8"],
    "stats": [*"/stats", "enter"],
    "commands": ["slash"],
    "settings": ["f9"],
    "sidebar": ["f2"],
    "calls": ["shift+up", "space"],
}
IN_ALL_SIZES = ("chat", "models", "stats", "settings", "sidebar", "help", "tree")
TREE = tuple(
    TreeToken(text, parent, "draft", number in {1, 6})
    for number, (text, parent) in enumerate(
        [
            ("**", 0), (" draft", 1), (" model", 2), (" names", 3), ("The", 0), ("Dra", 1),
            (" some", 1), ("\n", 2), ("文字", 2), ("```", 5), ("its", 4), (" the", 4),
        ],
        1,
    )
)  # fmt: skip
CHOICE = PairChoice("demo", "A tiny model that knows specchat", Loading(Path("target.gguf")))
OFFERS = (
    Offer(
        "demo", CHOICE.description, "12.5 MB", choose=lambda: CHOICE,
        outlook=Outlook("target.gguf", "draft", "Q4_0", 2048, "49 MB of 22.4 GB memory"),
    ),
    Offer("qwen3-4b", "Everyday questions on a laptop", "3.14 GB", "Apache-2.0"),
    Offer(
        "qwen3-8b", "Best start with 9 GB free", "5.67 GB", share=0.34, is_recommended=True,
        outlook=Outlook(
            "Qwen3-8B-Q4_K_M.gguf", "Qwen3-0.6B", "Q4_K_M", 8192, "≈ 8.1 of 22.4 GB memory"
        ),
    ),
    Offer(
        "qwen3-32b", "Like qwen3-8b, better and slower", "20.4 GB", "Apache-2.0",
        outlook=Outlook(
            "Qwen3-32B-Q4_K_M.gguf", "Qwen3-0.6B", "Q4_K_M", 8192, "≈ 23.9 of 22.4 GB memory",
            fits=False,
        ),
    ),
    Offer("qwen3-14b", "As qwen3-8b, better and slower", "9.64 GB", "Apache-2.0"),
)  # fmt: skip
PULLS = {
    "qwen3-4b": PullState(share=0.34, words="1.07 GB of 3.14 GB, 34 %, 12.4 MB/s, 2 min 47 s left"),
    "qwen3-14b": PullState("failed", words="the disk is full at /cache: free some"),
}


TOPICS = {"chat": "Using the chat", "models": "Models"}
"""Topics of the help screen that do not change with the documentation."""

WRITE = bool(os.environ.get("WRITE_SNAPSHOTS"))
UNSEEN = " ▔▁▊▎▌▐"
"""Spaces, and the blocks in which Textual draws margins in the colours of two grounds."""
NUM_LOOKS = 50
"""A screen may take a moment to be drawn on a busy machine."""


def normal(picture: str) -> str:
    """Return a picture without the numbers Textual gives it, which differ from run to run."""
    return re.sub(r"terminal-\d+", "terminal", picture)


def is_drawn(pilot: Pilot[None]) -> bool:
    """Return whether all footers of the screen show their keys: they come last."""
    footers = pilot.app.screen.query(Footer)
    return all(footer.query(FooterKey) for footer in footers if footer.display)


async def settle(pilot: Pilot[None]) -> None:
    """Wait until the screen is drawn and has stopped changing: two consecutive looks are equal."""
    before = ""
    for _ in range(NUM_LOOKS):
        for field in pilot.app.screen.query(Input):
            field.cursor_blink = False
        await pilot.pause(0.1)
        text = screen_text(pilot.app)
        if text == before and is_drawn(pilot):
            return
        before = text
    pytest.fail("the screen never stopped changing, or its footer stayed empty")


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
            if WRITE or expected == settled:
                return settled
        before = picture
    assert settled, "the screen never stopped changing, or its footer stayed empty"
    return settled


@asynccontextmanager
async def drawn(
    screen: str, size: str, theme: str, folder: Path, patched: pytest.MonkeyPatch
) -> AsyncIterator[Pilot[None]]:
    """Open the chat after one answer, and bring it to one of the screens."""
    patched.setattr("specchat.tui.widgets.sidebar.when", lambda _: "12:34")
    patched.setattr("specchat.tui.screens.help_screen.topics", lambda: TOPICS)
    patched.setattr("specchat.tui.screens.help_screen.read", lambda *_: ANSWER)
    patched.chdir(folder)
    (folder / "config.toml").touch()  # the same name in every run
    patched.setenv("SPECCHAT_CONFIG", "config.toml")
    patched.setenv("COLORTERM", "truecolor")
    script = Script([ANSWER], REASONING)
    if screen == "calls":
        script.answers, script.calls = ["Let me measure that."], CALLS
    if screen == "tree":
        script.tree = TREE
    app = chat(script, screen=ScreenOptions(theme=theme), offers=lambda: OFFERS)
    async with app.run_test(size=SIZES[size]) as pilot:
        composer = app.query_one(Composer)
        composer.cursor_blink = False
        composer.text = "What is speculative decoding?"
        await pilot.press("enter")
        await until(pilot, lambda: app.answers.current is None)
        app.view.show_state()
        if screen == "models":
            app.pulls.latest.update(PULLS)
        await settle(pilot)  # a footer behind a dialog is not drawn any more
        for key in SCREENS[screen]:
            await pilot.press(key)
        yield pilot


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize(
    ("screen", "size"),
    [
        *((screen, size) for screen in IN_ALL_SIZES for size in SIZES),
        *((screen, "medium") for screen in SCREENS if screen not in IN_ALL_SIZES),
    ],
)
async def test_screens_look_as_before(
    screen: str, size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the main screens, at three sizes."""
    path = FOLDER / f"{screen}-{size}.svg"
    expected = "" if WRITE else path.read_text("utf-8")
    async with drawn(screen, size, DARK.name, tmp_path, monkeypatch) as pilot:
        picture = await settled_picture(pilot, expected)
    if WRITE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(picture, "utf-8")

    assert WRITE or picture == expected


@pytest.mark.slow
@pytest.mark.parametrize("screen", SCREENS)
async def test_screens_can_be_read_in_dark_and_light(
    screen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same text is in the same cells, and stands out from its ground."""
    words, looks = list[list[str]](), list[float]()
    for theme in HOUSE:
        async with drawn(screen, "medium", theme.name, tmp_path, monkeypatch) as pilot:
            await settle(pilot)
            pieces = list(pieces_on(pilot))
        faint = {
            text
            for text, colour, ground in pieces
            if contrast(colour, ground) < (READABLE if any(map(str.isalnum, text)) else VISIBLE)
        }
        assert not faint
        words.append([text for text, _, _ in pieces])
        looks.append(mean(luminance(ground) for _, _, ground in pieces))
    assert words[0] == words[1]
    assert looks[0] < 0.1
    assert looks[1] > 0.6


def pieces_on(pilot: Pilot[None]) -> Iterator[tuple[str, Color, Color]]:
    """Yield the texts and signs of a screen or dialog, their colours and those of their grounds."""
    dialogs = pilot.app.screen.query(".dialog")
    region = dialogs.first().region if dialogs else pilot.app.screen.region
    for line in pilot.app.screen._compositor.render_strips()[region.y : region.bottom]:
        for text, style, _ in line.crop(region.x, region.right):
            if text.strip(UNSEEN) and style and style.color and style.bgcolor:
                colours = map(Color.from_rich_color, (style.color, style.bgcolor))
                colour, ground = reversed(list(colours)) if style.reverse else colours
                yield text, colour, ground
