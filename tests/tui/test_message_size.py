"""The size of the message being written, in the composer's frame."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from textual.events import Paste

from scripted_chat import Script, ScriptedEngine, chat
from specchat.decoding.chunk import Chunk
from specchat.engine.api import Loading
from specchat.requests.answer_request import ChatRequest
from specchat.requests.prompt_size import PromptSize
from specchat.tui.controllers.message_size import QUIET_SECONDS
from specchat.tui.controllers.session import Question, Session, Sizing
from specchat.tui.widgets.composer import LONGEST_PASTE, Composer
from tui.driving import frame_text, say, type_keys, until
from tui.test_session import Listener

pytestmark = pytest.mark.anyio
SIZE = (100, 30)


@pytest.mark.slow
async def test_the_model_counts_what_is_written() -> None:
    """The scripted one has tokens of four characters; an empty message and commands have none."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        assert "token" not in frame_text(app)
        await type_keys(pilot, *"Hello world")
        await until(pilot, lambda: " 3 tokens" in frame_text(app))
        await type_keys(pilot, "ctrl+u", *"One")
        await until(pilot, lambda: " 1 token" in frame_text(app))
        await type_keys(pilot, "enter")
        assert "token" not in frame_text(app)  # at once, not when the next count comes
        await until(pilot, lambda: app.answers.current is None)
        await type_keys(pilot, *"Again")
        await until(pilot, lambda: " 2 tokens" in frame_text(app))
        await type_keys(pilot, "ctrl+u")
        await until(pilot, lambda: not app.view.composer.text)
        await type_keys(pilot, *"/stats")
        await until(pilot, lambda: "token" not in frame_text(app))


@pytest.mark.slow
async def test_files_and_pasted_texts_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are sent."""
    (tmp_path / "a.txt").write_text("x" * 400)
    monkeypatch.chdir(tmp_path)
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await type_keys(pilot, *"See @a.txt")
        await until(pilot, lambda: " 107 tokens" in frame_text(app))
        app.query_one(Composer).text = ""
        app.post_message(Paste("y" * (LONGEST_PASTE + 4)))
        await until(pilot, lambda: f" {LONGEST_PASTE // 4 + 1} tokens" in frame_text(app))
        await type_keys(pilot, *" @a.bin")
        (tmp_path / "a.bin").write_bytes(b"\x7fELF\2\1\1\0")
        await until(pilot, lambda: f" {LONGEST_PASTE // 4 + 3} tokens" in frame_text(app))


@pytest.mark.slow
async def test_during_an_answer_the_size_is_estimated() -> None:
    """The engine counts once it is free."""
    script = Script(["A long answer to a short question"], hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Wait", wait=False)
        await until(pilot, lambda: app.answers.current is not None and bool(script.asked))
        await type_keys(pilot, *"Grüße")
        await until(pilot, lambda: "~2 tokens" in frame_text(app))
        assert script.hold is not None
        script.hold.set()
        await until(pilot, lambda: " 2 tokens" in frame_text(app))


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("text", "left_out", "words"),
    [
        ("x" * 4 * 4097, 0, "4097 tokens: too long for the context of 4096"),
        ("Hello", 6, "2 tokens: 6 older messages drop out"),
    ],
)
async def test_what_does_not_fit_is_said_in_words(text: str, left_out: int, words: str) -> None:
    """And in the colour of warnings."""
    script = Script()
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "A question")
        script.left_out = left_out
        app.query_one(Composer).text = text
        await until(pilot, lambda: words in frame_text(app))
        subtitle = app.query_one(Composer).border_subtitle
        assert "warning" in str(subtitle)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(100.0, "reads 1000 tokens again: about 10 s"), (5.0, ""), (0.0, "reads 1000 tokens again")],
)
async def test_what_the_next_question_has_read_again_is_said_before_it(
    seconds: float, words: str
) -> None:
    """With how long that takes here, as far as it is known; unless it takes no time to speak of."""

    class Reading(ScriptedEngine):
        def size(self, request: ChatRequest) -> PromptSize:
            has_system = request.messages[0]["role"] == "system"
            size, kept = super().size(request), 0 if has_system else 1000
            return replace(size, prompt_tokens=1000 + size.message_tokens, kept_tokens=kept)

        def chat(self, messages: Any, **options: Any) -> Iterator[Chunk]:
            steps = super().chat(messages, **options)
            self.stats.prompt_tokens, self.stats.cached_tokens = 10_000, 0
            self.stats.prompt_s = seconds
            return steps

    app = chat(Script())
    app.pair_controller.load = lambda *_: Reading(Script())
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "A question")
        assert "again" not in frame_text(app)
        app.conversations.set_system_prompt("Be brief.")
        app.view.show_state()
        if not words:
            await pilot.pause(3 * QUIET_SECONDS)
        await until(pilot, lambda: words in frame_text(app))
        assert ("again" in frame_text(app)) == bool(words)
        await type_keys(pilot, *"And now?")
        await until(pilot, lambda: " 2 tokens" in frame_text(app) and words in frame_text(app))
        app.conversations.set_system_prompt("")
        app.view.show_state()
        await until(pilot, lambda: "again" not in frame_text(app))


def sizes_of(engine: ScriptedEngine, use: Callable[[Session, Any], None]) -> list[Any]:
    """Return what a session reports, in order, of what a function asks for."""
    events = SimpleQueue[Any]()

    def post(act: Callable[..., object], *arguments: object) -> None:
        act(*arguments)

    begins = threading.Event()

    def load(*_: object) -> ScriptedEngine:
        begins.wait(60)
        return engine

    session = Session(Loading(Path("target.gguf")), Listener(), post, load)
    use(session, events)
    begins.set()
    found = [events.get(timeout=60)]
    while found[-1] != "stop":
        found.append(events.get(timeout=60))
    session.close()
    session.wait(5)
    return found


def ask(session: Session, events: Any) -> None:
    """Ask a question, and put how its answer ends among the events."""

    def take() -> None:
        if finish := question.take(lambda *_: None).finish:
            events.put(finish)

    question = Question([{"role": "user", "content": "abc"}], {}, take)
    session.ask(question)


def test_only_the_newest_size_is_told_and_a_question_goes_first() -> None:
    """Older ones would only make the user wait."""
    counted: list[str] = []

    class Counting(ScriptedEngine):
        def size(self, request: ChatRequest) -> PromptSize:
            counted.append(request.messages[-1]["content"])
            return super().size(request)

    def use(session: Session, events: Any) -> None:
        for text in ("a", "ab"):
            session.size(Sizing([{"role": "user", "content": text}], {}, events.put))
        ask(session, events)

    assert sizes_of(Counting(Script()), use) == ["stop"]
    assert counted == []


def test_a_size_that_cannot_be_told_ends_nothing() -> None:
    """The question after it is answered."""

    class Failing(ScriptedEngine):
        def size(self, request: ChatRequest) -> PromptSize:
            if len(request.messages) > 1:
                raise ValueError("a bug")
            return PromptSize(7)

    def use(session: Session, events: Any) -> None:
        turns: Any = [{"role": "user", "content": "abc"}]

        def then_ask(size: PromptSize | None) -> None:
            events.put(size)
            ask(session, events)

        session.size(Sizing([*turns, *turns], {}, then_ask))

    assert sizes_of(Failing(Script()), use) == [None, "stop"]
