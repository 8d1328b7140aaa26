"""The schema switch: answers follow what the user types, and what was forced can be seen."""

from __future__ import annotations

import json

import pytest
from textual.widgets import Static

from conftest import WriteModel
from engine.test_lossless import EXACT
from specchat.drafter_registry import GRAMMAR
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.tui.app import ChatApp
from specchat.tui.setup import PairChoice, Setup
from specchat.tui.widgets.composer import Composer
from tui.driving import say, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def app(tiny: WriteModel) -> ChatApp:
    """Return a chat with a tiny pair."""
    loading = Loading(tiny("llama"), tiny("llama", "half right"), **EXACT)
    options = {"temperature": 0.0, "max_tokens": 80, "draft_length": 4}
    return ChatApp(Setup(PairChoice("tiny", "", loading, options), offers=list, history=None),
                   load=LocalEngine)  # fmt: skip


def notices(app: ChatApp) -> str:
    """Return the messages on the screen."""
    return "\n".join(each.message for each in app._notices)


def last_text(app: ChatApp) -> str:
    """Return the text of the last answer."""
    assert app.conversations.last is not None
    return app.conversations.last.text


async def test_answers_follow_the_schema(app: ChatApp) -> None:
    """From the next answer on, also regenerated ones, until it is switched off."""
    async with app.run_test(size=(120, 40)) as pilot:
        await say(pilot, "/schema ok bool, colour bool", wait=False)
        await until(pilot, lambda: "schema ok bool" in str(app.query_one(Composer).border_title))
        await say(pilot, "A pet, please.")
        texts = [last_text(app)]
        await pilot.press("f5")
        await until(pilot, lambda: app.answers.current is None)
        texts.append(last_text(app))
        assert texts[0] == texts[1]
        assert list(json.loads(texts[0])) == ["ok", "colour"]
        assert app.answers.figures.origins[GRAMMAR.name] > 8
        await say(pilot, "/schema off", wait=False)
        await until(pilot, lambda: not app.answers.schema)
        await say(pilot, "A pet, please.")
        assert not last_text(app).startswith('{"ok"')


async def test_steps_show_what_was_forced(app: ChatApp) -> None:
    """As chips with a mark of their own, with a sentence that says so."""
    async with app.run_test(size=(120, 40)) as pilot:
        await say(pilot, "/schema ok bool", wait=False)
        await until(pilot, lambda: bool(app.answers.schema))
        await say(pilot, "A pet, please.")
        await pilot.press("f6")
        await until(pilot, lambda: len(app.screen_stack) > 1)
        await pilot.press("home")
        shown = str(app.screen.query_one("#place", Static).render())
        assert "The grammar forced" in shown
        chips = str(app.screen.query_one("#step", Static).render())
        assert "forced by the grammar" in chips


@pytest.mark.parametrize("typed", ["{broken", "missing.json", "age nonsense"])
async def test_what_is_no_schema_is_put_back(app: ChatApp, typed: str) -> None:
    """With the reason; nothing is set."""
    async with app.run_test(size=(120, 40)) as pilot:
        await say(pilot, f"/schema {typed}", wait=False)
        await until(pilot, lambda: bool(notices(app)))
        assert app.answers.schema == ""
        assert any(word in notices(app) for word in ("not valid JSON", "missing.json", "nonsense"))
        assert app.query_one(Composer).text == f"/schema {typed}"
