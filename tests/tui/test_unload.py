"""Freeing the models' memory, by /unload or after some idle minutes, and loading them again."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil
import pytest
from textual.pilot import Pilot

from scripted_chat import Script, chat
from specchat.options.declarations import ChatOptions, ServerOptions
from specchat.tui.app import ChatApp
from specchat.tui.controllers import idle, pair_controller
from tui.driving import header_text, say, status, until
from tui.test_failing import demo_chat, engine_of

pytestmark = pytest.mark.anyio
SIZE = (110, 36)


class Clock:
    """The seconds that the idle timer and the pair see."""

    now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let a test say how late it is; the chat looks at the clock all the time."""
    found = Clock()
    monkeypatch.setattr(idle, "monotonic", found)
    monkeypatch.setattr(idle, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(pair_controller, "monotonic", found)
    return found


async def loaded(pilot: Pilot[None], app: ChatApp) -> None:
    """Wait until the pair is loaded."""
    await until(pilot, lambda: app.pair_controller.facts is not None)


def resident_bytes() -> int:
    """Return the memory of all processes that this one has started."""
    return sum(each.memory_info().rss for each in psutil.Process().children(recursive=True))


async def test_unloading_frees_the_memory_and_the_next_question_is_answered() -> None:
    """The engine's process is gone with all its memory; the conversation goes on."""
    app = demo_chat()
    async with app.run_test(size=SIZE) as pilot:
        await loaded(pilot, app)
        await say(pilot, "Count to three.")
        engine, before = engine_of(app), resident_bytes()
        pid = engine._process.pid or 0
        assert psutil.Process(pid).memory_info().rss > 50 << 20
        assert engine.held_bytes() > 20 << 20
        assert engine.held_bytes() < psutil.Process(pid).memory_info().rss
        await say(pilot, "/unload", wait=False)
        await until(pilot, lambda: not psutil.pid_exists(pid))
        assert engine.held_bytes() == 0
        assert resident_bytes() < before - (50 << 20)
        assert "demo · unloaded" in header_text(app)
        assert "The next question loads demo again." in status(app)
        await say(pilot, "And now?")
        assert app.conversations.branch[-1].finish == "stop"
        assert len(app.conversations.branch) == 4
        assert "unloaded" not in header_text(app)
        assert status(app) == ""
        assert engine_of(app)._process.pid != pid


@pytest.mark.slow
async def test_an_idle_pair_is_unloaded_once_its_minutes_are_over(clock: Clock) -> None:
    """Each question begins them anew; the next one loads the pair and sees the conversation."""
    script = Script(["one", "two", "three"])
    app = chat(script, chat=ChatOptions(unload_after=5))
    async with app.run_test(size=SIZE) as pilot:
        await loaded(pilot, app)
        await say(pilot, "First")
        clock.now += 290
        await say(pilot, "Second")
        clock.now += 290
        await pilot.pause(0.1)
        assert app.pair_controller.facts is not None
        clock.now += 20
        await until(pilot, lambda: script.num_closed == 1)
        assert "unloaded" in header_text(app)
        assert status(app).startswith("Unloaded after 5 min without a question.")
        await say(pilot, "Third")
        assert script.num_loads == 2
        assert [each["content"] for each in script.asked[-1][0]] == [
            "First", "one", "Second", "two", "Third",
        ]  # fmt: skip


@pytest.mark.slow
async def test_a_long_answer_is_not_idle(clock: Clock) -> None:
    """The minutes begin when it ends."""
    script = Script(["one two three four"], hold=threading.Event())
    app = chat(script, chat=ChatOptions(unload_after=5))
    async with app.run_test(size=SIZE) as pilot:
        await loaded(pilot, app)
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: bool(script.asked))
        clock.now += 3000
        await pilot.pause(0.1)
        assert script.num_closed == 0
        script.hold.set()  # type: ignore[union-attr]
        await until(pilot, lambda: app.answers.current is None)
        await pilot.pause(0.1)
        assert script.num_closed == 0
        clock.now += 301
        await until(pilot, lambda: script.num_closed == 1)


@pytest.mark.slow
async def test_a_served_pair_is_not_idle(clock: Clock) -> None:
    """Other programs use it; the minutes begin when the port is closed."""
    script = Script(["one"])
    app = chat(script, chat=ChatOptions(unload_after=5), server=ServerOptions(port=0))
    async with app.run_test(size=SIZE) as pilot:
        await loaded(pilot, app)
        await say(pilot, "/serve", wait=False)
        await until(pilot, lambda: app.state.serving.is_open)
        clock.now += 3000
        await pilot.pause(0.1)
        await say(pilot, "/serve", wait=False)
        await until(pilot, lambda: not app.state.serving.is_open)
        await pilot.pause(0.1)
        assert script.num_closed == 0
        clock.now += 301
        await until(pilot, lambda: script.num_closed == 1)


@pytest.mark.slow
async def test_a_chat_keeps_its_model_until_the_setting_says_otherwise(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default nothing is unloaded; a change in the settings counts at once."""
    (tmp_path / "config.toml").touch()
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config.toml"))
    script = Script()
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await loaded(pilot, app)
        clock.now += 1e6
        await pilot.pause(0.1)
        assert script.num_closed == 0
        app.state.idle.minutes = 5
        await until(pilot, lambda: script.num_closed == 1)


@pytest.mark.slow
async def test_what_needs_the_model_loads_it_again() -> None:
    """What cannot wait for it says so, and it is there for the next try."""
    script = Script(["one"], thinking=("on", "off"))
    app = chat(script)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await loaded(pilot, app)
        await say(pilot, "/unload", wait=False)
        await until(pilot, lambda: script.num_closed == 1)
        await say(pilot, "/think off", wait=False)
        await loaded(pilot, app)
        await say(pilot, "/think off", wait=False)
        await until(pilot, lambda: app.state.options.thinking == "off")


@pytest.mark.slow
async def test_unloading_waits_for_no_answer_and_says_when_there_is_nothing() -> None:
    """An answer is never cut off by it."""
    script = Script(["one two three four"], hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await loaded(pilot, app)
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: bool(script.asked))
        await say(pilot, "/unload", wait=False)
        await pilot.pause()
        assert script.num_closed == 0
        script.hold.set()  # type: ignore[union-attr]
        await until(pilot, lambda: app.answers.current is None)
        await say(pilot, "/unload", wait=False)
        await until(pilot, lambda: script.num_closed == 1)
        await say(pilot, "/unload", wait=False)
        await until(pilot, lambda: any("No model" in each.message for each in app._notifications))
