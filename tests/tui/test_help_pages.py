"""The help screen: keys first, and paragraphs that fill the width."""

from __future__ import annotations

import pytest

from scripted_chat import Script, chat
from specchat.docs import read, topics
from specchat.tui.screens.help_screen import HelpScreen, Page, flowing
from tables import table
from tui.driving import screen_text, until

pytestmark = pytest.mark.anyio


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("size", [(60, 20), (120, 36)], ids=str)
async def test_the_first_page_begins_with_keys(size: tuple[int, int]) -> None:
    """Nothing else stands above them, and the keys of the screen itself are in full."""
    app = chat(Script())
    async with app.run_test(size=size) as pilot:
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await until(pilot, lambda: "F8" in screen_text(app))
        page = app.screen.query_one(Page).region
        rows = screen_text(app).splitlines()[page.y : page.bottom]
        scroll_bar = app.screen.query_one(Page).scrollbar_size_vertical
        lines = [row[page.x : page.right - scroll_bar].strip() for row in rows]
        assert next(filter(None, lines)) == "Keys"
        place = [line.split()[:4] for line in lines].index(["key", "what", "it", "does"])
        assert not any(lines[1:place])
        assert any(line.startswith("F1 ") for line in lines[place:])
        for key in ("Previous", "Next", "Close", "Topics"):
            assert f" {key}" in screen_text(app)


def test_paragraphs_and_items_are_one_line_each() -> None:
    """Code, tables, headings and quotes stay as they are."""
    lines = [
        "# Title", "One", "two.", "", "- item", "  goes on", "- next", "1. first", "   more", "",
        "| a |", "| - |", "```", "x", "y", "```", "Then", "this.", "> quoted",
    ]  # fmt: skip
    assert flowing("\n".join(lines)).split("\n") == [
        "# Title", "One two.", "", "- item goes on", "- next", "1. first more", "",
        "| a |", "| - |", "```", "x", "y", "```", "Then this.", "> quoted",
    ]  # fmt: skip


@table("topic", topics())
def test_no_word_of_a_page_is_lost(topic: str) -> None:
    """Only line breaks change."""
    text = read(topic)
    assert flowing(text).split() == text.split()
    assert flowing(text).count("```") == text.count("```")
