"""How often the screen follows an answer: often where the engine leaves processors to it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scripted_chat import FACTS, Script, ScriptedEngine, chat
from specchat.tui import answering
from specchat.tui.answering import LEAST_INTERVAL, MOST_INTERVAL, Tempo
from tui.driving import until

ROOT = Path(__file__).parents[2]
PERIOD = "import specchat.tui.app, textual.screen as screen; print(screen.UPDATE_PERIOD)"


@pytest.mark.parametrize(("chosen", "expected"), [({}, 120), ({"TEXTUAL_FPS": "30"}, 30)])
def test_keys_show_soon(chosen: dict[str, str], expected: int) -> None:
    """Textual updates the screen often, unless the user chose otherwise."""
    environment = {name: value for name, value in os.environ.items() if name != "TEXTUAL_FPS"}
    told = subprocess.check_output(
        [sys.executable, "-c", PERIOD], env=environment | chosen, cwd=ROOT, text=True
    )
    assert float(told) == pytest.approx(1 / expected)


class Clock:
    """Time that passes when it is told to, of which the screen takes a share."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take the place of both clocks."""
        self.now = self.used = 0.0
        monkeypatch.setattr(answering, "perf_counter", lambda: self.now)
        monkeypatch.setattr(answering, "process_time", lambda: self.used)

    def run(self, tempo: Tempo, used_by_update: float, seconds: float) -> None:
        """Let updates follow each other as the tempo says."""
        end = self.now + seconds
        while self.now < end:
            interval = tempo.adapt()
            self.now += interval
            self.used += used_by_update


@pytest.mark.parametrize(
    ("has_room", "used_by_update", "least", "most"),
    [
        (True, 0.004, LEAST_INTERVAL, LEAST_INTERVAL),
        (True, 0.030, 0.07, 0.15),
        (False, 0.004, 0.12, 0.30),
        (False, 0.030, MOST_INTERVAL, MOST_INTERVAL),
    ],
)
def test_the_screen_takes_no_more_than_its_share(
    monkeypatch: pytest.MonkeyPatch,
    has_room: bool,
    used_by_update: float,
    least: float,
    most: float,
) -> None:
    """Of a core it may have 30 %, or 2 % where the engine has all of them."""
    clock = Clock(monkeypatch)
    tempo = Tempo(has_room)
    clock.run(tempo, used_by_update, 60.0)
    assert least <= tempo.interval <= most


@pytest.mark.parametrize("has_room", [True, False])
def test_figures_follow_more_slowly_than_the_text(
    monkeypatch: pytest.MonkeyPatch, has_room: bool
) -> None:
    """Twice a second, or once where the engine has all cores."""
    clock = Clock(monkeypatch)
    tempo = Tempo(has_room)
    shown = 0
    for _ in range(100):
        clock.now += 0.125
        shown += tempo.is_time_for_figures()
    assert shown == (25 if has_room else 12)


@pytest.mark.anyio
@pytest.mark.parametrize(("num_idle", "interval"), [(0, MOST_INTERVAL), (1, LEAST_INTERVAL)])
async def test_the_engine_says_whether_there_is_room(
    monkeypatch: pytest.MonkeyPatch, num_idle: int, interval: float
) -> None:
    """Once it is loaded; a GPU leaves nearly all."""
    begin = ScriptedEngine.__init__

    def with_room(engine: ScriptedEngine, script: Script) -> None:
        begin(engine, script)
        engine.facts = replace(FACTS, idle_processors=num_idle)

    monkeypatch.setattr(ScriptedEngine, "__init__", with_room)
    app = chat(Script(["An answer"]))
    async with app.run_test() as pilot:
        await until(pilot, lambda: app._capacity > 0)
        assert app._session is not None
        assert app._session.interval == interval
