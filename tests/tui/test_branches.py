"""The branch on the screen is the one that is exported and opened again."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import OptionList

from scripted_chat import Script, chat
from specchat.tui.screens.dialogs import ChoiceScreen
from tui.driving import say, screen_text, until

pytestmark = pytest.mark.anyio


def exported(folder: Path) -> str:
    """Return what the Markdown files of a folder hold."""
    return "".join(path.read_text("utf-8") for path in folder.glob("*.md"))


@pytest.mark.slow
async def test_the_branch_that_a_search_opens_is_exported_and_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an older branch was shown before."""
    monkeypatch.chdir(tmp_path)
    script = Script(["about apples", "about pears"])
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=(110, 34)) as pilot:
        await say(pilot, "Tell me")
        await pilot.press("f5")
        await until(pilot, lambda: app.answers.current is None and len(script.asked) == 2)
        app.view.transcript.views[-1].focus()
        await pilot.press("left")
        await until(pilot, lambda: "1/2" in screen_text(app))
        await pilot.press("ctrl+f")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press(*"pears")
        await until(pilot, lambda: app.screen.query_one(OptionList).option_count == 1)
        await pilot.press("enter")
        await until(pilot, lambda: "2/2" in screen_text(app))
        await say(pilot, "/export md")
        await until(pilot, lambda: "about pears" in exported(tmp_path))
        number = app.conversations.number
        await app.actions.conversations.new()
        assert number is not None
        await app.actions.conversations.open(number)
        await until(pilot, lambda: "about pears" in screen_text(app))


async def test_a_search_keeps_the_branch_that_holds_what_it_found(tmp_path: Path) -> None:
    """A question with two answers is found; the older answer stays on the screen."""
    script = Script(["about apples", "about pears"])
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=(110, 34)) as pilot:
        await say(pilot, "Tell me")
        await pilot.press("f5")
        await until(pilot, lambda: app.answers.current is None and len(script.asked) == 2)
        question = app.conversations.branch[0].id
        app.conversations.turn_to(app.conversations.branch[1].id, -1)
        await app.actions.conversations.open(app.conversations.number or 0, question)
        await until(pilot, lambda: "about apples" in screen_text(app))


async def test_a_message_names_the_keys_that_do_something_there() -> None:
    """Code, versions, steps and editing where they are."""
    script = Script(["Plain", "```py\n1\n```"])
    app = chat(script)
    async with app.run_test(size=(160, 40)) as pilot:

        def keys() -> set[str]:
            return {each for each in ("Copy code", "Versions", "Edit", "s Steps")
                    if f"{each} " in screen_text(app).splitlines()[-1]}  # fmt: skip

        await say(pilot, "One")
        await pilot.press("shift+up")
        await until(pilot, lambda: keys() == {"s Steps"})
        await pilot.press("up")
        await until(pilot, lambda: keys() == {"Edit"})
        await pilot.press("escape", "f5")
        await until(pilot, lambda: app.answers.current is None and len(script.asked) == 2)
        await pilot.press("shift+up")
        await until(pilot, lambda: keys() == {"Copy code", "Versions", "s Steps"})
