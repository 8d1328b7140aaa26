"""What is left when something fails: the chat itself, or an engine that hangs."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from scripted_chat import Script, chat
from scripts.support.processes import is_running
from specchat.catalogue.catalogue_file import DEMO
from specchat.catalogue.pairs import find_pair
from specchat.engine.api import Loading
from specchat.errors import SettingsError
from specchat.sharing import shared_engine
from specchat.sharing.process_engine import ProcessEngine
from specchat.system.logs import log_path
from specchat.tui.app import ChatApp
from specchat.tui.controllers import answers
from specchat.tui.setup import PairChoice, Setup
from tui.driving import PATIENCE, say, screen_text, status, until

pytestmark = pytest.mark.anyio
unix_only = pytest.mark.skipif(sys.platform == "win32", reason="a process is halted otherwise")


def demo_chat() -> ChatApp:
    """Return the chat with the demo pair in a process of its own."""
    pair = find_pair(DEMO)
    loading = Loading(pair.target, pair.draft, threads=1)
    return ChatApp(Setup(PairChoice("demo", "", loading, {"max_tokens": 4000}), list, None))


def engine_of(app: ChatApp) -> ProcessEngine:
    """Return the engine that is loaded."""
    assert app.pair_controller.session is not None
    engine = app.pair_controller.session.engine._owned._engine
    assert isinstance(engine, ProcessEngine)
    return engine


async def test_a_failure_of_the_chat_is_one_line_and_a_log() -> None:
    """The line names the log, and the log says where it failed."""
    app = chat(Script())

    def fail() -> None:
        raise ZeroDivisionError("[/b] by \x1bnothing")

    async def run() -> None:
        async with app.run_test() as pilot:
            app.call_later(fail)
            await pilot.pause(1)

    with pytest.raises(ZeroDivisionError):
        await run()

    log = log_path("chat.log")
    assert app.failure == (
        "internal error (please report): ZeroDivisionError: [/b] by \ufffdnothing;"
        f" details in {log}"
    )
    assert app.return_code == 1
    assert "in fail\n" in log.read_text("utf-8")
    assert log.stat().st_mode & 0o077 == 0


@pytest.mark.slow
async def test_an_error_of_ours_in_a_worker_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is shown as a notification, as elsewhere."""

    async def fail() -> None:
        raise SettingsError("config.toml cannot be read")

    app = chat(Script())
    monkeypatch.setitem(app.actions.calls, "help", lambda: app.run_worker(fail()))
    async with app.run_test(notifications=True) as pilot:
        await pilot.press("f1")
        await until(pilot, lambda: len(app._notifications) == 1)
        assert [note.message for note in app._notifications] == ["config.toml cannot be read"]
    assert app.failure == ""


@pytest.mark.slow
@unix_only
async def test_an_engine_that_hangs_is_killed_and_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Esc names the key that restarts it; the question is kept, and the chat can be quit."""
    monkeypatch.setattr(shared_engine, "SECONDS_TO_END", 0.1)
    monkeypatch.setattr(answers, "SECONDS_TO_END", 0.1)
    app = demo_chat()
    async with app.run_test(size=(110, 36)) as pilot:
        await until(
            pilot,
            lambda: (
                app.pair_controller.session is not None and app.pair_controller.session.is_loaded
            ),
        )
        first = engine_of(app)
        os.kill(first._process.pid or 0, signal.SIGSTOP)
        await say(pilot, "Are you there?", wait=False)
        await until(pilot, lambda: app.answers.current is not None)
        await pilot.press("escape")
        await until(pilot, lambda: "Ctrl+R" in status(app))
        await pilot.press("ctrl+r")
        await until(
            pilot,
            lambda: (
                app.pair_controller.session is not None and app.pair_controller.session.is_loaded
            ),
        )
        second = engine_of(app)
        assert second is not first
        assert not first._process.is_alive()
        assert app.conversations.branch[-1].finish == "cancelled"
        os.kill(second._process.pid or 0, signal.SIGSTOP)
        monkeypatch.setattr("specchat.tui.app.SECONDS_TO_END", 0.1)
    second._process.join(PATIENCE)
    assert not second._process.is_alive()


@pytest.mark.slow
@unix_only
async def test_an_engine_that_hangs_while_it_loads_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Leaving does not wait for it."""
    started: list[int] = []

    def halt(process: object) -> None:
        from specchat.sharing.engine_process import start_process

        start_process(process)  # type: ignore[arg-type]
        started.append(process.pid)  # type: ignore[attr-defined]
        os.kill(started[0], signal.SIGSTOP)

    monkeypatch.setattr("specchat.sharing.process_link.start_process", halt)
    app = demo_chat()
    async with app.run_test(size=(110, 36)) as pilot:
        await until(pilot, lambda: bool(started))
    assert not is_running(started[0])


@pytest.mark.slow
@unix_only
async def test_an_engine_that_dies_while_idle_is_reported_and_started_again() -> None:
    """The status line says so at once, and the next question is answered."""
    app = demo_chat()
    async with app.run_test(size=(110, 36)) as pilot:
        await until(pilot, lambda: app.pair_controller.facts is not None)
        engine_of(app).kill()
        await until(pilot, lambda: "SIGKILL" in status(app))
        assert "The next question or Ctrl+R restarts the engine" in status(app)
        await say(pilot, "Are you there?")
        assert app.conversations.branch[-1].finish == "stop"


@pytest.mark.slow
@unix_only
async def test_an_engine_killed_for_memory_while_it_answers_is_started_again() -> None:
    """The answer says what is probable, the status line which key helps, and neither says both."""
    app = demo_chat()
    async with app.run_test(size=(110, 36)) as pilot:
        await until(pilot, lambda: app.pair_controller.facts is not None)
        engine = engine_of(app)
        os.kill(engine._process.pid or 0, signal.SIGSTOP)  # or it could answer before its end
        await say(pilot, "Are you there?", wait=False)
        await until(pilot, lambda: app.answers.current is not None)
        os.kill(engine._process.pid or 0, signal.SIGKILL)
        await until(pilot, lambda: "The next question or Ctrl+R restarts the engine" in status(app))
        await pilot.pause()
        shown = " ".join(screen_text(app).split())
        assert shown.count("probably because memory ran out") == 1
        assert shown.count("smaller --ctx or a smaller model") == 1
        await say(pilot, "And now?")
        assert app.conversations.branch[-1].finish == "stop"


@pytest.mark.slow
@unix_only
async def test_a_question_just_after_the_engine_died_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even before the death was noticed."""
    monkeypatch.setattr(shared_engine, "IDLE_SECONDS", 60.0)
    app = demo_chat()
    async with app.run_test(size=(110, 36)) as pilot:
        await until(pilot, lambda: app.pair_controller.facts is not None)
        engine = engine_of(app)
        engine.kill()
        engine._process.join(PATIENCE)
        await say(pilot, "Are you there?")
        assert app.conversations.branch[-1].finish == "stop"
