"""Fixtures shared by the tests of the chat."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Run coroutines as Textual does."""
    return "asyncio"


@pytest.fixture
def short_races(monkeypatch: pytest.MonkeyPatch) -> None:
    """Believe races of a few steps: scripted engines take the same time for each."""
    monkeypatch.setattr("specchat.decoding.step_times.MIN_SECONDS", 0.0)
