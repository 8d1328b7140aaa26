"""The figures on the screen agree with each other, whatever was measured, stored or continued."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from textual.widgets import Static

from scripted_chat import COSTS, Script, chat
from specchat.bench.race_record import Race
from specchat.decoding.statistics import Statistics
from specchat.tui.app import ChatApp
from specchat.tui.commands import key_of
from specchat.tui.controllers.writing import Writing
from specchat.tui.texts.cards import figure_texts
from specchat.tui.texts.figures import Figures
from specchat.tui.texts.line_below import line_below
from specchat.tui.texts.strip_text import strip_line
from specchat.tui.widgets.message_views import AnswerView
from specchat.tui.widgets.panel import Card, FigureView, Panel
from specchat.wording import SAME_SPEED, SPEEDUP_TOLERANCE, duration_text, speedup_text
from timed_steps import timed
from tui.driving import panel_text, race, say, screen_text, stop_halfway, until

pytestmark = pytest.mark.anyio
SIZE = (150, 60)
Texts = Mapping[str, str]


PAUSED = "the draft model is paused: about 9 % of its tokens would be accepted"
NUM_STATES = 500
"""Of random answers."""
WIDTHS = (31, 34, 42, 76)
"""What cards have inside on narrow to wide screens."""
STRIP_WIDTHS = (36, 56, 76, 96, 130)
"""What the strip has inside on narrow to wide screens."""


def note(app: ChatApp) -> str:
    """Return the line below the last answer, as it is once another message follows."""
    view = app.query(AnswerView).last()
    view.follow_up()
    return str(view.query_one(".note", Static).content)


def random_figures(chance: random.Random) -> Figures:
    """Return figures that an answer may have, with counts that fit each other."""
    longest, likely = chance.choice([0, 1, 3, 12]), chance.choice([0.001, 0.2, 2, 9])
    figures, lengths = Figures(), list[int | str](["auto", 4, ""])
    stats = figures.statistics = Statistics(
        drafter=chance.choice(["model", "suffix+model", "suffix", "none"]),
        draft_length=lengths[chance.randrange(3)],
        speculation_off_reason=chance.choice([None, "switched off"]) if not longest else None,
        draft_off_reason=chance.choice([None, PAUSED]),
        prompt_tokens=chance.randrange(5000),
        pass_costs=chance.choice([{}, COSTS]),
    )
    for _ in range(chance.choice([0, 1, 30, 150])):
        drafted = chance.randint(0, longest)
        accepted = min(drafted, int(chance.expovariate(likely)))
        stats.count_step(drafted, accepted, accepted + 1)
        figures.origins.update({"draft": accepted, "target": 1})
    stats.decode_s = chance.choice([1e-3, 0.3, 10]) * chance.uniform(1, 5) * (stats.steps > 0)
    stats.draft_s = stats.decode_s * chance.uniform(0, 0.5)
    stats.verify_s = stats.decode_s * chance.uniform(0, 0.5)
    speedup = chance.choice([0, chance.uniform(0.2, 4), 0.951, 1.049])
    stats.step_times = timed(speedup, stats.decode_s or 4.0, stats.generated_tokens or 400)
    known = stats.as_dict() | {"speedup": chance.uniform(0.3, 3)}
    counted = {"counted_s": stats.decode_s / 2, "counted_tokens": stats.generated_tokens // 3}
    if record := chance.choice([{}, {}, known, known | counted]):
        figures.compare(record)
    return figures


def numbers(text: str) -> list[float]:
    """Return the numbers in a text."""
    return [float(each) for each in re.findall(r"\d+(?:\.\d+)?", text)]


def contradictions(figures: Figures, width: int) -> Iterator[str]:
    """Yield what contradicts what, in all that the panel, the strip and the note say."""
    rendered = figure_texts(figures, None, width)
    texts = {name: text.plain for name, text in rendered.items()}
    stored = Writing(figures=figures).statistics("pair", None)
    lines = line_below("stop", stored, key_of)
    num_tokens = figures.statistics.generated_tokens
    if num_tokens and f" {num_tokens} token" not in lines.newest:
        yield f"another number of tokens below the newest answer: {lines.newest}"
    for below in (lines.details, lines.older):
        own = figures.gain.rates[1:] if figures.speedup else ()
        own = own or (figures.rate,)
        for strip in [strip_text(figures, width) for width in STRIP_WIDTHS]:
            yield from _speeds(texts, strip, below, own[0])
            yield from _verdicts(texts, strip, below)
            yield from _counts(texts, strip, below)
    for name, text in texts.items():
        if name != "speculation" and max(map(len, text.splitlines())) > width:
            yield f"{name} is wider than {width}"


def strip_text(figures: Figures, width: int) -> str:
    """Return what the strip says."""
    return strip_line(figures, width).plain


def _speeds(texts: Texts, strip: str, below: str, own: float) -> Iterator[str]:
    """Compare the speeds with speculation (`own`, 0 if untold) and without, and their ratio."""
    stated = [float(each) for each in re.findall(r"([\d.]+) tokens/s", below)]
    rate = texts.get("tokens per second")
    if rate is not None and numbers(rate) != stated:
        yield "another speed below the answer"
    rates = re.findall(r"([\d.]+) tokens/s", strip)
    if len(texts) > 1 and rates != [f"{own:.1f}"] * bool(own):
        yield f"another speed in the strip: {rates}"
    if "speedup" in texts:
        lines = texts["speedup"].splitlines()
        without, ours = (
            numbers(next(line for line in lines if line.startswith(name)))[-1]
            for name in ("without ", "with drafts ")
        )
        drawn = re.findall(r"without ≈?([\d.]+)", strip)
        if drawn and drawn[0] != f"{without:.1f}":
            yield f"another speed without speculation in the strip: {drawn}"
        if f"{ours:.1f}" != f"{own:.1f}":
            yield "another speed in the bars"
        words = re.search(rf"\d[\d.]*x faster|\d+ % slower|{SAME_SPEED}", strip)
        if words is None or not could_be(words[0], ours, without):
            yield f"{strip}, but {ours} with and {without} without"
        bars = [line.count("█") for line in lines if line.startswith("with")]
        if (bars[0] - bars[1]) * (ours - without) < 0:
            yield "the longer bar is slower"


def could_be(words: str, ours: float, without: float) -> bool:
    """Return whether two rounded rates allow what is said of their ratio."""
    low = (ours - 0.05) / (without + 0.05)
    high = (ours + 0.05) / max(without - 0.05, 1e-9)
    if words == SAME_SPEED:
        return low < 1 + SPEEDUP_TOLERANCE and high > 1 - SPEEDUP_TOLERANCE
    (number,) = numbers(words)
    if "faster" in words and number <= 1:
        return False
    stated = number if "faster" in words else 1 - number / 100
    return low - 0.05 <= stated <= high + 0.05


def _verdicts(texts: Texts, short: str, below: str) -> Iterator[str]:
    """Compare what is said of the speedup in words."""
    verdict = texts["speculation"]
    said = {
        each
        for text in (verdict, texts.get("speedup", ""), short, below)
        for each in re.findall(rf"\d[\d.]*x faster|\d+ % slower|{SAME_SPEED}", text)
    }
    if len(said) > 1:
        yield f"several speedups: {sorted(said)}"
    for words, contrary in {
        "helps": ("slower", SAME_SPEED, "cost more", "does not pay", "slowing"),
        "slowing": ("faster", SAME_SPEED, "saved", "helps"),
        "no difference": ("faster", "slower", "cost more"),
        "is off": ("faster", "slower", SAME_SPEED, "tokens per pass"),
        "No drafts": ("faster", "slower", "% accepted"),
    }.items():
        everything = "\n".join([*texts.values(), short])
        if words in verdict and any(each in everything for each in contrary):
            yield f"{verdict!r} beside {everything!r}"


def _counts(texts: Texts, short: str, below: str) -> Iterator[str]:
    """Compare shares and counts of tokens."""
    shares = {
        each
        for text in (texts["speculation"], texts.get("accepted", ""), short, below)
        for each in re.findall(r"(\d+ %) of \d+ draft|(\d+ %) accepted", text)
    }
    if len({"".join(each) for each in shares}) > 1:
        yield f"several acceptance rates: {shares}"
    if "accepted" in texts:
        share, _ = numbers(texts["accepted"].partition("\n")[0])
        has_rejected = "░" in texts["accepted"].splitlines()[1]
        if (share == 100) == has_rejected:
            yield f"{share} % with {texts['accepted']}"
    per_pass = numbers(texts.get("tokens per target pass", ""))
    if re.search("tokens per target pass", below) and f"{per_pass[0]:.2f} tokens per" not in below:
        yield "another number of tokens per pass below the answer"


def test_no_two_figures_contradict_each_other() -> None:
    """Over random answers: all that the panel, the strip and the note below an answer say."""
    chance = random.Random(0)
    for number in range(NUM_STATES):
        figures = random_figures(chance)
        width = WIDTHS[number % len(WIDTHS)]
        found = list(contradictions(figures, width))
        assert found == []


def test_an_origin_looks_the_same_in_every_answer() -> None:
    """Its part of the bar has a shape of its own, whichever other origins there are."""
    shapes = set()
    for names in (["draft", "target"], ["draft", "suffix", "target"], ["target"]):
        figures = Figures(Statistics(generated_tokens=9), Counter(dict.fromkeys(names, 3)))
        legend = figure_texts(figures, None, 40)["tokens from"].plain
        shapes.add(legend[legend.index(" target") - 1])
    assert len(shapes) == 1


@pytest.mark.slow
async def test_widgets_show_the_text_that_was_compared() -> None:
    """The panel puts on the screen what `figure_texts` returns, and nothing else."""
    app, chance = chat(Script()), random.Random(5)
    async with app.run_test(size=SIZE) as pilot:
        panel = app.query_one(Panel)
        for _ in range(20):
            app.answers.figures = figures = random_figures(chance)
            app.view.show_state()
            await pilot.pause()
            width = panel.scrollable_content_region.width - panel.query(Card).last().gutter.width
            texts = figure_texts(figures, app.pair_controller.facts, width)
            shown = {each.figure: each for each in panel.query(FigureView) if each.display}
            assert {name: str(each.render()) for name, each in shown.items()} == {
                name: text.plain for name, text in texts.items()
            }


@pytest.mark.slow
async def test_the_verdict_has_the_colour_of_its_meaning() -> None:
    """A slow answer is not drawn like a fast one."""
    app = chat(Script(["abcdefghijkl"]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Colours")
        card = app.query_one("#verdict")
        colours = set()
        for speedup, tones in ((3.56, {"-good"}), (0.73, {"-bad"}), (1.01, set())):
            app.answers.figures.compare({"speedup": speedup})
            app.view.show_state()
            assert card.classes & {"-good", "-bad"} == tones
            await pilot.pause()
            colours.add(card.styles.border_top[1])
        assert len(colours) == 3


@pytest.mark.slow
async def test_a_measured_speedup_is_the_same_everywhere() -> None:
    """After a race the panel, the verdict and the line below the answer have one speedup."""
    app = chat(Script(["abcdefghijkl" * 10]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Race")
        await race(pilot)
        await pilot.press("escape")
        words = speedup_text(app.answers.figures.speedup)
        await until(pilot, lambda: words in note(app))
        assert words in strip_text(app.answers.figures, 80)
        await app.view.show_branch()
        assert words in note(app)


@pytest.mark.slow(keep=1)
@pytest.mark.usefixtures("short_races")
async def test_a_race_measures_the_speedup() -> None:
    """The panel then shows both of its rates."""
    app = chat(Script(["abcdefghijkl" * 3]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Race")
        before = app.answers.figures.speedup, panel_text(app)
        await race(pilot)
        plain, ours = (
            lane.tokens_per_second
            for lane in Race.of_record(app.conversations.branch[-1].statistics["race"]).lanes  # type: ignore[union-attr]
        )
        after = app.answers.figures.speedup, panel_text(app)
        assert after[0] == pytest.approx(ours / plain, rel=0.02)
        assert after[0] != before[0]
        assert "in the race" in after[1]
        assert re.search(rf"without +█+ +{plain:.1f}\n", after[1])
        assert re.search(rf"with drafts +█+ +{ours:.1f}\n", after[1])
        await app.view.show_branch()
        app.answers.recall()
        assert app.answers.figures.speedup != before[0]


@pytest.mark.slow
async def test_the_panel_shows_the_figures_of_a_stored_answer(tmp_path: Path) -> None:
    """After reopening, and of the version that is shown."""
    script = Script(["abcdefghijkl" * 10, "abcdefghijkl" * 20])
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Figures")
        await until(pilot, lambda: "67 % of 30 drafted" in panel_text(app))
        await pilot.press("f5")
        await until(pilot, lambda: "67 % of 60 drafted" in panel_text(app))
        app.view.transcript.views[-1].focus()
        await pilot.press("left")
        await until(pilot, lambda: "67 % of 30 drafted" in panel_text(app))
        number = app.conversations.number or 0
        await app.actions.conversations.new()
        assert "drafted" not in panel_text(app)
        await app.actions.conversations.open(number)
        await until(pilot, lambda: "67 % of 30 drafted" in panel_text(app))
        assert re.search(r"with drafts +█+ 25\.0", panel_text(app))
        assert "▱ 2 %" in screen_text(app)
        assert speedup_text(app.answers.figures.speedup) in note(app)


@pytest.mark.slow
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


@pytest.mark.slow
async def test_the_panel_follows_the_focus() -> None:
    """An older answer's figures while it has the focus, without advice; then the newest again."""
    script = Script(["abcdefghijkl" * 10, "abcdefghijkl" * 20])
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "First")
        await say(pilot, "Second")
        await until(pilot, lambda: "67 % of 60 drafted" in panel_text(app))
        app.answers.figures.compare({"speedup": 0.5})
        app.view.show_state()
        await until(pilot, lambda: "Ctrl+L" in screen_text(app))
        newest = panel_text(app)
        await pilot.press("shift+up", "up", "up")
        await until(pilot, lambda: "67 % of 30 drafted" in panel_text(app))
        app.query_one(Panel).focus()
        await pilot.pause()
        assert "67 % of 30 drafted" in panel_text(app)
        assert "Ctrl+L" not in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: "Ctrl+L" in screen_text(app))
        assert panel_text(app) == newest


@pytest.mark.slow
async def test_an_answer_that_ended_is_not_measured_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What could not be told during it cannot be told after it."""
    monkeypatch.setattr("specchat.decoding.step_times.MIN_SECONDS", 1e9)
    script = Script(["abcdefghijkl" * 9], hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Short", wait=False)
        await until(pilot, lambda: "Measuring what speculation" in panel_text(app))
        script.hold.set()  # type: ignore[union-attr]
        await until(pilot, lambda: "to tell what speculation" in panel_text(app))
        assert app.conversations.branch[-1].statistics["speedup"] == 0.0


@pytest.mark.slow
async def test_the_seconds_saved_are_kept_and_added_up(tmp_path: Path) -> None:
    """Over the answers of all conversations, in this session and the next."""
    saved = 0.0
    for number in (1, 2):
        app = chat(Script(["abcdefghijkl" * 9]), tmp_path / "history.db")
        async with app.run_test(size=SIZE) as pilot:
            await say(pilot, f"Question {number}")
            saved += app.conversations.branch[-1].statistics["saved_s"]
            today, ever = app.answers.figures.saved_before
            assert today == pytest.approx(saved)
            assert ever == pytest.approx(saved)
            assert f"today {duration_text(saved)}" in panel_text(app) or number == 1
    assert saved > 2
