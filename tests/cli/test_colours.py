"""NO_COLOR and its relatives hold for every command that prints colours."""

from __future__ import annotations

import io

import pytest

from in_process import on_terminal_here, run_here
from specchat.cli.terminal import has_colours

NAMES = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR", "TERM")


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@pytest.mark.parametrize(
    ("environment", "on_a_terminal", "piped"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"CLICOLOR_FORCE": "1"}, True, True),
        ({"CLICOLOR": "0"}, False, False),
        ({"CLICOLOR": "1"}, True, False),
        ({"CLICOLOR": "0", "FORCE_COLOR": "1"}, True, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
        ({"TERM": "dumb"}, False, False),
    ],
    ids=str,
)
def test_the_variables_that_others_know_decide(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    on_a_terminal: bool,
    piped: bool,
) -> None:
    """NO_COLOR is the strongest, then what forces colours."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert has_colours(Terminal()) == on_a_terminal
    assert has_colours(io.StringIO()) == piped


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [["doctor", "--offline"], ["help", "glossary"], ["list"], ["--help"], ["ask", "--nonsense"]],
    ids=" ".join,
)
def test_no_command_prints_colours_without_leave(words: list[str]) -> None:
    """On a terminal with NO_COLOR; lines of progress may be cleared."""
    shown = on_terminal_here(words, NO_COLOR="1", PAGER="cat")
    colours = [*range(30, 38), *range(40, 48), *range(90, 98), *range(100, 108)]
    for part in shown.split("\x1b[")[1:]:
        numbers, _, rest = part.partition("m")
        if rest and numbers.replace(";", "").isdigit():
            assert not set(map(int, numbers.split(";"))) & set(colours)


@pytest.mark.slow
def test_a_dumb_terminal_gets_no_escape_codes() -> None:
    """Neither colours nor lines of progress that are replaced."""
    assert "\x1b" not in on_terminal_here(["doctor", "--offline"], TERM="dumb")


@pytest.mark.slow
def test_colours_can_be_forced_into_a_pipe() -> None:
    """For `less -R` and logs that show them."""
    done = run_here("doctor", "--offline", FORCE_COLOR="1")
    assert b"\x1b[32m" in done.stdout
