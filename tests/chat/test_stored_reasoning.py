"""Files of versions that stored the reasoning in the answer's text: split once, nothing lost."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

from specchat.chat import database
from specchat.chat.conversation import Message
from specchat.chat.database import MIGRATIONS
from specchat.chat.store import Store
from specchat.chat.stored_reasoning import split_stored
from specchat.decoding.chunk import Piece
from specchat.errors import StoreBusy, StoreFailed

ROOT = Path(__file__).resolve().parent.parent.parent
OLD_VERSION = 4
"""The last version that kept the reasoning in the text."""
PAGE = 4096
HARMONY = "<|channel|>analysis<|message|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>"

SPLIT = [
    ("<think>because</think>Yes.", "because", "Yes."),
    ("<think>\nbecause\n</think>\n\nYes.", "because", "Yes."),
    ("\n <think>\n\n</think>\n\nYes.\n", "", "Yes.\n"),
    ("because</think>\nYes.", "because", "Yes."),
    ("\n</think>\n\nYes.", "", "Yes."),
    ("because `</think>` ends\n```\n</think>\n```\n</think>\nYes.",
     "because `</think>` ends\n```\n</think>\n```", "Yes."),
    ("\nbecause `<b>`\n</think>\nYes.", "because `<b>`", "Yes."),
    ("[THINK]hm[/THINK]No.", "hm", "No."),
    ("<thinking>so</thinking>Done", "so", "Done"),
    ("<thought>so</thought>Done", "so", "Done"),
    ("<seed:think>so</seed:think>Done", "so", "Done"),
    ("<mm:think>so</mm:think>\n\nDone", "so", "Done"),
    ("<think>a</think>b</think>c", "a", "b</think>c"),
    ("◁think▷想一想◁/think▷好", "想一想", "好"),
    ("<|inner_prefix|>so<|inner_suffix|>Done", "so", "Done"),
    (
        "<|begin_of_thought|>\nso\n<|end_of_thought|>\n\n<|begin_of_solution|>\nDone\n<|end_of_solution|>",
        "so",
        "Done\n",
    ),
    ("<|START_THINKING|>so<|END_THINKING|><|START_RESPONSE|>Done<|END_RESPONSE|>", "so", "Done"),
    ("<|channel>thought\nSecret plan\n<channel|>Final text", "Secret plan", "Final text"),
    ("<|channel>thought\n<channel|>Final text", "", "Final text"),
    (f"{HARMONY}We think.<|end|>{FINAL}Hello", "We think.", "Hello"),
    (f"{HARMONY}We think.{FINAL}Hello<|return|>", "We think.", "Hello"),
    (f"{HARMONY}JSON<|end|>" + FINAL.replace("<|message", " <|constrain|>json<|message") + "{}",
     "JSON", "{}"),
    ("analysisThe user greets.assistantfinalHello", "The user greets.", "Hello"),
    ("Here is my thought process:\nSo.\n\nHere is my response:\nDone", "So.", "Done"),
    ("Here are my reasoning steps:\nSo.\n[BEGIN FINAL RESPONSE]\nDone\n[END FINAL RESPONSE]",
     "So.", "Done\n"),
    ("<think>because of th", "because of th", ""),
    ("<think>because</thi", "because</thi", ""),
    ("<reasoning>\nbecause of th", "because of th", ""),
]  # fmt: skip
"""Stored answers with their reasoning and what remains of them."""
UNSPLIT = [
    "", "Yes.", "<thi", "No <think> here", "The tags <think> and </think> enclose it.",
    "End it with `</think>`.", "analysis of the plan", "analysisThe user greets.",
    "analysis beforeassistantfinal", "Here is my thought process: I have none.",
    "<|channel|>commentary<|message|>Hello", "<|channel|>final<|message|>Hello",
    "because</think>Yes.", "so<|END_THINKING|><|START_RESPONSE|>Done", "so\n</thought>\nDone",
    "To close reasoning, write </thought>.", "To close reasoning, write </think>",
    "In HTML:\n```\n<a></a>\n</reasoning>\n```\nDone", "```\n</think>\n```\nDone",
    "Strip it: `re.sub('.*</think>', '', s)` and more", "Write `a </think>\nto` close it.",
    "<thinking> tags are used by Claude.", f"{HARMONY}We thi",
]  # fmt: skip
MARKS = re.compile(
    r"""</?(?:think|thinking|thought|seed:think|mm:think)> | \[/?THINK\] | ◁/?think▷
    | <\|?\w+\|?>(?:thought|analysis|final|assistant|json)? | ^analysis | assistantfinal
    | Here\ .*: | \[(?:BEGIN|END)\ FINAL\ RESPONSE\] | \s""",
    re.VERBOSE,
)
"""Marks of reasoning and white space: what a migration may leave out."""


def old_file(path: Path, answers: Sequence[tuple[str, str | None, str | None]]) -> None:
    """Write a file of the old version with answers: text, pieces and statistics of each."""
    path.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path)) as file, file:
        for script in MIGRATIONS[:OLD_VERSION]:
            file.executescript(script)
        file.execute(f"PRAGMA user_version = {OLD_VERSION}")
        file.execute("INSERT INTO conversation (id, title, created, changed) VALUES (1, 'T', 1, 2)")
        file.execute(
            "INSERT INTO message (id, conversation, role, text, created)"
            " VALUES (1, 1, 'user', '<think>mine</think>too', 1)"
        )
        for number, answer in enumerate(answers, 2):
            file.execute(
                "INSERT INTO message (id, conversation, parent, role, text, pieces, statistics,"
                " created) VALUES (?, 1, ?, 'assistant', ?, ?, ?, 2)",
                (number, number - 1, *answer),
            )
        file.execute("UPDATE conversation SET leaf = ?", (len(answers) + 1,))


def migrated(path: Path) -> list[Message]:
    """Open a file and return the messages of its conversation."""
    with Store(path) as store:
        return store.tree(1).branch(store.conversation(1).leaf)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a store."""
    return tmp_path / "data" / "history.db"


def parts_of(text: str) -> tuple[str, str]:
    """Return the reasoning and the answer of a stored text."""
    split = split_stored(text)
    assert split is not None
    return text[slice(*split.reasoning)], text[slice(*split.answer)]


@pytest.mark.parametrize(("text", "reasoning", "answer"), SPLIT)
def test_marks_of_many_models_are_known(text: str, reasoning: str, answer: str) -> None:
    """With both marks, with the end alone, and stopped before the end."""
    assert parts_of(text) == (reasoning, answer)


@pytest.mark.parametrize("text", UNSPLIT)
def test_an_ordinary_answer_is_left_alone(text: str) -> None:
    """Marks that it mentions, and words that need their counterpart, are text."""
    assert split_stored(text) is None


@pytest.mark.parametrize(
    "text", ["<think> opens it.", "<think>\nopens it.", "<reasoning>\nopens it."]
)
def test_an_answer_that_ended_by_itself_is_never_all_reasoning(path: Path, text: str) -> None:
    """Its begin mark is one that it mentions; where an answer was cut, reasoning was."""
    old_file(path, [(text, json.dumps([[text, "t"]]), None)] * 2)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE message SET finish = 'stop' WHERE id = 2")
    ended, cut = migrated(path)[1:]
    assert (ended.reasoning, ended.text, ended.pieces) == ("", text, (Piece(text, "target"),))
    assert (bool(cut.reasoning), cut.text) == (True, "")


def test_a_migration_separates_reasoning_and_loses_nothing(path: Path) -> None:
    """All characters but marks and white space stay, in their order; questions are as before."""
    texts = [text for text, _, _ in SPLIT] + UNSPLIT
    old_file(path, [(text, None, None) for text in texts])
    question, *answers = migrated(path)

    assert question.text == "<think>mine</think>too"
    found = [(each.reasoning, each.text) for each in answers]
    assert found == [parts[1:] for parts in SPLIT] + [("", text) for text in UNSPLIT]
    for (reasoning, answer), text in zip(found[: len(SPLIT)], texts, strict=False):
        assert MARKS.sub("", reasoning + answer) == MARKS.sub("", text)


@pytest.mark.parametrize(("text", "reasoning", "answer"), SPLIT)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_tokens_get_their_kinds(
    path: Path, text: str, reasoning: str, answer: str, size: int
) -> None:
    """A token across a boundary is cut in two; those of each kind together say its text."""
    parts = [text[place : place + size] for place in range(0, len(text), size)]
    old_file(
        path, [(text, json.dumps([[part, "td"[n % 2]] for n, part in enumerate(parts)]), None)]
    )
    pieces = migrated(path)[1].pieces

    for kind, whole in (("reasoning", reasoning), ("answer", answer)):
        assert "".join(each.text for each in pieces if each.kind == kind) == whole
    if size == 1:
        assert len(pieces) == len(reasoning + answer)


def test_origins_stay_with_their_tokens(path: Path) -> None:
    """Also those of a token without text, and of one cut in two."""
    pieces = [["<think>a", "d"], ["", "d"], ["b</think>c", "t"], ["d", "d"]]
    old_file(path, [("<think>ab</think>cd", json.dumps(pieces), None)])

    assert migrated(path)[1].pieces == (
        Piece("a", "draft", "reasoning"),
        Piece("", "draft", "reasoning"),
        Piece("b", "target", "reasoning"),
        Piece("c", "target"),
        Piece("d", "draft"),
    )


@pytest.mark.parametrize("pieces", ["[[", "{}", "[1]", '[["a"]]', '[[1, "t"]]', '[["x", "t"]]'])
def test_damaged_tokens_do_not_stop_the_migration(path: Path, pieces: str) -> None:
    """Nor do damaged statistics; the text is split all the same."""
    old_file(path, [("<think>a</think>b", pieces, "{")])
    with Store(path), closing(sqlite3.connect(path)) as file:
        rows = file.execute("SELECT text, reasoning, pieces FROM message WHERE id = 2").fetchall()
    assert rows == [("b", "a", pieces)]


def test_deep_nesting_does_not_stop_the_migration(path: Path) -> None:
    """Nor what is read later."""
    old_file(path, [("<think>a</think>b", "[" * 100_000, "[" * 100_000)])
    answer = migrated(path)[1]
    assert (answer.text, answer.reasoning, answer.pieces) == ("b", "a", ())


def test_the_seconds_of_reasoning_stay_known(path: Path) -> None:
    """The statistics of old answers have them by another name."""
    old_file(path, [("<think>a</think>b", None, json.dumps({"thought_s": 2.5, "steps": 3}))])
    statistics = migrated(path)[1].statistics
    assert statistics["reasoning_s"] == 2.5
    assert statistics["steps"] == 3


def test_the_words_of_both_parts_are_found(path: Path) -> None:
    """After the migration, and after an answer was written again or deleted for good."""
    old_file(path, [("<think>heron</think>stork", None, None)])
    with Store(path) as store:
        for word in ("heron", "stork"):
            assert [(each.message, each.snippet) for each in store.search(word)] == [(2, word)]
        assert store.search("think heron") == []
        store.write(2, "egret", reasoning="ibis", finish="stop")
        assert [bool(store.search(word)) for word in ("heron", "stork", "egret", "ibis")] == [
            False, False, True, True,
        ]  # fmt: skip
        store.delete_messages([2])
        store.purge(0.0)
        store.run("INSERT INTO found (found) VALUES ('integrity-check')", ())
        assert store.search("ibis") == []


def test_answers_are_split_only_once(path: Path) -> None:
    """A mark that a newer version stored as text is text when the file is opened again."""
    text = "</think> ends it; <think> begins it"
    with Store(path) as store:
        number = store.begin().id
        message = store.add(number, "assistant", text).id
    with Store(path) as store:
        answer = store.tree(number)[message]
    assert (answer.text, answer.reasoning) == (text, "")


def test_a_failed_migration_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file stays as it was, and the next attempt completes it."""
    old_file(path, [("<think>a</think>b", None, None)])

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE message SET text = ''")
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setitem(database.AFTER_MIGRATION, OLD_VERSION + 1, fail)
        with pytest.raises(StoreFailed, match="disk is full"):
            Store(path)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (OLD_VERSION,)
        assert file.execute("SELECT text FROM message WHERE id = 2").fetchone()[0].endswith("b")
    assert [(each.reasoning, each.text) for each in migrated(path)[1:]] == [("a", "b")]


OPENING = """
import sys, time
from pathlib import Path
from specchat.chat.store import Store
while time.time() < float(sys.argv[2]):
    pass
with Store(Path(sys.argv[1])) as store:
    assert not store.notice
    assert all(each.reasoning == "a" for each in store.tree(1).values() if each.parent)
"""


def test_programs_that_migrate_at_once_split_once(path: Path) -> None:
    """One of them does it; an answer that keeps a mark after it would show a second time."""
    text = "<think>a</think><think>b</think>c"
    old_file(path, [(text, None, None)] * 300)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    words = [sys.executable, "-c", OPENING, str(path), str(time.time() + 1.0)]
    children = [subprocess.Popen(words, env=environment) for _ in range(3)]

    assert [each.wait() for each in children] == [0, 0, 0]
    assert {each.text for each in migrated(path)[1:]} == {"<think>b</think>c"}


def answers_of(store: Store) -> list[Message]:
    """Return all answers that a store has."""
    trees = [store.tree(each.id) for each in store.conversations()]
    return [message for tree in trees for message in tree.values() if message.role == "assistant"]


def test_a_damaged_old_file_is_split_as_it_is_recovered(path: Path) -> None:
    """Whatever page is lost, what can be read has its reasoning apart and can be found."""
    filling = "word " * 300
    old_file(path, [(f"<think>crane {filling}</think>{filling}", None, None)] * 12)
    whole = path.read_bytes()
    num_recovered = 0
    for number in range(len(whole) // PAGE):
        for each in path.parent.iterdir():
            each.unlink()
        content = bytearray(whole)
        content[number * PAGE : (number + 1) * PAGE] = bytes(PAGE)
        path.write_bytes(content)
        with Store(path) as store:
            with suppress(StoreBusy):  # the damage may be found only now
                answers_of(store)
            answers = answers_of(store)
            num_recovered += "recovered" in store.notice
            assert all(each.reasoning.startswith("crane") for each in answers)
            assert not any("think>" in each.text for each in answers)
            assert len(store.search("crane")) == len(answers)
    assert num_recovered >= 5
