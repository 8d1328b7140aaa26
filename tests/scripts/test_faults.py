"""Faults injected at random moments, in short; scripts/check/inject_faults.py plays hundreds."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("faults are injected with Linux's means", allow_module_level=True)

from scripts.support.chat_terminal import Failed
from scripts.support.faults import chat_faults, engine_faults, rounds, store_faults

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(demo_state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the state of a user whose demo pair is measured."""
    folder = tmp_path / "round"
    shutil.copytree(demo_state, folder / "state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    return folder


@pytest.mark.parametrize("name", store_faults.FAULTS)
def test_the_history_survives(name: str, tmp_path: Path) -> None:
    """What was stored stays, whatever happens to the writer, the disk or the file."""
    store_faults.play(name, tmp_path / "round", random.Random())


@pytest.mark.parametrize("name", engine_faults.FAULTS)
def test_the_library_survives_its_engine(name: str, folder: Path) -> None:
    """The error names the signal, no process is left, and the next engine answers alike."""
    engine_faults.play(name, folder, random.Random())


@pytest.mark.parametrize("name", ["chat: SIGKILL"])
def test_the_history_survives_the_chat(name: str, folder: Path) -> None:
    """Killed at a random moment in a real terminal, it leaves the history and nothing else."""
    chat_faults.play(name, folder, random.Random())


def test_a_fault_that_does_harm_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The table shows it, and the rounds do not all hold."""

    def fail(*_: object) -> str:
        raise Failed("stored text is lost")

    monkeypatch.setattr(store_faults, "play", fail)
    monkeypatch.setattr(chat_faults, "play", fail)
    monkeypatch.setattr(engine_faults, "play", lambda *_: "went on")
    tallies = rounds.run(20, seed=1)
    assert not rounds.all_held(tallies)
    assert "| history: power cut | 3 | 0 | |" in rounds.table(tallies).replace("|  |", "| |")
