"""`specchat help`: the documentation in the terminal."""

from __future__ import annotations

import re
import sys

import pytest

from specchat.cli import main
from specchat.docs import read, topics
from tables import table

STYLE = re.compile(r"\x1b\[[\d;]*m")


def test_it_lists_the_topics(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a topic each one is named with its title."""
    assert main(["help"]) == 0
    shown = capsys.readouterr().out
    for name, title in topics().items():
        assert re.search(rf"^  {name} +{re.escape(title)}$", shown, re.MULTILINE)


@table("topic", topics())
def test_a_pipe_gets_the_page_as_it_is(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Markdown is plain text; the comments that mark what tests check are left out."""
    assert main(["help", topic]) == 0
    shown = capsys.readouterr().out
    assert shown == read(topic)
    assert shown.startswith(f"# {topics()[topic]}\n")
    assert "<!--" not in shown


def test_a_terminal_gets_a_page_that_reads_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headings and tables are drawn, lines fit, and links name the command to follow them."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PAGER", "cat")
    monkeypatch.setattr("pydoc.pager", lambda page: print(page, end=""))
    assert main(["help", "speculation"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b[1m" in shown
    lines = [STYLE.sub("", line).rstrip() for line in shown.splitlines()]
    assert max(map(len, lines)) <= 80
    assert not any(line.startswith(("## ", "| ")) for line in lines)


def test_the_name_of_a_command_shows_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    """Some people will write `specchat help ask` instead of `specchat ask --help`."""
    assert main(["help", "ask"]) == 0
    assert "--temperature" in capsys.readouterr().out


def test_an_unknown_topic_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The error suggests the nearest topic and lists all of them."""
    assert main(["help", "modles"]) == 2
    shown = capsys.readouterr().err
    assert "did you mean models?" in shown
    assert all(name in shown for name in topics())
    assert shown.count("\n") == 1
