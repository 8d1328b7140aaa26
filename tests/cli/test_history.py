"""`specchat history`: list, search, show, export and delete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specchat.chat.draft import Draft, DraftFile
from specchat.chat.store import Store, default_path
from specchat.cli import main
from specchat.decoding.chunk import ToolCall
from tables import table


@pytest.fixture(autouse=True)
def conversation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Store a conversation whose answer contains an escape sequence."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with Store(default_path()) as store:
        begun = store.begin("Be brief.", "demo")
        question = store.add(begun.id, "user", "What is a <draft>?")
        answer = store.add(begun.id, "assistant", "", question.id)
        figures = {"decode_s": 2.0, "generated_tokens": 100, "drafted": 50, "accepted": 40}
        store.write(
            answer.id,
            "\x1b[31mA <b>proposal</b>.",
            finish="stop",
            statistics={**figures, "tokens_per_second": 50.0},
        )
        return begun.id


def test_conversations_are_listed(capsys: pytest.CaptureFixture[str], conversation: int) -> None:
    """The list has numbers, dates and titles; --json prints one object."""
    assert main(["history", "list"]) == 0
    assert "What is a <draft>?" in capsys.readouterr().out
    assert main(["history", "list", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["conversations"]
    assert found["id"] == conversation


def test_messages_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    """A match is printed with its words; a search without a match reports that."""
    assert main(["history", "search", "propo"]) == 0
    assert "proposal" in capsys.readouterr().out
    assert main(["history", "search", "nowhere"]) == 0
    assert "no messages found" in capsys.readouterr().err


def test_a_conversation_is_shown_harmlessly(
    capsys: pytest.CaptureFixture[str], conversation: int
) -> None:
    """No escape sequence written by a model reaches the terminal."""
    assert main(["history", "show", str(conversation)]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "A <b>proposal</b>." in shown


def test_reasoning_is_shown_if_asked_for(
    capsys: pytest.CaptureFixture[str], conversation: int
) -> None:
    """Calls always are; nothing in any part reaches the terminal as a command."""
    with Store(default_path()) as store:
        call = ToolCall("open\x1b", '{"path": "a\x1b"}')
        leaf = store.conversation(conversation).leaf
        thought = "Hm.\x1b[2J"
        leaf = store.add(
            conversation, "assistant", "Done.", leaf, reasoning=thought, tool_calls=[call]
        ).id
        store.add(conversation, "assistant", "", leaf, reasoning="Let me")

    assert main(["history", "show", str(conversation)]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith(
        '\nAnswer:\nDone.\nCall: open\ufffd({"path": "a\ufffd"})\n'
        "\nAnswer:\n(stopped while reasoning; --reasoning shows it)\n"
    )
    assert main(["history", "show", str(conversation), "--reasoning"]) == 0
    assert capsys.readouterr().out.endswith(
        "\nReasoning:\nHm.\ufffd[2J\n\nAnswer:\nDone.\n"
        'Call: open\ufffd({"path": "a\ufffd"})\n\nReasoning:\nLet me\n\nAnswer:\n'
    )


@pytest.mark.parametrize("no_color", ["", "1"])
def test_only_a_terminal_gets_a_dimmed_heading(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    conversation: int,
    no_color: str,
) -> None:
    """And only one that may show colours."""
    with Store(default_path()) as store:
        leaf = store.conversation(conversation).leaf
        store.add(conversation, "assistant", "Done.", leaf, reasoning="Hm.")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", no_color)

    assert main(["history", "show", str(conversation), "--reasoning"]) == 0
    assert ("\x1b[2mReasoning:\x1b[0m\nHm.\n" in capsys.readouterr().out) == (not no_color)


def test_statistics_are_shown_answer_by_answer(
    capsys: pytest.CaptureFixture[str], conversation: int
) -> None:
    """The table has a row for each answer and one for the totals; unknown figures are "-"."""
    with Store(default_path()) as store:
        question = store.add(conversation, "user", "And?", store.conversation(conversation).leaf)
        answer = store.add(conversation, "assistant", "", question.id)
        figures = {
            "decode_s": 1.0, "generated_tokens": 100, "drafted": 60, "accepted": 50, "steps": 40,
            "tokens_per_second": 100.0, "tokens_per_step": 2.5, "acceptance_rate": 5 / 6,
            "speedup": 2.0, "drafter": "suffix+model", "time_to_first_token_s": 0.25,
            "drafted_by_position": [40, 20], "acceptance_histogram": [5, 20, 15],
        }  # fmt: skip
        store.write(answer.id, "Yes.", finish="stop", statistics=figures)

    assert main(["history", "show", str(conversation), "--stats"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["#", "tokens", "t/s", "speedup", "accepted", "per", "pass", "first", "drafter"],
        ["1", "100", "50.0", "-", "80", "%", "-", "-", "-"],
        ["2", "100", "100.0", "2.0x", "faster", "83", "%", "2.50", "0.25", "s", "suffix,", "model"],
        ["all", "200", "66.7", "2.0x", "faster", "82", "%", "2.50"],
        ["acceptance", "by", "draft", "position:", "1:", "88", "%,", "2:", "75", "%"],
    ]
    assert main(["history", "show", str(conversation), "--stats", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["totals"]["accepted_by_position"] == [35 / 40, 15 / 20]
    assert [each["tokens_per_second"] for each in record["answers"]] == [50.0, 100.0]


def test_exports_hold_what_was_said(
    capsys: pytest.CaptureFixture[str], conversation: int, tmp_path: Path
) -> None:
    """Markdown has front matter, JSON holds everything, and HTML runs nothing."""
    number = str(conversation)
    assert main(["history", "export", number]) == 0
    markdown = capsys.readouterr().out
    assert 'title: "What is a <draft>?"' in markdown
    assert "tokens_per_second: 50.0" in markdown
    assert "acceptance_rate: 0.8" in markdown

    assert main(["history", "export", number, "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["messages"]) == 2

    page = tmp_path / "page.html"
    words = ["history", "export", number, "--format", "html", "--output", str(page)]
    assert main(words) == 0
    assert page.stat().st_mode & 0o077 == 0
    assert "&lt;b&gt;proposal&lt;/b&gt;" in page.read_text("utf-8")
    assert "<b>" not in page.read_text("utf-8")
    assert main(words) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0


def test_deleting_asks_first(capsys: pytest.CaptureFixture[str], conversation: int) -> None:
    """Without a terminal --yes is required; so are numbers or --all."""
    assert main(["history", "delete", str(conversation)]) == 2
    assert "--yes" in capsys.readouterr().err
    assert main(["history", "delete"]) == 2
    drafts = DraftFile(default_path())
    drafts.take()
    drafts.keep(Draft("not sent"))
    assert main(["history", "delete", "--all", "--yes"]) == 0
    assert drafts.take() == Draft()
    drafts.close()
    assert main(["history", "show", str(conversation)]) == 1
    assert "history list" in capsys.readouterr().err


def test_usage_errors_name_the_value(capsys: pytest.CaptureFixture[str]) -> None:
    """A limit of 0 and an unknown number are errors."""
    assert main(["history", "list", "--limit", "0"]) == 2
    assert main(["history", "export", "999"]) == 1
    assert "no conversation 999" in capsys.readouterr().err


@table("number", [2**63, 10**19, -(2**63) - 1])
def test_no_conversation_has_a_number_that_cannot_be_kept(
    capsys: pytest.CaptureFixture[str], number: int
) -> None:
    """A number out of SQLite's range is unknown, and a limit out of it shows everything."""
    for words in (["show"], ["show", "--stats"], ["export"], ["delete", "--yes"]):
        assert main(["history", *words, str(number)]) == 1
        assert f"no conversation {number}:" in capsys.readouterr().err
    assert main(["history", "list", "--limit", str(abs(number))]) == 0
    assert "What is a <draft>?" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["list"], ["search", "x"], ["show", "1"], ["delete", "--all"]])
def test_an_unusable_data_folder_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
) -> None:
    """An unreadable history is an error, never an empty list."""
    (tmp_path / "file").write_text("")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for name, reason in (("file", "Not a directory"), ("nowhere", "File exists")):
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / name))
        assert main(["history", *words]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err == (
            f"specchat: cannot store conversations in {default_path()} ({reason}):"
            " check the disk and the file's permissions, or use --no-history\n"
        )


def test_without_a_data_folder_the_list_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Listing does not create the folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "new" / "one"))
    assert main(["history", "list"]) == 0
    assert "no conversations yet" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
