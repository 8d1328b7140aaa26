"""The real model in an engine, and llama.cpp's own tools as its reference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specchat.engine import pair_pacing
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine

RECORDING = Path(__file__).with_name("llama_server.json")
MOST_SECONDS = 0.1
"""How long passes are measured when the model is loaded: these tests are not about speed."""


@pytest.fixture(scope="session")
def reference() -> dict[str, Any]:
    """What llama-server and llama-tokenize made of texts and conversations, as recorded."""
    recorded: dict[str, Any] = json.loads(RECORDING.read_text("utf-8"))
    return recorded


@pytest.fixture(scope="session")
def shared_engine(smollm2: Path) -> Iterator[LocalEngine]:
    """The engine of all tests that run in this process."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pair_pacing, "MOST_SECONDS", MOST_SECONDS)
        loaded = LocalEngine(Loading(smollm2, ctx=2048, threads=1, learn=False))
    with loaded:
        yield loaded


@pytest.fixture(autouse=True)
def _short_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_pacing, "MOST_SECONDS", MOST_SECONDS)


@pytest.fixture
def engine(shared_engine: LocalEngine) -> LocalEngine:
    """The shared engine without the text of the test before."""
    shared_engine.forget()
    return shared_engine
