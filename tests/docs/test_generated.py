"""The parts of the documentation that come from the code are up to date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from textual.binding import Binding

from documents import PAGES, name_of
from scripts.support.generated_docs import updated
from specchat.docs import read
from specchat.tui.screens.model_screen import ModelScreen
from specchat.tui.widgets.message_views import MessageView
from tables import table

FIRST_CELL = re.compile(r"^\| ([^|]+) \|", re.MULTILINE)


@table("page", PAGES, ids=name_of)
def test_generated_parts_are_up_to_date(page: Path) -> None:
    """If this fails, run python scripts/lab/update_docs.py."""
    text = page.read_text("utf-8")
    assert updated(text) == text


@table(
    ("part", "line"),
    [
        ("settings", "- `top_k = 40`: "),
        ("keys", "| <!-- key: models -->F8 | "),
        ("slash commands", "| `/stats` | "),
        ("actions", '- `regenerate = "f5"`'),
    ],
)
def test_the_code_fills_in_each_part(part: str, line: str) -> None:
    """Settings come from the declared options, keys from the chat's table of commands."""
    assert f"\n{line}" in updated(f"<!-- generated: {part} -->\n<!-- end -->\n")


@pytest.mark.parametrize("widget", [MessageView, ModelScreen])
def test_the_keys_of_messages_and_models_are_listed(
    widget: type[MessageView | ModelScreen],
) -> None:
    """The first key of each binding stands in a table of specchat/docs/chat.md."""
    bindings = [each for each in widget.BINDINGS if isinstance(each, Binding)]
    keys = [each.key.partition(",")[0] for each in bindings]
    listed = {key.lower() for cell in FIRST_CELL.findall(read("chat")) for key in cell.split(", ")}
    assert {"esc" if key == "escape" else key for key in keys} <= listed
