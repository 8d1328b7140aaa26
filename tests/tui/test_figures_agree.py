"""The figures on the screen agree with each other, whatever was measured, stored or continued."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from textual.widgets import Digits, Static

from scripted_chat import COSTS, Script, chat
from specchat.chat.figure_text import SAME_SPEED, speedup_text
from specchat.decoding.statistics import Statistics
from specchat.tui.app import ChatApp
from specchat.tui.figures import Figures
from specchat.tui.widgets.panel import Panel
from tui.driving import compare_answer, say, screen_text, stop_halfway, until

pytestmark = pytest.mark.anyio
SIZE = (130, 60)


def panel_text(app: ChatApp) -> str:
    """Return what the panel says, without its large figures."""
    return "\n".join(str(each.render()) for each in app.query_one(Panel).query(Static))


def note(app: ChatApp) -> str:
    """Return the line below the last answer."""
    return str(app.query(".note").last(Static).render())


def random_figures(chance: random.Random) -> Figures:
    """Return figures that an answer may have."""
    figures = Figures()
    lengths: list[int | str] = ["auto", 4, ""]
    drafted = chance.choice([0, 1, 50, 400])
    generated = chance.choice([0, 1, 60, 300])
    figures.statistics = Statistics(
        drafter=chance.choice(["model", "suffix+model", "suffix"]),
        draft_length=lengths[chance.randrange(3)],
        draft_off_reason=chance.choice([None, "the draft model is paused: acceptance 9 %"]),
        generated_tokens=generated,
        steps=max(1, generated // 2),
        drafted=drafted,
        accepted=chance.randint(0, drafted),
        decode_s=chance.uniform(0.01, 5),
        plain_s=chance.uniform(0.0, 10),
        pass_costs=chance.choice([{}, COSTS]),
    )
    figures.measured_speedup = chance.choice([0.0, chance.uniform(0.3, 3)])
    return figures


def test_no_two_sentences_contradict_each_other() -> None:
    """Over many random answers: the verdict, the reason of the draft length, the short line."""
    chance = random.Random(4)
    for _ in range(3000):
        figures = random_figures(chance)
        verdict, reason, short = figures.verdict(), figures.why_this_length(), figures.in_short()
        if "helps" in verdict:
            assert figures.speedup >= 1 + SAME_SPEED
            assert not any(word in reason for word in ("does not pay", "no speedup", "cost more"))
            assert speedup_text(figures.speedup) in verdict
        if "slowing" in verdict:
            assert figures.speedup <= 1 - SAME_SPEED
            assert "x checking one" not in reason
        if figures.speedup and short:
            assert speedup_text(figures.speedup) in short


@pytest.mark.parametrize(
    ("speedup", "classes"), [(3.56, {"-faster"}), (0.73, {"-slower"}), (1.01, set())]
)
async def test_the_speedup_has_the_colour_of_its_meaning(speedup: float, classes: set[str]) -> None:
    """A slow answer is not drawn like a fast one."""
    app = chat(Script(["abcdefghijkl"]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Colours")
        digits = app.query_one("#speedup", Digits)
        app.answers.figures.measured_speedup = speedup
        app.view.show_state()
        assert digits.value == f"{speedup:.2f}x"
        assert digits.classes & {"-faster", "-slower"} == classes
        await pilot.pause()
        colours = set()
        for other in (3.56, 0.73, 1.01):
            app.answers.figures.measured_speedup = other
            app.view.show_state()
            await pilot.pause()
            colours.add(digits.styles.color)
        assert len(colours) == 3


async def test_a_measured_speedup_is_the_same_everywhere() -> None:
    """After F7 the panel, the verdict and the line below the answer have one speedup."""
    script = Script(["abcdefghijkl"])
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await compare_answer(pilot, script, "Compare")
        words = speedup_text(app.answers.figures.speedup)
        await until(pilot, lambda: words in note(app))
        assert words in app.answers.figures.in_short()
        await app.view.show_branch()
        assert words in note(app)


async def test_the_panel_shows_the_figures_of_a_stored_answer(tmp_path: Path) -> None:
    """After reopening, and of the version that is shown."""
    script = Script(["abcdefghijkl", "abcdefghijklabcdefghijkl"])
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Figures")
        await until(pilot, lambda: "67 % of 3 drafted" in panel_text(app))
        await pilot.press("f5")
        await until(pilot, lambda: "67 % of 6 drafted" in panel_text(app))
        app.view.transcript.views[-1].focus()
        await pilot.press("left")
        await until(pilot, lambda: "67 % of 3 drafted" in panel_text(app))
        number = app.conversations.number or 0
        await app.conversation_actions.new()
        assert "drafted" not in panel_text(app)
        await app.conversation_actions.open(number)
        await until(pilot, lambda: "67 % of 3 drafted" in panel_text(app))
        assert app.query_one("#rate", Digits).value == "100.0"
        assert "context 1 %" in screen_text(app)
        assert speedup_text(app.answers.figures.speedup) in note(app)


async def test_a_continued_answer_has_the_figures_of_all_of_it() -> None:
    """The panel and the line below it agree."""
    script = Script(["one two three four five six"], hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await stop_halfway(pilot, script)
        await pilot.press("ctrl+g")
        await until(pilot, lambda: app.answers.current is None and len(script.asked) == 2)
        tokens = app.conversations.branch[-1].statistics["generated_tokens"]
        app.view.transcript.views[-1].focus()  # shows all figures
        await until(pilot, lambda: f"{tokens} tokens" in note(app))
        assert app.answers.figures.statistics.generated_tokens == tokens
        assert f"of {app.conversations.branch[-1].statistics['drafted']} drafted" in panel_text(app)
