"""The strip above the composer: gain, token rate and acceptance without a key, at every size."""

from __future__ import annotations

import threading

import pytest

from scripted_chat import Script, chat
from specchat.decoding.statistics import Statistics
from specchat.tui.texts.figures import Figures
from specchat.tui.texts.strip_text import strip_rows
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


def rows(figures: Figures, width: int) -> list[str]:
    """Return both rows of the strip."""
    return [row.plain for row in strip_rows(figures, width)]


def test_a_narrow_strip_says_it_in_words() -> None:
    """Whatever has no room is left out, the least important first."""
    figures = Figures(FAST, saved_before=(60.0, 60.0))
    first, second = rows(figures, 72)
    assert first == "2.0x faster · 100.0 tokens/s (≈50.0 without drafts) · kept 78 %"
    assert second == "4.0 s saved · saved today 1 min 4 s"
    assert rows(figures, 58)[0] == "2.0x faster · 100.0 tokens/s (≈50.0 without) · kept 78 %"
    assert rows(figures, 40)[0] == "2.0x faster · 100.0 tokens/s · kept 78 %"


def test_a_wide_strip_draws_bars() -> None:
    """As long as the rates, with and without speculation."""
    first, second = rows(Figures(FAST), 110)
    assert first.count("█") == 2 * second.count("█") > 30
    assert first.split()[:3] == ["2.0x", "faster", "with"]
    assert first.endswith(" 100.0 tokens/s   kept 78 % of 164 drafted")
    assert second.startswith("4.0 s saved       without")


@pytest.mark.parametrize("width", [58, 110])
def test_the_strip_says_why_there_is_no_gain(width: int) -> None:
    """And is quiet about a gain as long as nothing is sure."""
    plain = Statistics(
        generated_tokens=400, decode_s=4.0, steps=400, draft_off_reason="the draft model is paused"
    )
    first, second = rows(Figures(plain), width)
    assert first.startswith("plain speed")
    assert "100.0" in first
    assert second == "No drafts: the draft model is paused."
    unsure = Statistics(drafted=9, accepted=3, generated_tokens=40, steps=9, decode_s=0.4)
    assert rows(Figures(unsure), width)[0].startswith("measuring")
    assert rows(Figures(unsure, is_counted=True), width)[0].startswith("too short to tell")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 36), (139, 50)], ids=str)
async def test_the_strip_does_not_move(size: tuple[int, int]) -> None:
    """It has at most three rows between the messages and the composer, during an answer too."""
    script = Script(["x" * 600], hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=size) as pilot:
        await say(pilot, "Figures", wait=False)
        await until(pilot, lambda: "kept" in str(app.query_one(Strip).content))
        place = app.query_one(Strip).region
        assert place.height <= 3
        assert app.query_one(Transcript).region.bottom == place.y
        assert not app.query_one(Panel).display
        assert script.hold is not None
        script.hold.set()
        await until(pilot, lambda: "2.2x faster" in screen_text(app))
        assert app.query_one(Strip).region == place
        assert "67 %" in screen_text(app).splitlines()[place.bottom - 2]


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
async def test_all_figures_leave_no_scraps_of_the_chat() -> None:
    """They cover it wholly unless enough of it stays in sight."""
    app = chat(Script(["abc def"]))
    async with app.run_test(size=(60, 30)) as pilot:
        await say(pilot, "Figures")
        await pilot.press("f3")
        for width, expected in ((60, 60), (99, 99), (100, 60), (139, 60)):
            await pilot.resize_terminal(width, 30)
            await until(pilot, lambda wide=expected: app.query_one(Panel).region.width == wide)  # type: ignore[misc]


async def test_all_figures_open_over_the_chat() -> None:
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
