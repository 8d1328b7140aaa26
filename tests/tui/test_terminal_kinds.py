"""The chat in terminals of few colours or none, and with settings that cannot be written."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tui.test_terminal import Tmux, start

pytestmark = pytest.mark.slow

FOREGROUNDS = {*range(30, 38), *range(90, 98)}
BACKGROUNDS = {*range(40, 48), *range(100, 108)}
OTHER = {0, 1, 2, 3, 4, 7, 22, 23, 24, 27, 39, 49}
"""Bold, faint, italic, underlined and reversed text, the ends of these, the terminal's colours."""
PROGRAM = ["-m", "specchat", "--offline"]
IS_ROOT = os.name == "posix" and os.geteuid() == 0
LIKE_A_USER = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "env"]
"""Takes root's right to write anywhere from the program that follows."""


@pytest.fixture
def terminals() -> Iterator[list[Tmux]]:
    """Close the terminals of a test at its end."""
    opened: list[Tmux] = []
    yield opened
    for each in opened:
        each.close()


def ask_with_tints(terminal: Tmux) -> None:
    """Ask something, and show where the answer's tokens came from."""
    terminal.wait_for(lambda screen: "Ask anything" in screen)
    terminal.press("Write some code", "Enter")
    terminal.wait_for(lambda screen: " accepted" in screen and "· first token" in screen)
    terminal.press("F4")
    terminal.wait_for(lambda screen: "F4 hides" in screen)


def test_16_colours_are_enough(tmp_path: Path, terminals: list[Tmux]) -> None:
    """Only the terminal's own are used, and no text in the colour it stands on."""
    terminal = start(tmp_path, PROGRAM, "COLORTERM=", "TERM=xterm")
    terminals.append(terminal)
    ask_with_tints(terminal)
    for key, shown, hidden in (
        ("F4", "Ask anything", "F4 hides"),
        ("F8", "search", "Ask anything"),
        ("Escape", "Ask anything", "search"),  # a key sent before it is gone would be Alt+key
        ("F9", "Type", "Ask anything"),
    ):
        require_16_colours(terminal)
        terminal.press(key)
        terminal.wait_for(
            lambda screen, shown=shown, hidden=hidden: shown in screen and hidden not in screen  # type: ignore[misc]
        )
    require_16_colours(terminal)


def require_16_colours(terminal: Tmux) -> None:
    """Check each piece of the screen."""
    front, back = 39, 49
    for numbers in terminal.styles():
        assert set(numbers) <= FOREGROUNDS | BACKGROUNDS | OTHER
        for number in numbers:
            front = 39 if number == 0 else number if number in FOREGROUNDS | {39} else front
            back = 49 if number == 0 else number if number in BACKGROUNDS | {49} else back
        assert front + 10 != back or back == 49


def test_no_color_leaves_greys(tmp_path: Path, terminals: list[Tmux]) -> None:
    """Origins of tokens differ by marks, and nothing is coloured."""
    terminal = start(tmp_path, PROGRAM, "NO_COLOR=1", "TERM=xterm-256color", "COLORTERM=truecolor")
    terminals.append(terminal)
    ask_with_tints(terminal)

    greys = [numbers[-3:] for numbers in terminal.styles() if len(numbers) >= 5]
    others = {numbers[0] for numbers in terminal.styles() if len(numbers) < 5}
    assert greys
    assert all(len(set(colour)) == 1 for colour in greys)
    assert not others & (FOREGROUNDS | BACKGROUNDS)
    assert 4 in others


@pytest.mark.skipif(IS_ROOT and shutil.which("setpriv") is None, reason="root may write anywhere")
def test_settings_that_cannot_be_written_cost_nothing(
    tmp_path: Path, terminals: list[Tmux]
) -> None:
    """The chat answers, says so in a line, and keeps the old value."""
    folder = tmp_path / "xdg_config_home" / "specchat"
    folder.mkdir(parents=True)
    folder.chmod(0o555)
    terminal = start(tmp_path, PROGRAM, *(LIKE_A_USER if IS_ROOT else ()))
    terminals.append(terminal)
    terminal.wait_for(lambda screen: "Ask anything" in screen)
    terminal.press("F9")
    terminal.wait_for(lambda screen: "Type to search" in screen)
    terminal.press("temperature")
    terminal.wait_for(lambda screen: "Context size" not in screen)
    terminal.press("Enter")
    terminal.wait_for(lambda screen: "leave empty for the default" in screen)
    terminal.press("1")
    terminal.wait_for(lambda screen: "0.81" in screen)
    terminal.press("Enter")
    # the notice's lines are broken anywhere, and other words stand beside them
    said = terminal.wait_for(lambda screen: "denied" in screen and "Settings in" in screen)
    assert "cannot" in said
    assert re.search(r"Temperature +0\.8 ", said)
    terminal.press("Escape")
    terminal.wait_for(lambda screen: "Settings in" not in screen)
    terminal.press("hi", "Enter")
    terminal.wait_for(lambda screen: "tokens/s" in screen)
    terminal.press("C-q")
    assert "ended with 0" in terminal.wait_for(lambda screen: "ended with" in screen)
    assert list(folder.iterdir()) == []
