"""The events that the engine's thread sends to the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from time import sleep
from typing import Any

import pytest

from scripted_chat import Script, ScriptedEngine
from specchat.decoding.chunk import Chunk
from specchat.engine.api import EngineFacts, Loading
from specchat.errors import SpecchatError
from specchat.formats.chat_message import ChatMessage
from specchat.requests.progress import ProgressCallback, Stage
from specchat.sharing import shared_engine
from specchat.tui.controllers import session
from specchat.tui.controllers.session import Question, Session


class Listener:
    """Remembers the progress that is reported."""

    def __init__(self) -> None:
        """Start without any."""
        self.shares: list[float] = []

    def progressed(self, stage: Stage, share: float) -> None:
        """Remember how far a prompt is."""
        self.shares.append(share)

    def loaded(self, facts: EngineFacts) -> None:
        """Nothing to remember."""

    def measured(self, facts: EngineFacts) -> None:
        """Nothing to remember."""

    def lost(self, error: SpecchatError) -> None:
        """Nothing to remember."""


class Reading(ScriptedEngine):
    """Takes some seconds for each fifth of a prompt, by a clock of its own."""

    now = 100.0
    seconds = 0.0

    def chat(
        self,
        messages: Sequence[Any],
        *,
        on_progress: ProgressCallback | None = None,
        **options: Any,
    ) -> Iterator[Chunk]:
        """Read the prompt, then answer."""
        for fifth in range(1, 6):
            self.now += self.seconds
            assert on_progress is not None
            on_progress("prompt", fifth / 5)
        return super().chat(messages, on_progress=on_progress, **options)


def post(act: Callable[..., object], *arguments: object) -> None:
    """Call at once, on the engine's thread, what the chat would call on its own."""
    act(*arguments)


def send(session: Session, listener: Listener, *, measures_first: bool = False) -> SimpleQueue[str]:
    """Ask a question; return a queue that gets how its answer ends."""
    ends = SimpleQueue[str]()

    def take() -> None:
        update = question.take(listener.progressed)
        if update.is_over:
            ends.put(update.finish or str(update.error))

    turns: list[ChatMessage] = [{"role": "user", "content": "A question"}]
    question = Question(turns, {}, take, measures_first=measures_first)
    session.ask(question)
    return ends


def ask(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[float]:
    """Return the progress reports of two prompts whose fifths take `seconds` each."""
    engine = Reading(Script(["An answer"]))
    engine.seconds = seconds
    monkeypatch.setattr(session, "monotonic", lambda: engine.now)
    listener = Listener()
    asked = Session(Loading(Path("target.gguf")), listener, post, lambda *_: engine)
    for _ in range(2):
        assert send(asked, listener).get(timeout=60) == "stop"
    asked.close()
    asked.wait(5)
    return listener.shares


def test_a_prompt_that_is_read_at_once_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress would only flicker, and drawing it takes time from the engine."""
    assert ask(monkeypatch, 0.05) == []


def test_the_progress_of_a_long_prompt_is_reported_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reports start after a moment, again for each answer."""
    assert ask(monkeypatch, 0.2) == [0.4, 0.6, 0.8, 1.0] * 2


class Unmeasured(ScriptedEngine):
    """Measures until it is told to stop, or until it was asked three times."""

    num_asked = 0

    def prepare(
        self, on_progress: ProgressCallback | None = None, *, only_exactness: bool = False
    ) -> bool:
        """Wait for a question the first two times."""
        assert not only_exactness
        self.num_asked += 1
        assert on_progress is not None
        while self.num_asked < 3:
            if on_progress("measuring", 0.5) is False:
                return False
        self.facts = replace(self.facts, exact_draft=6)
        return True


def test_an_idle_session_measures_until_a_question_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on once it is idle again, and the facts that it found are reported."""
    monkeypatch.setattr(shared_engine, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(shared_engine, "SECONDS_TO_MEASURE", 0.02)
    engine, facts = Unmeasured(Script(["An answer"])), SimpleQueue[EngineFacts]()
    listener = Listener()
    monkeypatch.setattr(listener, "measured", facts.put)
    asked = Session(Loading(Path("target.gguf")), listener, post, lambda *_: engine)
    for number in (1, 2):
        while engine.num_asked < number:
            sleep(0.001)
        assert send(asked, listener).get(timeout=60) == "stop"
        assert facts.empty()
    assert facts.get(timeout=60).exact_draft == 6
    asked.close()
    asked.wait(5)


def test_a_question_may_wait_for_the_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A race needs it; its progress is shown, and stopping the question stops it."""
    monkeypatch.setattr(shared_engine, "SECONDS_TO_MEASURE", 1e9)
    engine = Unmeasured(Script(["An answer"]))
    engine.num_asked = 2
    listener = Listener()
    asked = Session(Loading(Path("target.gguf")), listener, post, lambda *_: engine)
    assert send(asked, listener, measures_first=True).get(timeout=60) == "stop"
    assert engine.num_asked == 3

    engine.num_asked = 0
    ends = send(asked, listener, measures_first=True)
    while engine.num_asked < 1:
        sleep(0.001)
    asked.stop()
    assert ends.get(timeout=60) == "cancelled"
    assert listener.shares[-1] == 0.5
    asked.close()
    asked.wait(5)
