"""The controllers, driven without Textual: answers, pairs, downloads and conversations."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import Any

import pytest

from scripted_chat import FACTS, Script, ScriptedEngine
from specchat.bench.race_record import Race
from specchat.chat.conversation import ChatSchema
from specchat.decoding.chunk import Chunk
from specchat.decoding.statistics import Statistics
from specchat.engine.api import EngineFacts, Loading
from specchat.errors import ContextFull, EngineFailed, ModelWontLoad
from specchat.sharing import shared_engine
from specchat.tui.answer_parts import AnswerParts
from specchat.tui.controllers.answers import SHARED_INTERVAL, SHOW_INTERVAL
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.controllers.chat_view import Subject
from specchat.tui.controllers.pulls import Pulls, PullState
from specchat.tui.controllers.writing import WAITING, Writing
from specchat.tui.setup import Offer, PairChoice, Setup
from specchat.tui.texts.ghost_text import Ghost
from specchat.wording import speedup_text

pytestmark = pytest.mark.anyio
SECONDS = 30.0


@dataclass
class Display:
    """Stands in for an answer's widget."""

    text: str = ""
    note: str = ""
    older_note: str = ""
    has_failed: bool = False
    parts: AnswerParts = field(default_factory=AnswerParts)

    def show(self, parts: AnswerParts, drafted: Ghost | None = None) -> None:
        """Store what is written."""
        assert parts.text == "".join(each.text for each in parts.pieces if each.kind == "answer")
        self.parts, self.text = parts, parts.text

    def say(
        self, words: str, details: str = "", older: str = "", *, has_failed: bool = False
    ) -> None:
        """Store the line below the answer."""
        del details
        self.note, self.older_note, self.has_failed = words, older, has_failed


@dataclass
class FakeView:
    """A screen that only remembers what it was asked to show."""

    notices: list[str] = field(default_factory=list)
    status: dict[str, str] = field(default_factory=dict)
    composer: str = ""
    answers: list[Display] = field(default_factory=list)
    timers: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    def notify(self, message: str, **how: Any) -> None:
        """Remember a notice."""
        self.notices.append(message)

    def report(self, reason: object) -> None:
        """Remember an error."""
        self.notices.append(str(reason))

    def say(self, words: str, about: Subject = "engine") -> None:
        """Remember the status."""
        self.status[about] = words

    def show_state(self) -> None:
        """Nothing to show."""

    def show_frame(self) -> None:
        """Nothing to show."""

    def show_conversations(self) -> None:
        """Nothing to show."""

    def show_pull(self, name: str) -> None:
        """Nothing to show."""

    def put_back(self, text: str) -> None:
        """Remember what is in the composer."""
        self.composer = text

    def rewrite(self, text: str) -> None:
        """Remember what is in the composer."""
        self.composer = text

    async def show_branch(self) -> None:
        """Nothing to show."""

    async def add(self, message: int) -> Display:
        """Add a message."""
        self.answers.append(Display())
        return self.answers[-1]

    async def last_answer(self) -> Display | None:
        """Return the last answer."""
        return self.answers[-1]

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Remember a timer."""
        self.timers.append((seconds, act))


CHATS: list[Chat] = []
"""The chats of the test that runs."""


@pytest.fixture(autouse=True)
def close_stores() -> Iterator[None]:
    """Close what chats keep."""
    yield
    while CHATS:
        CHATS.pop().store.close()


class Chat:
    """The controllers of a chat, and the calls that its threads post."""

    def __init__(self, script: Script, **pair: Any) -> None:
        """Make them as the app does."""
        self.view = FakeView()
        self.calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        choice = PairChoice("scripted", "", Loading(Path("target.gguf")), **pair)
        setup = Setup(choice, offers=list, history=None)
        state = ChatState(self.view, setup, self.post, script.load)
        CHATS.append(self)
        self.conversations, self.store = state.conversations, state.conversations.store
        self.pair_controller, self.options = state.pair_controller, state.options
        self.answers, self.questions, self.races = state.answers, state.questions, state.races

    def post(self, act: Callable[..., object], *arguments: object) -> None:
        """Remember a call, as the app does until it has time."""
        self.calls.put(partial(act, *arguments))

    def follow_until(self, holds: Callable[[], bool]) -> None:
        """Do what was posted and fire timers until a condition holds."""
        deadline = monotonic() + SECONDS
        while not holds():
            assert monotonic() < deadline, self.view.notices
            timers = [act for seconds, act in self.view.timers if seconds <= SHARED_INTERVAL]
            self.view.timers = [each for each in self.view.timers if each[0] > SHARED_INTERVAL]
            for act in timers:
                act()
            if not self.calls.empty():
                self.calls.get()()

    async def ask(self, text: str) -> Display:
        """Ask a question, have it answered, and return what is shown of the answer."""
        await self.questions.ask(text)
        self.follow_until(lambda: self.answers.current is None)
        return self.view.answers[-1]


def test_controllers_load_no_textual() -> None:
    """They are imported, and run, where there is no screen."""
    names = ("chat_state", "session", "chat_view")
    code = "".join(f"import specchat.tui.controllers.{name}\n" for name in names)
    code += "import specchat.tui.commands, sys; print('textual' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


async def test_an_answer_is_streamed_and_stored() -> None:
    """Text, statistics and steps are all there in the end."""
    chat = Chat(Script(["one two three"]))
    display = await chat.ask("Count")
    question, answer = chat.conversations.branch

    assert (question.text, answer.text, answer.finish) == ("Count", "one two three", "stop")
    assert display.text == "one two three"
    assert "4 tokens" in display.note
    assert "tokens/s" in display.older_note
    known = chat.answers.steps_of(answer.id)
    assert known is not None
    assert len(known.steps) == 2


def test_an_answer_counts_the_seconds_where_nothing_else_does() -> None:
    """It goes on where it would be if it had shown them all the time."""
    view, display, is_timed = FakeView(), Display(), [False]
    writing, notes = Writing(1, display), list[str]()
    writing.wait(view.later, lambda: is_timed[0])
    for is_timed[0] in (False, True, False):
        notes.append(display.note)
        view.timers.pop()[1]()
    assert [*notes, display.note] == [
        WAITING, f"{WAITING} · 1 s so far", WAITING, f"{WAITING} · 3 s so far"
    ]  # fmt: skip
    writing.add([Chunk("One", (1,), ("target",), ("One",))], Statistics())
    view.timers.pop()[1]()
    assert display.note == ""
    assert not view.timers


@pytest.mark.parametrize(("num_idle", "interval"), [(1, SHOW_INTERVAL), (0, SHARED_INTERVAL)])
async def test_text_waits_no_longer_than_one_interval(
    num_idle: int, interval: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first step shows at once, later ones together after 50 ms at most, the last ones too.

    Where the engine uses every core they wait longer, for drawing takes its time.
    """
    facts = replace(FACTS, idle_processors=num_idle)
    monkeypatch.setattr("scripted_chat.FACTS", facts)
    monkeypatch.setattr("specchat.tui.controllers.answers.monotonic", lambda: 1000.0)
    chat = Chat(Script(["x" * 12 * 3], hold=threading.Event()))
    await chat.questions.ask("Quick")
    chat.follow_until(lambda: bool(chat.view.answers[-1].text))
    session = chat.pair_controller.session
    writing = chat.answers.current
    assert session is not None
    assert writing is not None
    assert writing.question is not None
    assert writing.question.ticket is not None
    writing.question.ticket.add([Chunk("more", (1,), ("target",), ("more",))], Statistics())
    chat.answers._arrived(writing)
    assert "more" not in chat.view.answers[-1].text
    (seconds, show) = chat.view.timers[-1]
    assert seconds == pytest.approx(interval)
    show()
    assert chat.view.answers[-1].text.endswith("more")
    chat.answers.stop()
    chat.follow_until(lambda: chat.answers.current is None)
    await chat.questions.ask("Again")
    again = chat.answers.current
    assert again is not None
    assert again.question is not None
    assert again.question.ticket is not None
    again.question.ticket.add([Chunk("first", (1,), ("target",), ("first",))], Statistics())
    chat.answers._arrived(again)
    assert "first" in chat.view.answers[-1].text  # whatever was drawn just before
    chat.answers.stop()
    chat.follow_until(lambda: chat.answers.current is None)


async def test_a_stopped_answer_is_continued() -> None:
    """Its text and its statistics go on where they stopped."""
    script = Script(["one two three four"], hold=threading.Event())
    chat = Chat(script)
    await chat.questions.ask("Count")
    chat.follow_until(lambda: bool(chat.view.answers[-1].text))
    chat.answers.stop()
    chat.follow_until(lambda: chat.answers.current is None)
    assert chat.view.answers[-1].note.startswith("stopped")
    script.hold, script.answers = None, ["e four"]
    await chat.questions.go_on()
    chat.follow_until(lambda: chat.answers.current is None)

    assert chat.conversations.branch[-1].text == "one two three four"
    assert script.asked[1][0][-1] == {"role": "assistant", "content": "one two thre"}


async def test_what_a_continued_answer_saved_counts_once() -> None:
    """Its first part was counted when it was stopped."""
    hold = threading.Event()
    script = Script(["four" * 200], hold=hold, pause=0.02)
    chat = Chat(script)
    await chat.questions.ask("Count")
    chat.follow_until(lambda: bool(chat.view.answers[-1].text))
    script.hold = None
    hold.set()
    chat.follow_until(lambda: len(chat.view.answers[-1].text) > 100)
    chat.answers.stop()
    chat.follow_until(lambda: chat.answers.current is None)
    first = chat.conversations.branch[-1].statistics["saved_s"]
    await chat.questions.go_on()
    chat.follow_until(lambda: chat.answers.current is None)

    whole = chat.conversations.branch[-1].statistics["saved_s"]
    assert 0 < first < whole
    assert chat.answers.figures.saved_before[0] == pytest.approx(whole)


async def test_an_answer_that_cannot_be_continued_ends_as_before() -> None:
    """A context that its question and it fill alone is still full, and no more text came."""
    script = Script(["one two three"], finish="context")
    chat = Chat(script)
    await chat.questions.ask("Count")
    chat.follow_until(lambda: chat.answers.current is None)
    script.refusal = ContextFull("the prompt has 65 tokens and the context holds 64")
    await chat.questions.go_on()
    chat.follow_until(lambda: chat.answers.current is None)

    assert "the context holds 64" in chat.view.answers[-1].note
    assert chat.conversations.branch[-1].finish == "context"
    assert chat.conversations.branch[-1].text == "one two three"


@pytest.mark.parametrize("has_schema", [False, True])
async def test_a_full_context_names_what_stays_in_it(has_schema: bool) -> None:
    """A pinned message, and the question that says what answers follow."""
    script = Script(["{}"])
    chat = Chat(script)
    if has_schema:
        chat.conversations.set_schema(ChatSchema("", '{"type": "object"}'))
    await chat.ask("First")
    script.refusal = ContextFull("too long")
    note = (await chat.ask("Second")).note

    assert "starts a new chat" in note
    assert ("/schema off leaves the schema out" in note) == has_schema
    assert "unpins" not in note


async def test_a_question_waits_for_the_answer_before_it() -> None:
    """It is asked when that answer has ended, also where it was stopped."""
    script = Script(["one two three"], hold=threading.Event())
    chat = Chat(script)
    await chat.questions.ask("First")
    await chat.questions.ask("Second")
    assert [each.written for each in chat.questions.waiting] == ["Second"]
    assert chat.view.composer == ""
    chat.answers.stop()
    chat.follow_until(lambda: chat.answers.current is None)
    assert chat.questions._ask_queued in [act for _, act in chat.view.timers]
    chat.view.timers.clear()
    assert script.hold is not None
    script.hold.set()
    await chat.questions._ask_queued()
    chat.follow_until(lambda: chat.answers.current is None)
    assert [each.text for each in chat.conversations.branch if each.role == "user"] == [
        "First", "Second",
    ]  # fmt: skip
    assert not chat.questions.queued


@pytest.mark.usefixtures("short_races")
async def test_a_race_changes_no_message() -> None:
    """It decodes the answer without a drafter and with one, and keeps the speedup with it."""
    script = Script(["abcdefghijkl"])
    chat = Chat(script)
    await chat.ask("Race")
    shown: list[Race] = []
    await chat.races.run(shown.append)
    chat.follow_until(lambda: bool(shown))

    assert [options.get("drafter") for _, options in script.asked] == [None, "none", None]
    assert shown == [chat.races.last]
    speedup = chat.answers.figures.gain.speedup
    assert speedup == shown[0].speedup > 0
    assert chat.conversations.branch[-1].statistics["speedup"] == speedup
    assert speedup_text(speedup) in chat.view.answers[-1].older_note
    assert [each.text for each in chat.conversations.branch] == ["Race", "abcdefghijkl"]


@pytest.mark.usefixtures("short_races")
async def test_a_race_of_a_long_answer_takes_turns() -> None:
    """Both lanes see the same minute, and each goes on where its own last step ended."""
    script = Script(["abcdefghijkl" * 24])
    chat = Chat(script)
    await chat.ask("Race")
    shown: list[Race] = []
    await chat.races.run(shown.append)
    assert chat.view.status["progress"] == "racing: 0 of 72 tokens"
    chat.follow_until(lambda: bool(shown))

    turns = [
        (asked["drafter"] == "none", sum(len(step.tokens) for step in asked["begun"]))
        for _, asked in script.asked[1:]
    ]
    assert turns == [(True, 0), (False, 0), (False, 33), (True, 32), (True, 64), (False, 66)]
    assert [asked["replay"].end for _, asked in script.asked[1:]] == [32, 32, 64, 64, 72, 72]
    assert [lane.num_tokens for lane in shown[0].lanes] == [72, 72]
    assert [len(lane.steps) for lane in shown[0].lanes] == [72, 24]
    assert chat.view.status["progress"] == ""


@pytest.mark.parametrize("seed", [None, 7])
async def test_a_race_samples_as_the_answer_did(seed: int | None) -> None:
    """Its seed and temperature are the answer's, whatever is set since."""
    script = Script(["abcdefghijkl"])
    chat = Chat(script)
    chat.options.changed.update({"temperature": 0.5, "seed": seed})
    await chat.ask("Race")
    chat.options.changed.update({"temperature": 1.5, "seed": 8})
    shown: list[Race] = []
    await chat.races.run(shown.append)
    chat.follow_until(lambda: bool(shown))

    for _, asked in script.asked[1:]:
        assert (asked["temperature"], asked["seed"]) == (0.5, seed)


@pytest.mark.usefixtures("short_races")
async def test_passes_are_measured_before_the_first_turn_of_a_race_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A busy machine would measure, for nothing, before every slice."""
    script = Script(["abcdefghijkl" * 24])
    measured_before: list[int] = []

    def prepare(self: ScriptedEngine, *_: object, **options: object) -> bool:
        del options
        if self._script is script:  # chats of other tests may be idle
            measured_before.append(len(script.asked))
        return False

    monkeypatch.setattr(ScriptedEngine, "prepare", prepare)
    monkeypatch.setattr(shared_engine, "SECONDS_TO_MEASURE", 1e9)
    chat = Chat(script)
    await chat.ask("Race")
    shown: list[Race] = []
    await chat.races.run(shown.append)
    chat.follow_until(lambda: bool(shown))

    assert measured_before == [1]


@pytest.mark.usefixtures("short_races")
@pytest.mark.parametrize(
    "since",
    [
        {"drafter": "none"},
        {"draft_length": 0},
        {"draft_length": 3, "draft_tree": "off"},
        {"top_k": 3, "think": "off"},
    ],
)
async def test_a_race_decodes_as_the_answer_was_decoded(since: dict[str, Any]) -> None:
    """Whatever is set since, or was not set then."""
    script = Script(["abcdefghijkl"], thinking=("on", "off"))
    chat = Chat(script)
    chat.options.changed["min_p"] = 0.2
    await chat.ask("Race")
    chat.options.changed.update({"min_p": 0.1, **since})
    shown: list[Race] = []
    await chat.races.run(shown.append)
    chat.follow_until(lambda: bool(shown))

    (_, first), *turns = script.asked
    names = {"min_p", "draft_length", "draft_tree", "think", "top_k"}
    for _, asked in turns:
        assert {name: asked[name] for name in names} == {name: first[name] for name in names}
    assert [asked["drafter"] for _, asked in turns[:2]] == ["none", "auto"]


@pytest.mark.parametrize("facts", [{"draft": "Another 1B"}, {"draft_off_reason": "too slow"}])
async def test_a_race_needs_the_answers_drafter(facts: dict[str, Any]) -> None:
    """Another one would race something else."""
    script = Script(["abcdefghijkl"])
    chat = Chat(script)
    await chat.ask("Race")
    chat.pair_controller.facts = replace(FACTS, **facts)
    await chat.races.run(lambda _: None)

    assert "drafted with Scripted 0.6B, which is not in use now" in chat.view.notices[-1]
    assert len(script.asked) == 1


async def test_an_answer_of_an_older_version_is_not_raced() -> None:
    """How it was asked for is not known."""
    script = Script(["abcdefghijkl"])
    chat = Chat(script)
    await chat.ask("Race")
    answer = chat.conversations.last
    assert answer is not None
    del answer.statistics["asked_with"]  # type: ignore[attr-defined]
    await chat.races.run(lambda _: None)

    assert "How that answer was asked for is not stored." in chat.view.notices[-1]
    assert len(script.asked) == 1


@pytest.mark.parametrize("lane", [1, 2])
async def test_a_stopped_race_leaves_the_answer_as_it_was(lane: int) -> None:
    """Nothing is shown or measured, whichever lane was stopped."""
    script = Script(["abcdefghijkl" * 2])  # a second step, before which it is stopped
    chat = Chat(script)
    await chat.ask("Race")
    before = chat.conversations.last

    class Hold(threading.Event):
        """Holds this lane alone."""

        def wait(self, timeout: float | None = None) -> bool:
            return len(script.asked) <= lane or super().wait(timeout)

    script.hold = Hold()
    shown: list[Race] = []
    await chat.races.run(shown.append)
    chat.follow_until(lambda: len(script.asked) == 1 + lane)
    chat.answers.stop()
    chat.follow_until(lambda: chat.answers.current is None)

    assert len(script.asked) == 1 + lane
    assert shown == []
    assert chat.conversations.last == before


async def test_a_stop_that_comes_too_late_for_a_slice_ends_the_race() -> None:
    """The engine had ended it, and the chat was about to go on with the next one."""
    script = Script(["abcdefghijkl"])
    chat = Chat(script)
    await chat.ask("Race")
    shown: list[Race] = []
    await chat.races.run(shown.append)
    slice_ = chat.answers.current
    assert slice_ is not None
    deadline = monotonic() + SECONDS
    while not slice_.is_over:
        assert monotonic() < deadline
    chat.answers.stop()
    chat.follow_until(lambda: chat.answers.current is None)

    assert len(script.asked) == 2
    assert shown == []


async def test_an_engine_that_dies_fails_the_answer_and_is_started_again() -> None:
    """What came of the answer is stored with the reason."""
    script = Script(["one two three"], error=EngineFailed("the engine process ended"))
    chat = Chat(script)
    display = await chat.ask("Count")
    chat.follow_until(lambda: chat.pair_controller.session is None)
    assert (display.text, display.has_failed) == ("one two thre", True)
    assert "Ctrl+R" in chat.view.status["engine"]
    script.error = None
    assert (await chat.ask("Again")).text == "one two three"
    assert script.num_loads == 2


async def test_a_pair_that_does_not_load_fails_the_question() -> None:
    """The reason is shown below the question."""
    chat = Chat(Script(load_error=ModelWontLoad("not a GGUF file")))
    display = await chat.ask("Hello?")
    assert (display.note, display.has_failed) == ("not a GGUF file", True)
    chat.follow_until(lambda: chat.pair_controller.session is None)
    assert chat.view.status["engine"] == (
        "The next question or Ctrl+R tries again, F8 switches to another pair."
    )


@pytest.mark.parametrize(("error", "num_late"), [(None, 3), (ModelWontLoad("gone"), 2)])
def test_late_reports_of_a_replaced_session_are_ignored(
    error: Exception | None, num_late: int
) -> None:
    """Neither facts nor progress nor the loss of the pair before are shown; it is not saved."""
    saved: list[EngineFacts] = []

    def keep(facts: EngineFacts) -> str:
        saved.append(facts)
        return "saved"

    script = Script(load_error=error)
    chat = Chat(script, keep=keep)
    first = chat.pair_controller.start()
    deadline = monotonic() + SECONDS
    while chat.calls.qsize() < num_late:
        assert monotonic() < deadline
    late = [chat.calls.get() for _ in range(num_late)]
    script.load_hold = threading.Event()
    second = chat.pair_controller.start()
    for act in late:
        act()
    assert chat.view.status.get("progress", "") == ""
    assert chat.pair_controller.facts is None
    assert chat.pair_controller.session is second is not first
    assert saved == []
    script.load_error = None
    script.load_hold.set()
    chat.follow_until(lambda: chat.pair_controller.facts is not None and bool(saved))
    assert len(saved) == 1
    chat.pair_controller.close(SECONDS)


async def test_a_late_end_of_a_replaced_session_ends_no_answer() -> None:
    """The answer that follows it goes on."""
    script = Script(["one two three"], hold=threading.Event())
    chat = Chat(script)
    await chat.questions.ask("Count")
    chat.follow_until(lambda: bool(chat.view.answers[-1].text))
    chat.answers.end("cancelled")
    chat.pair_controller.restart()
    script.hold = threading.Event()
    await chat.questions.ask("Count again")
    writing = chat.answers.current
    chat.follow_until(lambda: bool(chat.view.answers[-1].text))
    assert chat.answers.current is writing
    chat.answers.stop()
    chat.follow_until(lambda: chat.answers.current is None)


def test_downloads_are_summed_up() -> None:
    """One by its name, several by their number; a cancelled one that still reports is ignored."""
    view = FakeView()
    pulls = Pulls(view, lambda *call: None)
    for name in ("one", "two"):
        pulls.start(Offer(name, "", share=0.5))
    assert pulls.summary() == "↓ 2 pairs 50 %"
    pulls.follow("one", PullState("installed"))
    assert pulls.arrived == "one"
    pulls.follow("one", PullState(share=0.9))
    assert pulls.summary() == "↓ two 50 %"
    pulls.end()
