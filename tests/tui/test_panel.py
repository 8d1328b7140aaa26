"""The stats panel on screens of every size, and keys that have nothing to act on."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from textual.content import Content
from textual.widgets import Static

import scripted_chat
from scripted_chat import Script, chat
from specchat.docs import section
from specchat.drafter_registry import origins
from specchat.errors import ContextFull
from specchat.tui.app import ChatApp
from specchat.tui.screens.help_screen import ExplainScreen, HelpScreen
from specchat.tui.texts.cards import CARDS, ORIGIN_GLYPHS, REJECTED_GLYPH
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.panel import Card, FigureView, Panel
from tables import table
from tui.driving import panel_text, race, say, screen_text, status, until

pytestmark = pytest.mark.anyio


def notes(app: ChatApp) -> list[str]:
    """Return the notices, oldest first."""
    return [note.message for note in app._notifications]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draft", "cost", "shown"),
    [
        (32, 1.08, "drafts up to 32, verified in up to 8 % more time"),
        (6, None, "drafts up to 6"),
        (0, None, "not with drafts"),
        (None, None, ""),
    ],
)
async def test_the_panel_shows_which_drafts_are_exact(
    monkeypatch: pytest.MonkeyPatch, draft: int | None, cost: float | None, shown: str
) -> None:
    """Also where the build or the device makes none exact; nothing if that was not measured."""
    facts = replace(scripted_chat.FACTS, exact_draft=draft, exact_cost=cost)
    monkeypatch.setattr(scripted_chat, "FACTS", facts)
    app = chat(Script([]))
    async with app.run_test(size=(160, 60)) as pilot:
        await until(pilot, lambda: "KV cache" in screen_text(app))
        figures = [str(each.content) for each in app.query(FigureView) if each.display]
        text = " ".join(" ".join(figures).split())

    assert ("bit-exact" in text) == bool(shown)
    assert shown in text


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["", "a graphics card"])
async def test_the_panel_names_the_gpu_that_holds_layers(
    monkeypatch: pytest.MonkeyPatch, gpu: str
) -> None:
    """Below the size of the weights; nothing where all runs on the CPU."""
    monkeypatch.setattr(scripted_chat, "FACTS", replace(scripted_chat.FACTS, gpu=gpu))
    app = chat(Script([]))
    async with app.run_test(size=(160, 60)) as pilot:
        await until(pilot, lambda: "weights" in screen_text(app))
        (weights,) = [each for each in app.query(FigureView) if each.figure == "weights"]

    assert str(weights.content).splitlines()[1:] == [f"on {gpu}"] * bool(gpu)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("size", [(60, 20), (80, 24)], ids=str)
async def test_a_narrow_screen_shows_how_full_the_context_is(size: tuple[int, int]) -> None:
    """The share is shown last, and never cut off, during an answer and with F3."""
    script = Script(["x" * 4000], hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await until(pilot, lambda: "▱▱▱▱▱▱ 0 %" in screen_text(app).splitlines()[0])
        await say(pilot, "A question with a title that is as long as titles may be", wait=False)
        await until(pilot, lambda: "▱▱▱▱▱▱ 1 %" in screen_text(app).splitlines()[0])
        assert script.hold is not None
        script.hold.set()
        await until(pilot, lambda: app.answers.current is None)
        for _ in range(2):
            await until(pilot, lambda: "▰▰▱▱▱▱ 25 %" in screen_text(app).splitlines()[0])
            await pilot.press("f3")
            await pilot.pause()


@pytest.mark.slow
@pytest.mark.parametrize("height", [24, 40])
async def test_every_figure_can_be_reached_with_keys(height: int) -> None:
    """Tab moves to the panel, PgDn scrolls it, and Esc leaves it."""
    app = chat(Script(["abcdefghijkl" * 9]))
    async with app.run_test(size=(150, height)) as pilot:
        await say(pilot, "Figures")
        seen = screen_text(app)
        await pilot.press("tab")
        assert app.query_one(Panel).has_focus
        for _ in range(4):
            await pilot.press("pagedown")
            await pilot.wait_for_animation()
            await pilot.pause()
            seen += screen_text(app)
        for name in ("tokens per second", "accepted", "draft length", "weights", "prompt"):
            assert name in seen
        await pilot.press("escape")
        assert app.query_one(Composer).has_focus


@table("name", [name for names in CARDS.values() for name in names])
def test_every_figure_is_in_the_glossary(name: str) -> None:
    """With what it means, what is good, and what to do."""
    explanation = section("glossary", name)
    assert explanation.index("**Good:**") < explanation.index("**To do:**")
    assert explanation.index("**Good:**") > 30


@pytest.mark.slow
async def test_a_key_explains_the_figure_under_the_cursor() -> None:
    """The one the mouse points at, or the marked one; a click too; elsewhere F1 opens the help."""
    app = chat(Script(["abcdefghijkl" * 10]))
    async with app.run_test(size=(150, 60)) as pilot:
        await say(pilot, "Figures")
        await pilot.press("f1")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        (figure,) = (each for each in app.query(FigureView) if each.figure == "draft length")
        for ask in (pilot.hover, pilot.click):
            await ask(figure)
            await pilot.press(*["f1"] * (ask == pilot.hover))
            await until(pilot, lambda: isinstance(app.screen, ExplainScreen))
            await until(pilot, lambda: "leave it at auto" in screen_text(app))
            assert "draft length" in str(app.screen.query_one(".figure", Static).render())
            await pilot.press("escape")
        await pilot.hover(Composer)
        app.query_one(Panel).focus()
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, ExplainScreen))
        assert str(app.screen.query_one(".title", Static).render()) == "Speedup"


async def test_the_panel_has_few_figures_in_groups() -> None:
    """At most 14, and each group but the last is followed by an empty line."""
    app = chat(Script(["abcdefghijkl" * 10]))
    async with app.run_test(size=(160, 45)) as pilot:
        await say(pilot, "Figures")
        await until(pilot, lambda: "faster" in panel_text(app))
        figures = re.findall(r"\d[\d.]*", re.sub(r"±[\d.]+", "", panel_text(app)))
        assert 10 <= len(figures) <= 14
        cards = [each.region for each in app.query(Card) if each.display]
        assert all(below.y > above.bottom for above, below in pairwise(cards))


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 20), (80, 24), (200, 55)], ids=str)
async def test_an_explanation_can_be_read_to_its_end(size: tuple[int, int]) -> None:
    """On every screen, with the key that closes it."""
    app = chat(Script(["abc def"]))
    async with app.run_test(size=size) as pilot:
        await say(pilot, "Figures")
        explanation = section("glossary", "speedup")
        app.push_screen(ExplainScreen("speedup", Content("1.7x faster"), explanation))
        await until(pilot, lambda: "Speedup" in screen_text(app))
        await pilot.press(*["pagedown"] * 4)
        await pilot.wait_for_animation()
        await until(pilot, lambda: explanation.split()[-1] in screen_text(app).split())
        assert "Esc Close" in screen_text(app)


@pytest.mark.slow
async def test_a_long_verdict_is_shown_completely() -> None:
    """Its reason takes as many lines as it needs."""
    app = chat(Script(["abc def"]))
    async with app.run_test(size=(150, 40)) as pilot:
        await say(pilot, "Pay")
        stats = app.answers.figures.statistics
        stats.drafted, stats.draft_off_reason = (
            0,
            "about 31 % of its tokens would be accepted, and each costs 40 % of a target pass",
        )
        app.view.show_state()
        await pilot.pause()
        words = " ".join(line[84:].strip(" │") for line in screen_text(app).splitlines())
        reason = "about 31 % of its tokens would be accepted, and each costs 40 % of a target pass"
        assert f"No drafts: {reason}." in words


@pytest.mark.slow
async def test_the_conversation_scrolls_while_writing() -> None:
    """PgUp and PgDn leave the composer as it is."""
    app = chat(Script(["\n\n".join(f"line {number}" for number in range(100))]))
    async with app.run_test(size=(150, 40)) as pilot:
        await say(pilot, "Long")
        await pilot.pause()
        end = app.view.transcript.scroll_y
        await pilot.press("pageup")
        await pilot.pause()
        assert app.view.transcript.scroll_y < end
        assert app.query_one(Composer).has_focus
        await pilot.press("pagedown")
        await pilot.pause()
        assert app.view.transcript.scroll_y == end


@pytest.mark.slow
async def test_keys_without_effect_explain_why() -> None:
    """The chat is empty."""
    app = chat(Script())
    async with app.run_test(size=(150, 40), notifications=True) as pilot:
        for key in ("f5", "f6", "f7", "ctrl+t"):
            app.clear_notifications()
            await pilot.press(key)
            await until(pilot, lambda: len(notes(app)) == 1)


@pytest.mark.slow
@pytest.mark.usefixtures("short_races")
async def test_a_stored_answer_is_raced(tmp_path: Path) -> None:
    """The panel then shows what was measured; a failure is a notice and clears the status line."""
    path = tmp_path / "history.db"
    async with chat(Script(["abcdefghijkl" * 10]), path).run_test() as pilot:
        await say(pilot, "One")
    script = Script(["abcdefghijkl" * 10])
    app = chat(script, path)
    async with app.run_test(size=(150, 40), notifications=True) as pilot:
        await app.actions.conversations.open(1)
        (figure,) = (each for each in app.query(FigureView) if each.figure == "speedup")
        assert "estimated" in str(figure.content)
        await race(pilot)
        assert "in the race" in str(figure.content)
        assert "2.2x faster" in panel_text(app)
        script.error = ContextFull("the question is too long")
        await pilot.press("n")
        await until(pilot, lambda: "the question is too long" in "".join(notes(app)))
        assert status(app) == ""


@pytest.mark.slow
async def test_an_answer_without_drafts_has_no_speed_up_to_measure(tmp_path: Path) -> None:
    """A notice explains it, also for a stored answer; the engine is not asked."""
    path = tmp_path / "history.db"
    script = Script(["abcdefghijkl"], num_drafted=0)
    app = chat(script, path)
    async with app.run_test(size=(150, 40), notifications=True) as pilot:
        await say(pilot, "One")
        await pilot.press("f7")
        await until(pilot, lambda: len(notes(app)) == 1)
        assert "That answer used no drafts" in notes(app)[0]
        assert "faster" not in notes(app)[0]
        assert len(app.screen_stack) == 1
        assert "Speedup" not in screen_text(app)
    again = chat(script, path)
    async with again.run_test(size=(150, 40), notifications=True) as pilot:
        await again.actions.conversations.open(1)
        await until(pilot, lambda: again.pair_controller.facts is not None)
        await pilot.press("f7")
        await until(pilot, lambda: len(notes(again)) == 1)
        assert "no speedup to measure" in notes(again)[0]
    assert len(script.asked) == 1


@pytest.mark.slow
async def test_a_short_screen_shows_the_verdict_its_reason_and_the_speed() -> None:
    """A bad verdict in 20 rows: why, what would help and how fast it was, without scrolling."""
    app = chat(Script(["abcdefghijkl" * 9]))
    async with app.run_test(size=(60, 20)) as pilot:
        await pilot.press("f3")
        await say(pilot, "Figures")
        app.answers.figures.compare({"speedup": 0.6})
        app.view.show_state()
        await until(pilot, lambda: "40 % slower." in screen_text(app))
        card = app.query_one("#verdict")
        for words in ("Ctrl+L", "tokens per second"):
            assert words in screen_text(app)
        await pilot.resize_terminal(110, 32)
        await until(pilot, lambda: "by position" in screen_text(app))
        assert card.content_size.height == card.virtual_size.height


def test_every_origin_has_a_character_of_its_own() -> None:
    """The parts of the tokens' bar are told apart without colours, and from rejected tokens."""
    names = [each.name for each in origins()]
    assert len(set(ORIGIN_GLYPHS) - {REJECTED_GLYPH}) >= len(names)
