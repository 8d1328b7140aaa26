"""The events that the engine's thread sends to the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from scripted_chat import Script, ScriptedEngine
from specchat.chat.conversation import ChatMessage
from specchat.decoding.chunk import Chunk
from specchat.engine.api import EngineFacts, Loading, ProgressCallback, Stage
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

    def lost(self, reason: str) -> None:
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


def ask(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[float]:
    """Return the progress reports of two prompts whose fifths take `seconds` each."""
    engine = Reading(Script(["An answer"]))
    engine.seconds = seconds
    monkeypatch.setattr(session, "monotonic", lambda: engine.now)
    listener, ends = Listener(), SimpleQueue[tuple[object, ...]]()

    def post(act: Callable[..., object], *arguments: object) -> None:
        act(*arguments)

    asked = Session(Loading(Path("target.gguf")), listener, post, lambda *_: engine)
    for _ in range(2):
        turns: list[ChatMessage] = [{"role": "user", "content": "A question"}]
        asked.ask(Question(turns, {}, lambda: None, lambda *end: ends.put(end)))
        assert ends.get(timeout=10)[0] == "stop"
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
