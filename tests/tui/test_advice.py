"""Where speculation does not pay, the panel says what would help, and its key does that."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Static

from scripted_chat import Script, chat
from specchat.engine.api import Loading
from specchat.hub.references import Reference
from specchat.tui.app import ChatApp
from specchat.tui.controllers.pulls import Pulls
from specchat.tui.setup import Offer, PairChoice
from specchat.tui.widgets.panel import Panel
from specchat.tui.widgets.strip import Strip
from timed_steps import timed
from tui.driving import agree, say, screen_text, until

pytestmark = pytest.mark.anyio
SIZE = (150, 40)
OTHER = PairChoice("scripted + small", "", Loading(Path("target.gguf"), Path("small.gguf")))
INSTALLED = Offer(OTHER.name, "draft with small.gguf", choose=lambda: OTHER)
MISSING = Offer(
    "small-pair", "download small.gguf", references=(Reference("org/repo", "small.gguf"),)
)


async def slow_answer(pilot: Any, drafter: str = "suffix+model", **fields: Any) -> ChatApp:
    """Have an answer that speculation slowed down."""
    app = pilot.app
    assert isinstance(app, ChatApp)
    await say(pilot, "Slow")
    stats = app.answers.figures.statistics
    stats.drafter, stats.step_times = drafter, timed(0.5)
    app.answers.figures.num_paused_before = 2
    for name, value in fields.items():
        setattr(stats, name, value)
    app.answers.figures.follow(stats)
    app.view.show_state()
    await pilot.pause()
    return app


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("options", "words", "changed"),
    [
        ({}, "draft without the draft model", {"drafter": "suffix"}),
        ({"draft_length": 8}, "let specchat choose", {"draft_length": "auto"}),
        ({"draft_length": 0}, "let specchat choose", {"draft_length": "auto"}),
        ({"draft_tree": 16}, "let specchat choose", {"draft_tree": "auto"}),
        ({"draft_tree": "off"}, "draft without the draft model", {"drafter": "suffix"}),
        ({"drafter": "none"}, "turn speculation on", {"drafter": "auto"}),
    ],
)
async def test_the_key_does_what_the_panel_advises(
    options: Mapping[str, Any], words: str, changed: Mapping[str, Any]
) -> None:
    """The next answer is decoded so, and the advice is gone once it is taken."""
    script = Script(["abcdefghijkl"])
    app = chat(script, options=options)
    async with app.run_test(size=SIZE) as pilot:
        await slow_answer(pilot)
        shown = screen_text(app)
        assert "Speculation is slowing" in shown or options.get("drafter") == "none"
        assert f"Ctrl+L: {words}" in str(app.query_one("#advice", Static).content)
        await pilot.press("ctrl+l")
        await until(pilot, lambda: "Ctrl+L:" not in screen_text(app))
        await pilot.press("f5")
        await until(pilot, lambda: len(script.asked) == 2)
        asked = script.asked[-1][1]
        assert {name: asked[name] for name in changed} == changed


async def test_undo_takes_back_what_the_key_did() -> None:
    """With what was chosen before; the advice is there again."""
    script = Script(["abcdefghijkl"])
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        app.state.options.changed["drafter"] = "auto"
        await slow_answer(pilot)
        await pilot.press("ctrl+l")
        await until(pilot, lambda: app.state.options.changed == {"drafter": "suffix"})
        assert "Ctrl+Z undoes that" in app.notices.latest[-1].message
        assert app.state.adviser.words() == ""
        await pilot.press("ctrl+z")
        await until(pilot, lambda: app.state.options.changed == {"drafter": "auto"})
        assert app.notices.latest[-1].message.startswith("Undone")
        app.answers.figures.statistics.drafter = "suffix+model"
        app.answers.figures.statistics.step_times = timed(0.5)
        app.answers.figures.follow(app.answers.figures.statistics)
        assert app.state.adviser.words() == "Ctrl+L: draft without the draft model"
        await pilot.press("ctrl+l")
        await until(pilot, lambda: app.state.options.changed == {"drafter": "suffix"})
        app.state.options.changed["drafter"] = "model"  # as in the settings
        app.state.changes.undo()
        assert app.state.options.changed == {"drafter": "model"}


@pytest.mark.parametrize(
    ("drafter", "left_out"),
    [("suffix+model", "draft model"), ("head", "prediction head")],
)
async def test_the_advice_names_what_it_leaves_out(drafter: str, left_out: str) -> None:
    """A head is no draft model."""
    app = chat(Script(["abcdefghijkl"]))
    async with app.run_test(size=SIZE) as pilot:
        await slow_answer(pilot, drafter)
        assert app.state.adviser.words() == f"Ctrl+L: draft without the {left_out}"


@pytest.mark.slow
async def test_steady_advice_is_shown_during_the_answer_and_stays() -> None:
    """It does not follow what changes for a moment; the key takes it at once, for the next one."""
    script = Script(["abcdefghijkl" * 9], hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Slow", wait=False)
        await until(pilot, lambda: app.answers.figures.statistics.decode_s > 0)
        stats = app.answers.figures.statistics

        async def advice(seconds: float, speedup: float) -> str:
            stats.decode_s += seconds
            stats.step_times = timed(speedup)
            app.answers.figures.follow(stats)
            app.view.show_state()
            await pilot.pause()
            line = app.query_one("#advice", Static)
            return str(line.content) if line.display else ""

        for seconds, speedup in ((0, 0.5), (2, 0.5), (0.1, 2), (0.1, 0.5), (2.9, 0.5)):
            assert await advice(seconds, speedup) == ""
        for speedup in (0.5, 2, 1, 0.5):
            assert (await advice(0.2, speedup)).startswith("Ctrl+L: draft without the")
        assert app.answers.current
        await pilot.press("ctrl+l")
        assert app.state.options.changed == {"drafter": "suffix"}
        assert await advice(9, 0.5) == ""
        script.hold.set()  # type: ignore[union-attr]
        await until(pilot, lambda: app.answers.current is None)
        assert await advice(0, 0.5) == ""


@pytest.mark.slow
async def test_a_draft_model_is_not_loaded_during_an_answer() -> None:
    """The key says that it has to wait, and the advice stays."""
    script = Script(["abcdefghijkl" * 9], hold=threading.Event())
    app = chat(script, other_drafts=lambda _: [INSTALLED])
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await say(pilot, "Slow", wait=False)
        await until(pilot, lambda: app.answers.figures.statistics.decode_s > 0)
        stats = app.answers.figures.statistics

        def is_advised() -> bool:
            stats.decode_s += 1
            stats.step_times = timed(0.5)
            app.answers.figures.follow(stats)
            app.view.show_state()
            return "Ctrl+L: draft with small.gguf" in screen_text(app)

        await until(pilot, is_advised)
        await pilot.press("ctrl+l")
        busy = "Still answering. Esc stops it."
        await until(pilot, lambda: [each.message for each in app._notifications] == [busy])
        assert is_advised()
        assert script.num_loads == 1
        script.hold.set()  # type: ignore[union-attr]


async def test_a_click_on_the_strips_advice_does_not_open_the_panel_too() -> None:
    """It takes the advice, and a click beside it opens the panel."""
    app = chat(Script(["abcdefghijkl"]), other_drafts=lambda _: [INSTALLED])
    async with app.run_test(size=(120, 30)) as pilot:
        await slow_answer(pilot)
        strip = app.query_one(Strip)
        await until(pilot, lambda: "Ctrl+L" in str(strip.content))
        await pilot.click(Strip, offset=(str(strip.content).index("Ctrl+L") + 2, 0))
        await until(pilot, lambda: app.pair_controller.pair == OTHER)
        assert not app.query_one(Panel).display
        await pilot.click(Strip, offset=(2, 0))
        await until(pilot, lambda: app.query_one(Panel).display)


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["suffix+model", "suffix"])
async def test_an_installed_draft_model_is_loaded(drafter: str) -> None:
    """Both where the present one is slow and where there is none."""
    script = Script(["abcdefghijkl"])
    app = chat(script, other_drafts=lambda _: [INSTALLED, MISSING])
    async with app.run_test(size=SIZE) as pilot:
        await slow_answer(pilot, drafter)
        await until(pilot, lambda: "Ctrl+L: draft with small.gguf" in screen_text(app))
        await pilot.click("#advice")
        await until(pilot, lambda: app.pair_controller.pair == OTHER)
        await until(pilot, lambda: script.num_loads == 2)


@pytest.mark.slow
async def test_a_draft_model_of_the_catalogue_is_downloaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The key starts the download."""
    started: list[Offer] = []
    monkeypatch.setattr(Pulls, "start", lambda _, offer: started.append(offer))
    app = chat(Script(["abcdefghijkl"]), other_drafts=lambda _: [MISSING])
    async with app.run_test(size=SIZE) as pilot:
        await slow_answer(pilot, "suffix", drafted=0, accepted=0, draft_off_reason="no draft model")
        await until(pilot, lambda: "Ctrl+L: download small.gguf" in screen_text(app))
        await agree(pilot, "ctrl+l")
        await until(pilot, lambda: started == [MISSING])


@pytest.mark.slow
async def test_where_speculation_helps_there_is_no_advice() -> None:
    """And nothing is looked for; the key says so."""
    looked: list[PairChoice] = []

    def find(pair: PairChoice) -> Sequence[Offer]:
        looked.append(pair)
        return [INSTALLED]

    app = chat(Script(["abcdefghijkl"]), other_drafts=find)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await say(pilot, "Fast")
        assert "Ctrl+L" not in screen_text(app)
        await pilot.press("ctrl+l")
        await until(pilot, lambda: bool(app._notifications))
        assert looked == []


@pytest.mark.slow
async def test_a_draft_that_was_downloaded_by_advice_is_switched_to() -> None:
    """It is no pair of its own: it is found among the drafts for the target in use."""
    app = chat(Script(["abcdefghijkl"]), other_drafts=lambda _: [INSTALLED])
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Slow")
        app.pulls.arrived = INSTALLED.name
        app.view.show_hint()
        await pilot.press("ctrl+y")
        await until(pilot, lambda: app.pair_controller.pair == OTHER)
