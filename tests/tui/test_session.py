"""What the engine's thread reports to the screen."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from scripted_chat import Script, ScriptedEngine
from specchat.decoding.chunk import Chunk
from specchat.engine.api import Loading, ProgressCallback
from specchat.tui.controllers import session
from specchat.tui.controllers.session import Session
from specchat.tui.events import AnswerEnded, EngineProgressed


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
    """Return the reported progress of two prompts whose fifths take some seconds each."""
    engine = Reading(Script(["An answer"]))
    engine.seconds = seconds
    monkeypatch.setattr(session, "monotonic", lambda: engine.now)
    reports: list[Any] = []
    asked = Session(Loading(Path("target.gguf")), reports.append, lambda *_: engine)
    for number in (1, 2):
        asked.ask(number, [{"role": "user", "content": "A question"}], {})
        deadline = time.monotonic() + 10
        while sum(isinstance(each, AnswerEnded) for each in reports) < number:
            assert time.monotonic() < deadline
            time.sleep(0.005)
    asked.close()
    asked.wait(5)
    return [each.share for each in reports if isinstance(each, EngineProgressed)]


def test_the_progress_of_a_short_prompt_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would flicker by, and drawing it takes time from the engine."""
    assert ask(monkeypatch, 0.05) == []


def test_the_progress_of_a_long_prompt_is_reported_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once it has taken a moment, of every answer anew."""
    assert ask(monkeypatch, 0.2) == [0.4, 0.6, 0.8, 1.0] * 2
