"""Fixtures shared by the tests of the chat."""

from __future__ import annotations

import pytest
from textual.css.model import RuleSet

RuleSet.__hash__ = object.__hash__  # type: ignore[method-assign]
"""By identity, as Textual's, but not in Python: a tenth of the time of an app's first frame."""


@pytest.fixture
def anyio_backend() -> str:
    """Run coroutines as Textual does."""
    return "asyncio"


@pytest.fixture
def short_races(monkeypatch: pytest.MonkeyPatch) -> None:
    """Believe races of a few steps: scripted engines take the same time for each."""
    monkeypatch.setattr("specchat.decoding.step_times.MIN_SECONDS", 0.0)
    monkeypatch.setattr("specchat.decoding.step_times.MIN_STEPS", 1)
