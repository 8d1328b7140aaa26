"""The chat on the demo pair, in a real terminal."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.slow


class Tmux:
    """A terminal of 110 x 32 that is typed to and read from."""

    def __init__(self, socket: Path, command: list[str]) -> None:
        """Start a program in it, or skip the test where there is no tmux."""
        if shutil.which("tmux") is None:
            pytest.skip("there is no tmux")
        self._socket = socket
        line = f"{shlex.join(command)}; echo ended with $?; sleep 100"
        self._do("new-session", "-d", "-x", "110", "-y", "32", line)

    def press(self, *keys: str) -> None:
        """Press keys."""
        self._do("send-keys", *keys)

    def screen(self) -> str:
        """Return what is on it."""
        return self._do("capture-pane", "-p")

    def wait_for(self, holds: Callable[[str], bool]) -> str:
        """Wait until the screen is as it should be."""
        screen = ""
        for _ in range(600):
            screen = self.screen()
            if holds(screen):
                return screen
            time.sleep(0.1)
        pytest.fail(f"the screen never showed it:\n{screen}")

    def settle(self) -> str:
        """Wait until the screen has not changed for a moment, and return it."""
        screen, since = "", 0
        while since < 3:
            time.sleep(0.1)
            before, screen = screen, self.screen()
            since = since + 1 if screen == before else 0
        return screen

    def record(self, path: Path) -> None:
        """Write everything that the program sends from now on to a file."""
        self._do("pipe-pane", f"cat > {shlex.quote(str(path))}")

    def styles(self) -> list[list[int]]:
        """Return the style of each piece of the screen, as a terminal is sent it: SGR numbers."""
        sent = self._do("capture-pane", "-p", "-e")
        found = re.findall(r"\x1b\[([\d;:]*)m", sent)
        return [[int(each or 0) for each in re.split("[;:]", numbers)] for numbers in found]

    def ask(self, form: str) -> str:
        """Return what tmux knows of the terminal."""
        return self._do("display-message", "-p", form).strip()

    def close(self) -> None:
        """End the terminal and what runs in it."""
        self._do("kill-server")

    def _do(self, *words: str) -> str:
        command = ["tmux", "-S", str(self._socket), "-f", "/dev/null", *words]
        # The size is the terminal's own: readline, which pytest loads, puts that of another one
        # where os.environ does not show it, and test runners put theirs into os.environ.
        size = {"LINES", "COLUMNS"}
        environment = {name: value for name, value in os.environ.items() if name not in size}
        return subprocess.run(
            command, capture_output=True, check=False, text=True, env=environment
        ).stdout


def start(tmp_path: Path, program: list[str], *variables: str) -> Tmux:
    """Run the chat on the demo pair in a terminal, with more variables of the environment."""
    folders = ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
    environment = [f"{name}={tmp_path / name.lower()}" for name in folders]
    path = os.pathsep.join([str(ROOT), *sys.path])
    command = [
        "env", *environment, *variables, f"PYTHONPATH={path}", sys.executable, *program,
        "--temperature", "0", "--max-tokens", "80", "--threads", "1", "--draft-length", "3",
    ]  # fmt: skip
    return Tmux(tmp_path / "tmux", command)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Tmux]:
    """Run the chat."""
    tmux = start(tmp_path, ["-m", "specchat"])
    yield tmux
    tmux.close()


def test_the_chat_answers_in_a_real_terminal(terminal: Tmux) -> None:
    """A question is asked and answered, the figures show, and leaving gives the terminal back."""
    terminal.wait_for(lambda screen: "Ask anything" in screen)
    terminal.press("What is speculative decoding?", "Enter")
    expected = ("tokens · first token", "tokens/s ", " accepted")
    terminal.wait_for(lambda screen: all(words in screen for words in expected))

    terminal.press("C-q")
    ended = terminal.wait_for(lambda screen: "ended with" in screen)
    assert "ended with 0" in ended
    assert "Traceback" not in ended


def test_leaving_while_it_loads_is_clean(terminal: Tmux) -> None:
    """Ctrl+Q at once ends everything without a word."""
    terminal.wait_for(lambda screen: "Ask anything" in screen)
    terminal.press("C-q")
    assert "ended with 0" in terminal.wait_for(lambda screen: "ended with" in screen)


def test_a_failure_is_one_line_in_the_end(tmp_path: Path) -> None:
    """No traceback, but the log's name and an exit code."""
    broken = """
from specchat.cli import main
from specchat.tui.actions import chat_actions
class Broken(chat_actions.ChatActions):
    def __init__(self, *given):
        super().__init__(*given)
        self.calls = {"models": lambda: 1 / 0}
chat_actions.ChatActions = Broken
raise SystemExit(main())
"""
    terminal = start(tmp_path, ["-c", broken])
    try:
        terminal.wait_for(lambda screen: "Ask anything" in screen)
        terminal.press("F8")
        ended = terminal.wait_for(lambda screen: "ended with" in screen)
    finally:
        terminal.close()
    said = ended.replace("\n", "").strip()
    expected = "specchat: internal error (please report): ZeroDivisionError: division by zero;"
    assert said.startswith(expected)
    assert "chat.log" in said
    assert said.endswith("ended with 1")


def test_an_editor_gets_the_terminal_and_gives_it_back(tmp_path: Path) -> None:
    """It reads keys and Ctrl+C itself; afterwards the chat is drawn with the text in it."""
    script = tmp_path / "editor.sh"
    script.write_text(
        "trap 'echo interrupted' INT; clear; echo the editor; read line; read line;"
        ' echo "$line" >> "$2"\n'
    )
    terminal = start(tmp_path, ["-m", "specchat"], f"VISUAL=sh {script} --wait")
    try:
        terminal.wait_for(lambda screen: "Ask anything" in screen)
        terminal.press("first", "C-e")
        terminal.wait_for(lambda screen: screen.startswith("the editor"))
        terminal.press("C-c")
        terminal.wait_for(lambda screen: "interrupted" in screen)
        terminal.press("Enter", "second", "Enter")
        terminal.wait_for(lambda screen: "│ second" in screen and "│ first" in screen)
        terminal.press("C-q")
        assert "ended with 0" in terminal.wait_for(lambda screen: "ended with" in screen)
    finally:
        terminal.close()
