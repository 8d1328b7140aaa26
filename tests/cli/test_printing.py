"""The output of all commands: tables, messages and questions."""

from __future__ import annotations

import io
import json

import pytest

from specchat.cli.terminal import confirm, print_json, say, table_lines
from specchat.errors import InvalidOption


class Terminal(io.StringIO):
    """Standard input as a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@pytest.mark.parametrize(
    ("typed", "default", "answer"),
    [
        ("y\n", False, True), ("YES\n", False, True), ("n\n", True, False), ("\n", False, False),
        ("\n", True, True), ("", True, False), ("", False, False), ("maybe\n", True, False),
    ],
)  # fmt: skip
def test_only_a_clear_yes_confirms(
    monkeypatch: pytest.MonkeyPatch, typed: str, default: bool, answer: bool
) -> None:
    """Enter takes the default; the end of the input is a no."""
    monkeypatch.setattr("sys.stdin", Terminal(typed))

    assert confirm("delete it?", otherwise="--yes deletes it", default=default) is answer


def test_a_question_without_a_terminal_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe cannot answer, so the error names the option that replaces the question."""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))

    with pytest.raises(InvalidOption, match="without a terminal: --yes deletes it"):
        confirm("delete it?", otherwise="--yes deletes it")


def test_columns_of_a_table_are_aligned() -> None:
    """The first column is left-aligned, others are right-aligned, and lines have no end spaces."""
    assert table_lines([("task", "t/s"), ("edit", "100.0"), ("summary", "9.5")]) == [
        "task       t/s",
        "edit     100.0",
        "summary    9.5",
    ]
    assert table_lines([("1", "a"), ("10", "")], left=(1,)) == [" 1  a", "10"]


def test_control_characters_never_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither in a message nor in a cell; both stay on one line."""
    say("a\x1b[2J\nb")

    assert capsys.readouterr().err == "a\ufffd[2J b\n"
    assert table_lines([("\x1b[2J\nb",)]) == ["\ufffd[2J b"]


def test_json_keeps_a_text_and_a_terminal_safe(capsys: pytest.CaptureFixture[str]) -> None:
    """What a terminal would obey is escaped, also what JSON itself would leave as it is."""
    text = "naïve \x1b[2J \x9b2J \x7f \u202e 🦙 \ud800"
    print_json({"text": text})
    shown = capsys.readouterr().out
    assert json.loads(shown)["text"] == text
    assert not set(shown.rstrip("\n")) & set("\x1b\x9b\x7f\u202e\ud800")
    assert "naïve" in shown
