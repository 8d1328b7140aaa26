"""The strip above the composer: gain, token rate and acceptance without a key, at every size."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from scripted_chat import Script, chat
from specchat.decoding.statistics import Statistics
from specchat.tui.texts.cards import figure_texts
from specchat.tui.texts.figures import Figures
from specchat.tui.texts.strip_text import strip_line
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.panel import Panel
from specchat.tui.widgets.strip import Strip
from specchat.tui.widgets.transcript import Transcript
from timed_steps import timed
from tui.driving import say, screen_text, until

pytestmark = pytest.mark.anyio
FAST = Statistics(
    drafted=164, accepted=128, generated_tokens=400, steps=150, decode_s=4.0,
    step_times=timed(2.0),
)  # fmt: skip


def line(figures: Figures, width: int, advice: str = "") -> str:
    """Return what the strip says."""
    return strip_line(figures, width, advice).plain


def test_the_strip_has_four_figures() -> None:
    """Labels, then the rate without drafts, are left out where there is no room."""
    figures = Figures(FAST)
    assert line(figures, 90) == (
        "with drafts 100.0 tokens/s · without ≈50.0 · 2.0x faster ±0.1 · 78 % accepted"
    )
    assert line(figures, 70) == "100.0 tokens/s · without ≈50.0 · 2.0x faster ±0.1 · 78 % accepted"
    assert line(figures, 56) == "100.0 tokens/s · 2.0x faster ±0.1 · 78 % accepted"


def test_the_strip_gives_advice_where_it_fits() -> None:
    """Else it leaves it out: its key alone says nothing."""
    figures, advice = Figures(FAST), "Ctrl+L: draft without the draft model"
    assert line(figures, 130, advice).endswith(f"78 % accepted · {advice}")
    assert line(figures, 60, advice) == "100.0 tokens/s · 2.0x faster ±0.1 · 78 % accepted"


def test_an_answer_has_no_rate_before_it_can_be_told() -> None:
    """Its first step may bring ten tokens in ten milliseconds; one that has ended has its own."""
    first = Statistics(drafted=9, accepted=9, generated_tokens=10, steps=1, decode_s=0.01)
    assert line(Figures(first), 90).split(" · ") == [f"{'measuring':<16}", "100 % accepted"]
    assert "tokens per second" not in figure_texts(Figures(first), None, 40)
    assert line(Figures(first, is_counted=True), 90).startswith("1000.0 tokens/s · ")
    later = replace(first, generated_tokens=100, decode_s=0.5)
    assert line(Figures(later), 90).startswith("200.0 tokens/s · ")
    assert "200.0" in figure_texts(Figures(later), None, 40)["tokens per second"].plain


def test_the_strip_says_which_figures_have_repeats() -> None:
    """The gain leaves out what was said over and over, and acceptance does not."""
    looping = Figures(replace(FAST, repeating=120, repeated=120), is_counted=True)
    rates, accepted = "100.0 tokens/s · without ≈50.0", "78 % accepted with repeats"
    gain = "2.0x faster ±0.1"
    assert line(looping, 110).endswith(f"{rates} · {gain} without repeats · {accepted}")
    assert line(looping, 64) == f"100.0 tokens/s · {gain} · {accepted}"
    assert line(looping, 56) == f"{rates} · {gain}"
    assert "repeats" not in line(Figures(FAST), 110)


def test_the_strip_says_why_there_is_no_gain() -> None:
    """Where the reason fits as a whole; and it is quiet about a gain while nothing is sure."""
    plain = Statistics(
        generated_tokens=400, decode_s=4.0, steps=400, draft_off_reason="the draft model is paused"
    )
    reason = "no drafts: the draft model is paused"
    assert line(Figures(plain), 110) == f"100.0 tokens/s · plain speed · {reason}"
    undrafted = Statistics(generated_tokens=400, decode_s=4.0, steps=400)
    assert line(Figures(undrafted), 110) == "100.0 tokens/s · plain speed · no drafts so far"
    assert line(Figures(plain), 58) == "100.0 tokens/s · plain speed"
    unsure = Statistics(drafted=9, accepted=3, generated_tokens=40, steps=9, decode_s=0.4)
    assert "measuring" in line(Figures(unsure), 58)
    assert "too short to tell" in line(Figures(unsure, is_counted=True), 58)
    assert line(Figures(), 58) == ""


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 36), (139, 50)], ids=str)
async def test_the_strip_does_not_move(size: tuple[int, int]) -> None:
    """It is one row between the messages and the composer, during an answer too."""
    script = Script(["x" * 600], hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=size) as pilot:
        await say(pilot, "Figures", wait=False)
        await until(pilot, lambda: "accepted" in str(app.query_one(Strip).content))
        place = app.query_one(Strip).region
        assert place.height == 1
        assert app.query_one(Transcript).region.bottom == place.y
        assert not app.query_one(Panel).display
        assert script.hold is not None
        script.hold.set()
        await until(pilot, lambda: "2.2x faster" in screen_text(app))
        assert app.query_one(Strip).region == place
        assert "67 %" in screen_text(app).splitlines()[place.y]


@pytest.mark.slow
async def test_a_wide_screen_has_the_panel_instead() -> None:
    """F3 swaps them; with the list of conversations open there is room for the strip alone."""
    app = chat(Script(["abcdefghijkl"]))
    async with app.run_test(size=(150, 40)) as pilot:
        await say(pilot, "Figures")
        panel, strip = app.query_one(Panel), app.query_one(Strip)
        assert panel.display
        assert not strip.display
        await pilot.press("f3")
        assert not panel.display
        assert strip.display
        await pilot.press("f3", "f2")
        assert not panel.display
        assert strip.display
        await pilot.press("f2")
        assert panel.display
        assert not strip.display


@pytest.mark.slow
async def test_the_panel_has_room_or_the_screen() -> None:
    """It never cuts a line of the chat in two."""
    app = chat(Script(["abc def"]))
    async with app.run_test(size=(60, 30)) as pilot:
        await say(pilot, "Figures")
        await pilot.press("f3")
        for width, expected in ((60, 60), (100, 100), (139, 139), (140, 44)):
            await pilot.resize_terminal(width, 30)
            await until(pilot, lambda wide=expected: app.query_one(Panel).region.width == wide)  # type: ignore[misc]


async def test_all_figures_open_in_place_of_the_chat() -> None:
    """F3 opens them where there is no room beside it; Esc and F3 close them."""
    app = chat(Script(["abcdefghijkl"]))
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "Figures")
        width = app.query_one(Transcript).size.width
        for close in ("escape", "f3"):
            await pilot.press("f3")
            await pilot.pause()
            assert app.query_one(Panel).has_focus
            assert "tokens per target pass" in screen_text(app)
            assert app.query_one(Transcript).size.width == width
            await pilot.press(*[close] * (1 + (close == "escape")))
            assert not app.query_one(Panel).display
        assert app.query_one(Composer).has_focus
