"""What is drafted stands dim ahead of the answer, until the target's verdict."""

from __future__ import annotations

import threading
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count, pairwise
from time import monotonic
from typing import Any

import pytest
from rich.style import Style

from scripted_chat import Script, chat
from specchat.decoding.chunk import Chunk, Piece, TreeToken
from specchat.decoding.statistics import Statistics
from specchat.options.declarations import ScreenOptions
from specchat.tui.app import ChatApp
from specchat.tui.controllers import answers, ghosts
from specchat.tui.controllers.writing import Writing
from specchat.tui.texts.ghost_text import Ghost, after_verdict, before_verdict
from tables import table
from tui.driving import say, screen_text, until
from tui.test_controllers import Chat, Display, FakeView


@pytest.fixture
def anyio_backend() -> str:
    """Run coroutines as Textual does."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use all colours, and seconds that no other timer has."""
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setattr(ghosts, "HOLD", 0.2501)
    monkeypatch.setattr(ghosts, "LINGER", 0.5001)


class Verdicts:
    """Catches the timers that show verdicts, so that a test can see what stands before them."""

    def __init__(self, app: ChatApp) -> None:
        self.due: list[Callable[[], object]] = []
        self._later = app.view.later
        app.view.later = self._catch  # type: ignore[method-assign]

    def _catch(self, seconds: float, act: Callable[[], object]) -> None:
        if seconds in {ghosts.HOLD, ghosts.LINGER}:
            self.due.append(act)
        else:
            self._later(seconds, act)


def styles_of(app: ChatApp, word: str) -> list[Style]:
    """Return the styles of a word on the screen, if it is there."""
    for line in app.screen._compositor.render_strips():
        if (start := line.text.find(word)) >= 0:
            return [style for _, style, _ in line.crop(start, start + len(word)) if style]
    return []


@pytest.mark.slow(keep=1)
@pytest.mark.anyio
async def test_a_draft_stands_dim_until_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then what was kept is like the rest of the text, and what was rejected is struck off."""
    monkeypatch.setattr(ghosts, "PERIOD", 0.0)
    app = chat(Script(["One two three."], pause=10.0))
    verdicts = Verdicts(app)
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: "One two thre" in screen_text(app))
        step = chain("e four five ", ("e four", " fi", "ve "), (" fo", "ur"))
        take(app, step)
        await until(pilot, lambda: "One two three four fi four" in screen_text(app))
        [plain], [drafted] = styles_of(app, "One two"), styles_of(app, "e four fi four")
        assert drafted.color != plain.color
        assert not drafted.strike
        verdicts.due[-1]()
        await until(pilot, lambda: "One two three four five four" in screen_text(app))
        [kept, rejected] = styles_of(app, "e four five four")
        assert kept.color == plain.color
        assert rejected.strike
        verdicts.due[-1]()
        await until(pilot, lambda: "five four" not in screen_text(app))
        assert "One two three four five" in screen_text(app)
        app.answers.stop()


def take(app: ChatApp, step: Chunk) -> None:
    """Let a step arrive in the answer being written."""
    writing = app.answers.current
    assert writing is not None
    writing.add([step], writing.figures.statistics)
    writing.show(app.answers.ghosts.next(writing))


def chain(text: str, texts: tuple[str, ...], rejected: tuple[str, ...], **more: Any) -> Chunk:
    """Return a step whose last token is the target's own."""
    origins = (*("draft",) * (len(texts) - 1), "target")
    return Chunk(text, tuple(range(len(texts))), origins, texts, (), rejected, **more)


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("without", ["", "setting", "command", "colours"])
async def test_drafts_can_be_turned_off(without: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a setting and a command; without colours they are off."""
    if without == "colours":
        monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(ghosts, "PERIOD", 0.0)
    screen = ScreenOptions(ghost=without != "setting")
    app = chat(Script(["One two three."], hold=threading.Event()), screen=screen)
    verdicts = Verdicts(app)
    async with app.run_test(size=(100, 30)) as pilot:
        if without == "command":
            await say(pilot, "/ghost")
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: "One two thre" in screen_text(app))
        verdicts.due.clear()
        take(app, chain("e four five ", ("e four", " fi", "ve "), (" fo", "ur")))
        assert bool(verdicts.due) == (not without)
        app.answers.stop()


class Clock:
    """Seconds that pass only when they are waited for, and the timers of a view in them."""

    def __init__(self, view: FakeView) -> None:
        self.now = monotonic()  # what was shown before was shown by the real one
        self._view = view
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._number = count()

    def wait(self, seconds: float) -> None:
        """Let time pass, and fire the timers whose time comes."""
        end = self.now + seconds
        while True:
            for wait, act in self._view.timers:
                heappush(self._due, (self.now + wait, next(self._number), act))
            self._view.timers.clear()
            if not self._due or self._due[0][0] > end:
                break
            self.now, _, act = heappop(self._due)
            act()
        self.now = end


@pytest.mark.anyio
@pytest.mark.parametrize("rate", [10, 60])
async def test_drafts_come_at_a_calm_pace(rate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many steps a second there are: each stands until its verdict has been seen."""
    told = Chat(Script(["One two three."], hold=threading.Event()))
    await told.questions.ask("Count")
    told.follow_until(lambda: bool(told.view.answers[-1].text))
    writing, clock = told.answers.current, Clock(told.view)
    assert writing is not None
    assert writing.question is not None
    assert writing.question.ticket is not None
    drawn: list[tuple[float, Ghost]] = []
    draw = Writing.show

    def show(writing: Writing, drafted: Ghost | None = None) -> None:
        drawn.append((clock.now, drafted or Ghost("")))
        draw(writing, drafted)

    monkeypatch.setattr(Writing, "show", show)
    for module in (ghosts, answers):
        monkeypatch.setattr(module, "monotonic", lambda: clock.now)
    told.answers.ghosts.has_colours = lambda: True
    while sum(ghost.is_rejected for _, ghost in drawn) < 3:
        writing.question.ticket.add([chain(" a b", (" a", " b"), (" x",))], Statistics())
        while not told.calls.empty():
            told.calls.get()()
        clock.wait(1 / rate)
    drafts = [place for place, (_, ghost) in enumerate(drawn) if ghost.held][:3]
    for place in drafts:
        (drafted_at, _), (judged_at, verdict) = drawn[place : place + 2]
        assert verdict.is_rejected  # no newer text has replaced the draft
        assert judged_at == pytest.approx(drafted_at + ghosts.HOLD)
        is_seen = [at for at, _ in drawn[place + 2 :]][:1]
        assert all(at > judged_at + 0.99 * ghosts.SHOWN for at in is_seen)
    times = [drawn[place][0] for place in drafts]
    assert all(after - before >= ghosts.PERIOD for before, after in pairwise(times))
    told.answers.stop()
    told.follow_until(lambda: told.answers.current is None)
    told.store.close()


def test_late_verdicts_show_a_slow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some in a row there are no more drafts until the user wants them again."""
    now = [100.0]
    monkeypatch.setattr(ghosts, "monotonic", lambda: now[0])
    view = FakeView()
    each = ghosts.Ghosts(view)
    each.has_colours = lambda: True
    each.turn(is_on=True)
    writing = Writing(display=Display())
    writing.add([chain("One a b", ("One", " a", " b"), ())], Statistics())
    writing.add([chain(" a b", (" a", " b"), ())], Statistics())

    def draft(late: float) -> bool:
        now[0] += ghosts.PERIOD
        if each.next(writing) is None:
            return False
        assert each.next(writing) is None  # the pace is calm
        now[0] += ghosts.HOLD + late
        view.timers.pop(0)[1]()
        view.timers.clear()
        return True

    very = 2 * ghosts.LATE
    assert all(map(draft, [very, very, 0.0, very, very, very]))
    assert not draft(0.0)
    assert each.stands_until(writing) == 0.0  # newer text waits for nothing
    each.toggle()
    assert view.notices == [
        "Ghost drafts are off: this terminal draws them too late.",
        "Ghost drafts are on; the setting screen.ghost keeps that.",
    ]
    assert all(map(draft, [very, very, 0.0]))


def test_a_draft_holds_back_its_own_answer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text of another one, or of one that went out of sight, waits for nothing."""
    monkeypatch.setattr(ghosts, "monotonic", lambda: 100.0)
    each = ghosts.Ghosts(FakeView())
    each.has_colours = lambda: True
    each.turn(is_on=True)
    writing, other = Writing(display=Display()), Writing(display=Display())
    writing.add([chain("One a b", ("One", " a", " b"), ())], Statistics())
    writing.add([chain(" a b", (" a", " b"), ())], Statistics())

    assert each.next(writing) is not None
    assert each.stands_until(writing) == 100.0 + ghosts.HOLD + ghosts.SHOWN
    assert each.stands_until(other) == 0.0
    writing.display = None
    assert each.stands_until(writing) == 0.0


def test_the_command_says_that_drafts_cannot_be_seen() -> None:
    """Without colours they are not shown, on or off; nothing is switched then."""
    view = FakeView()
    each = ghosts.Ghosts(view)
    each.turn(is_on=True)
    each.toggle()
    each.has_colours = lambda: True
    each.toggle()
    assert view.notices == [
        "Ghost drafts are not shown: without colours they would look like the answer.",
        "Ghost drafts are off; the setting screen.ghost keeps that.",
    ]


@table(
    ("step", "before", "after"),
    [
        (chain(" a b c", (" a", " b", " c"), (" x", " y")), Ghost(" a b x y", 6),
         Ghost(" x y", 0, is_rejected=True)),
        (chain(" a b", (" a", " b"), ()), Ghost(" a", 4), None),
        (chain(" a", (" a",), ()), None, None),
        (chain(" a\nb", (" a", "\nb"), (" x",)), Ghost(" a x", 4), None),
        (chain("\nb", ("\n", "b"), ()), None, None),
        (chain("", (" a", " b"), ()), None, None),
        (chain(" b", (" a", " b"), (), reasoning=" a",
               pieces=(Piece(" a", "draft", "reasoning"), Piece(" b", "target"))), None, None),
        (chain(" a b", (" a", " b"), (" x", " y")), Ghost(" a x y", 4),
         Ghost(" x y", 0, is_rejected=True)),
    ],
)  # fmt: skip
def test_the_draft_of_a_step(step: Chunk, before: Ghost | None, after: Ghost | None) -> None:
    """It holds back what the step wrote; of steps with other texts than the answer's is none."""
    assert before_verdict(step, f"One{step.text}") == before
    if before is not None:
        assert after_verdict(step) == after


def test_the_draft_of_a_tree_is_its_main_path() -> None:
    """Also where the target went along a branch."""
    tree = (
        TreeToken(" a", 0, "draft", is_accepted=True),
        TreeToken(" x", 1, "draft", is_accepted=False),
        TreeToken(" b", 1, "draft", is_accepted=True),
    )
    step = chain(" a b c", (" a", " b", " c"), (), tree=tree)
    assert before_verdict(step, "One a b c") == Ghost(" a x", 6)
    assert after_verdict(step) == Ghost(" x", 0, is_rejected=True)


@table(("before", "has_place"), [("One\n", False), ("One\n- two", True), ("One\n| a ", False)])
def test_a_draft_needs_a_line_to_stand_behind(before: str, has_place: bool) -> None:
    """An empty one is none, nor is a table, whose columns it would shift."""
    step = chain(" a b", (" a", " b"), ())
    assert (before_verdict(step, before + step.text) is not None) == has_place
