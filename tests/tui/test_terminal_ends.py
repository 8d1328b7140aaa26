"""Answers that are ended half way, in a real terminal: stopped, and killed."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from conftest import WriteModel
from scripts.support.processes import still_running
from specchat.chat.draft import Draft, DraftFile
from specchat.chat.store import Store
from tui.test_terminal import ROOT, Tmux

pytestmark = pytest.mark.slow


@pytest.fixture
def terminal(tmp_path: Path, tiny: WriteModel) -> Iterator[Tmux]:
    """Run the chat in a terminal with a model that never ends an answer."""
    model = tiny("llama", context_length=65536, num_layers=8)
    folders = ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
    environment = [f"{name}={tmp_path / name.lower()}" for name in folders]
    path = os.pathsep.join([str(ROOT), *sys.path])
    command = [
        "env", *environment, "SPECCHAT_COLOUR_TOKENS=true", f"PYTHONPATH={path}",
        sys.executable, "-m", "specchat",
        "--target", str(model), "--drafter", "none", "--ctx", "65536", "--threads", "1",
    ]  # fmt: skip
    tmux = Tmux(
        tmp_path / "tmux", ["sh", "-c", f'echo $$ > {tmp_path / "pid"}; exec "$@"', "sh", *command]
    )
    yield tmux
    tmux.close()


def answer(folder: Path) -> str:
    """Return what is kept of the answer."""
    with Store(folder / "xdg_data_home" / "specchat" / "history.db") as store:
        (conversation,) = store.conversations()
        return store.tree(conversation.id).branch(conversation.leaf)[-1].text


def words(text: str) -> list[str]:
    """Return the model's words: it writes w and a number, between bytes that mean nothing."""
    return re.findall(r"\bw\d+\b", text)


def assert_is_kept(shown: str, folder: Path) -> None:
    """Ask that about as many words are kept as a screen showed.

    They are not the same ones: the screen breaks lines, and has no marks and control characters.
    """
    assert len(words(answer(folder))) > 0.7 * len(words(shown)) > 14


def wait_for_more(terminal: Tmux, folder: Path) -> None:
    """Wait until more of the answer is kept than now."""
    before = len(answer(folder))
    terminal.wait_for(lambda _: len(answer(folder)) > before)


def test_an_answer_is_stopped_by_escape(terminal: Tmux, tmp_path: Path) -> None:
    """What came is on the screen and in the store, and the next question is answered."""
    terminal.wait_for(lambda screen: "Ask anything" in screen)
    terminal.press("Go on and on", "Enter")
    shown = terminal.wait_for(lambda screen: len(words(screen)) > 20)
    terminal.press("Escape")
    terminal.wait_for(lambda screen: "stopped" in screen)
    assert_is_kept(shown, tmp_path)
    terminal.press("C-q")
    assert "ended with 0" in terminal.wait_for(lambda screen: "ended with" in screen)


def test_a_killed_chat_loses_no_more_than_the_last_second(terminal: Tmux, tmp_path: Path) -> None:
    """What was on the screen a second before kill -9 is in the store."""
    terminal.wait_for(lambda screen: "Ask anything" in screen)
    terminal.press("Go on and on", "Enter")
    shown = terminal.wait_for(lambda screen: len(words(screen)) > 20)
    for _ in range(2):  # it is written twice a second
        wait_for_more(terminal, tmp_path)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    terminal.wait_for(lambda screen: "ended with 137" in screen)
    assert_is_kept(shown, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_what_was_not_sent_is_there_again(
    terminal: Tmux, tmp_path: Path, number: signal.Signals
) -> None:
    """Also after kill -9, and when the window is closed; another chat meanwhile has its own."""
    terminal.wait_for(lambda screen: "Ask anything" in screen)
    terminal.press("What was typed before the end")
    kept = tmp_path / "xdg_data_home" / "specchat" / "draft.json"
    terminal.wait_for(lambda _: kept.exists() and "before the end" in kept.read_text())
    other = DraftFile(kept.with_name("history.db"))
    assert other.take() == Draft()
    other.keep(Draft("Another chat's"))
    other.close()
    os.kill(int((tmp_path / "pid").read_text()), number)
    terminal.wait_for(lambda screen: "ended with" in screen)
    again = DraftFile(kept.with_name("history.db"))
    assert again.take() == Draft("What was typed before the end")
    again.close()


def test_a_chat_ended_by_a_signal_gives_the_terminal_back(terminal: Tmux, tmp_path: Path) -> None:
    """SIGTERM stores the answer, ends the engine, and leaves no alternate screen and no mouse."""
    terminal.wait_for(lambda screen: "Ask anything" in screen)
    terminal.press("Go on and on", "Enter")
    shown = terminal.wait_for(lambda screen: len(words(screen)) > 20)
    process = psutil.Process(int((tmp_path / "pid").read_text()))
    children = process.children(recursive=True)
    os.kill(process.pid, signal.SIGTERM)
    terminal.wait_for(lambda screen: "ended with 143" in screen)
    assert terminal.ask("#{alternate_on} #{mouse_any_flag}") == "0 0"
    assert_is_kept(shown, tmp_path)
    assert still_running(children, timeout_s=30) == []
