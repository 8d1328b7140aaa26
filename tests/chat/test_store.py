"""The store: what was written survives, whatever happens to the program or the file."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest

from chat.test_damage import damage
from specchat.chat import store as store_module
from specchat.chat.conversation import ChatSchema, Tree
from specchat.chat.message_search import search_messages
from specchat.chat.preset import Preset
from specchat.chat.store import Store
from specchat.chat.tables import VERSION
from specchat.decoding.chunk import Piece, ToolCall
from specchat.errors import AnswerGone, ConversationNotFound, StoreBusy, StoreFailed

ROOT = Path(__file__).resolve().parent.parent.parent
DYING = """
import os, signal, sys
from contextlib import closing
from pathlib import Path
from specchat.chat.store import Store
store = Store(Path(sys.argv[1]))
conversation = store.begin()
question = store.add(conversation.id, "user", "What is it?")
answer = store.add(conversation.id, "assistant", "", question.id)
store.write(answer.id, "It is half an ans")
os.kill(os.getpid(), signal.SIGKILL)
"""
WRITING = """
import sys
from contextlib import closing
from pathlib import Path
from specchat.chat.store import Store
with Store(Path(sys.argv[1])) as store:
    for number in range(40):
        conversation = store.begin()
        store.add(conversation.id, "user", f"{sys.argv[2]} {number}")
"""
BEGINNING = """
import sys, time
from pathlib import Path
from specchat.chat.store import Store
start = float(sys.argv[2])
for number in range(40):
    while time.time() < start + 0.02 * number:
        pass
    Store(Path(sys.argv[1]) / f"{number}.db").close()
"""

SCHEMA = ChatSchema("name", '{"type": "object"}')
CALLS = (ToolCall("look_up", '{"word": "draft"}', "call_1", "<tool_call>…</tool_call>"),)
PIECES = (
    Piece("A question", "target", "reasoning"),
    Piece("A", "draft"),
    Piece("look_up", "target", "call"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a store."""
    return tmp_path / "data" / "history.db"


def child(script: str, *words: str) -> subprocess.Popen[bytes]:
    """Run a script that uses the store in another process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    return subprocess.Popen([sys.executable, "-c", script, *words], env=environment)


def filled(store: Store) -> tuple[int, list[int]]:
    """Add a conversation with two answers to one question."""
    conversation = store.begin("Be brief.", "demo")
    question = store.add(conversation.id, "user", "What is a draft?\nTell me.")
    first = store.add(conversation.id, "assistant", "", question.id)
    store.write(
        first.id,
        "A proposal.",
        reasoning="A question of words.",
        tool_calls=CALLS,
        finish="stop",
        statistics={"steps": 3},
        pieces=PIECES,
    )
    second = store.add(conversation.id, "assistant", "Some tokens.", question.id)
    return conversation.id, [question.id, first.id, second.id]


def test_a_conversation_survives_closing(path: Path) -> None:
    """Branches, statistics and origins are the same after closing and opening."""
    with Store(path) as store:
        number, (question, first, second) = filled(store)
    with Store(path) as store:
        conversation = store.conversation(number)
        tree = store.tree(number)

    assert conversation.title == "What is a draft? Tell me."
    assert (conversation.system_prompt, conversation.pair) == ("Be brief.", "demo")
    assert conversation.leaf == second
    assert tree.siblings(first) == [first, second]
    assert [message.id for message in tree.branch(first)] == [question, first]
    assert tree[first].finish == "stop"
    assert tree[first].statistics == {"steps": 3}
    assert tree[first].reasoning == "A question of words."
    assert tree[first].tool_calls == CALLS
    assert tree[first].pieces == PIECES


def test_the_files_are_private(path: Path) -> None:
    """Only the user may read the folder and its files."""
    with Store(path) as store:
        filled(store)
        modes = [file.stat().st_mode & 0o077 for file in path.parent.iterdir()]

    assert modes == [0] * len(modes)
    assert len(modes) >= 1
    assert path.parent.stat().st_mode & 0o077 == 0


def test_a_partial_answer_survives_a_kill(path: Path) -> None:
    """The part of an answer that was written survives SIGKILL."""
    assert child(DYING, str(path)).wait() == -signal.SIGKILL
    with Store(path) as store:
        (conversation,) = store.conversations()
        texts = [message.text for message in store.tree(conversation.id).branch(conversation.leaf)]

    assert texts == ["What is it?", "It is half an ans"]


def test_two_programs_write_at_once(path: Path) -> None:
    """Three programs write to one file, and nothing is lost."""
    children = [child(WRITING, str(path), name) for name in ("a", "b", "c")]
    assert [each.wait() for each in children] == [0, 0, 0]
    with Store(path) as store:
        titles = {conversation.title for conversation in store.conversations()}

    assert titles == {f"{name} {number}" for name in "abc" for number in range(40)}


def test_two_programs_may_create_a_file_at_the_same_moment(tmp_path: Path) -> None:
    """SQLite itself would fail at once, without waiting; tried with 40 files."""
    start = str(time.time() + 1.0)
    children = [child(BEGINNING, str(tmp_path), start) for _ in range(2)]
    assert [each.wait() for each in children] == [0, 0]


@pytest.mark.parametrize("damage", ["garbage", "truncated", "foreign"])
def test_a_damaged_file_is_set_aside(path: Path, damage: str) -> None:
    """A damaged file is renamed, and a new one is created."""
    with Store(path) as store:
        filled(store)
    if damage == "garbage":
        path.write_bytes(b"no database at all" * 500)
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:5000])
    else:
        path.unlink()
        with sqlite3.connect(path) as database:
            database.execute(f"PRAGMA user_version = {VERSION}")
            database.execute("CREATE TABLE other (x)")
        database.close()
    with Store(path) as store:
        assert "damaged" in store.notice
        number, _ = filled(store)
        assert len(store.tree(number)) == 3
    assert any("damaged" in file.name for file in path.parent.iterdir())


def test_an_empty_file_is_a_new_store(path: Path) -> None:
    """An empty file is used as it is."""
    path.parent.mkdir()
    path.touch()
    with Store(path) as store:
        assert store.notice == ""
        filled(store)


def test_a_file_of_version_1_has_each_option_of_an_answer_once(path: Path) -> None:
    """It had some of them three times; what else it has stays, and so do answers without them."""
    asked = {"top_k": 40, "temperature": 0.8}
    own = ["temperature", "seed", "max_tokens"]
    once = {"generated_tokens": 3, "asked_with": asked | {"max_tokens": 50}, "own": own, "seed": 7}
    records: list[dict[str, Any]] = [
        {
            "generated_tokens": 3, "asked_with": asked, "seed": 7, "temperature": 0.8,
            "sampling": {"temperature": 0.8, "seed": 7, "max_tokens": 50},
        },
        {"generated_tokens": 3, "asked_with": {"top_k": 40}, "temperature": 0.8},
        {"generated_tokens": 3, "temperature": 0.8},
    ]  # fmt: skip
    with Store(path) as store:
        number = store.begin().id
        for record in records:
            answer = store.add(number, "assistant", "")
            store.write(answer.id, "Yes", finish="stop", statistics=record)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 1")
    database.close()
    for _ in range(2):
        with Store(path) as store:
            found = [each.statistics for each in store.tree(number).values()]
        assert found[0] == once
        assert found[1] == {"generated_tokens": 3, "asked_with": asked, "own": []}
        assert found[2] == records[2]


def test_a_newer_file_is_left_alone(path: Path) -> None:
    """The error says what to do, and the file is not changed."""
    with Store(path):
        pass
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 999")
    database.close()
    with pytest.raises(StoreFailed, match="another version of specchat"):
        Store(path)
    assert [file.name for file in path.parent.glob("*damaged*")] == []


def test_an_unusable_path_is_reported(tmp_path: Path) -> None:
    """A folder in place of the file, or a file in place of the folder, is an error."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for path in (tmp_path / "folder", tmp_path / "file" / "history.db"):
        with pytest.raises(StoreFailed, match="--no-history"):
            Store(path)


def test_a_full_disk_is_reported(path: Path) -> None:
    """Writing fails with advice, and earlier messages stay."""
    with Store(path) as store:
        number, _ = filled(store)
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreFailed, match="check the disk"):
            store.add(number, "user", "x" * 1_000_000)
        assert len(store.tree(number)) == 3


@pytest.mark.parametrize(
    ("words", "num_found"),
    [
        ("draft", 1), ("DRAFT", 1), ("dra", 1), ("tokens some", 1), ("draft tokens", 0),
        ('"', 0), ("draft OR tokens", 0), ("*", 0), ("NEAR(", 0), ("", 0), ("   ", 0), ("🙂", 0),
        ("'; DROP TABLE message; --", 0), ("proposal", 1),
    ],
)  # fmt: skip
def test_any_words_can_be_searched_for(path: Path, words: str, num_found: int) -> None:
    """All words must match, the last as a prefix, and none is treated as syntax."""
    with Store(path) as store:
        filled(store)
        assert len(search_messages(store, words)) == num_found


def test_a_result_shows_the_part_that_matches(path: Path) -> None:
    """Words of the reasoning are found, and all words may be spread over both parts."""
    with Store(path) as store:
        number = store.begin("", "").id
        store.add(number, "assistant", "Herons fish alone.", reasoning="Storks nest together.")
        snippets = [search_messages(store, words)[0].snippet for words in ("heron", "stork")]
        assert snippets == ["Herons fish alone.", "Storks nest together."]
        assert len(search_messages(store, "nest fish")) == 1
        assert search_messages(store, "nest owl") == []


def test_the_words_of_both_parts_are_found(path: Path) -> None:
    """Those of the reasoning and of the answer, until they are written over or deleted for good."""
    with Store(path) as store:
        number = store.begin().id
        message = store.add(number, "assistant", "").id
        store.write(message, "stork", reasoning="heron", finish="stop")
        assert [bool(search_messages(store, word)) for word in ("heron", "stork")] == [True, True]
        store.write(message, "egret", reasoning="ibis", finish="stop")
        words = ("heron", "stork", "egret", "ibis")
        assert [bool(search_messages(store, word)) for word in words] == [False, False, True, True]
        store.delete_messages([message])
        store.purge(0.0)
        store.run("INSERT INTO found (found) VALUES ('integrity-check')", ())
        assert search_messages(store, "ibis") == []


def test_marks_of_reasoning_in_an_answer_are_text(path: Path) -> None:
    """Opening the file again takes nothing out of a stored text."""
    text = "</think> ends it; <think> begins it"
    with Store(path) as store:
        number = store.begin().id
        message = store.add(number, "assistant", text).id
    with Store(path) as store:
        answer = store.tree(number)[message]
    assert (answer.text, answer.reasoning) == (text, "")


def test_deleted_messages_are_hidden_and_can_be_restored(path: Path) -> None:
    """Messages and conversations can be restored until they are purged."""
    with Store(path) as store:
        number, messages = filled(store)
        store.delete_messages(messages[1:])
        assert search_messages(store, "proposal") == []
        assert len(store.tree(number)) == 1
        store.delete_messages(messages[1:], undo=True)
        assert len(search_messages(store, "proposal")) == 1
        store.delete(number)
        assert store.conversations() == []
        with pytest.raises(ConversationNotFound, match="history list"):
            store.conversation(number)
        store.restore(number)
        assert len(store.conversations()) == 1
        store.delete(number)
        store.purge(0.0)
        store.restore(number)
        assert store.conversations() == []
        assert len(store.tree(number)) == 0


def test_damaged_calls_hide_nothing_else(path: Path) -> None:
    """Calls that are no JSON are left out."""
    with Store(path) as store:
        number = store.begin().id
        message = store.add(number, "assistant", "Yes.", reasoning="Hm.", tool_calls=CALLS)
        assert store.tree(number)[message.id] == message
        store.run("UPDATE message SET tool_calls = '[{'", ())
        answer = store.tree(number)[message.id]
        assert (answer.text, answer.reasoning, answer.tool_calls) == ("Yes.", "Hm.", ())


def test_presets_are_saved_by_name(path: Path) -> None:
    """A preset replaces one of the same name."""
    with Store(path) as store:
        store.save_preset(Preset("poet", "In verse.", {"temperature": 1.2}))
        store.save_preset(Preset("poet", "In rhyme.", {}))
        store.save_preset(Preset("coder", "Code only.", {}))
        assert [preset.name for preset in store.presets()] == ["coder", "poet"]
        assert store.presets()[1].system_prompt == "In rhyme."
        store.save_preset(Preset("poet", "In rhyme.", {}, "rhyme, \0metre"))
        assert store.presets()[1].schema == "rhyme, \ufffdmetre"
        store.delete_preset("poet")
        assert [preset.name for preset in store.presets()] == ["coder"]


def test_a_conversation_keeps_its_schema(path: Path) -> None:
    """From the first, or set later; answers keep the one that they were asked to follow."""
    with Store(path) as store:
        number = store.begin(schema=SCHEMA).id
        store.add(number, "user", "A dog?")
        answer = store.add(number, "assistant", "", 1, schema=SCHEMA.source)
        assert answer.schema == SCHEMA.source
        store.set_schema(number, None)
        assert store.conversation(number).schema is None
        store.set_schema(number, SCHEMA)
    with Store(path) as store:
        (conversation,) = store.conversations()
        assert conversation.schema == SCHEMA
        assert [each.schema for each in store.tree(number).values()] == ["", SCHEMA.source]


def test_any_text_can_be_stored(path: Path) -> None:
    """Lone surrogates and zero bytes are replaced."""
    with Store(path) as store:
        conversation = store.begin("\ud800", "x")
        message = store.add(conversation.id, "user", "a\0b\ud83d🙂\u202e")
        store.write(message.id, "\udc00" * 3, pieces=[Piece("\udc00", "target")])
        store.write(
            message.id, "", reasoning="a\ud800", tool_calls=[ToolCall("\0", "\ud800", "\udc00")]
        )
        answer = store.tree(conversation.id)[message.id]
        assert answer.reasoning == "a?"
        assert answer.tool_calls == (ToolCall("\ufffd", "?", "?"),)
        assert answer.pieces == ()


def test_a_tree_follows_the_newest_versions() -> None:
    """From any message to the end of its newest branch; removed messages can be put back."""
    with Store(None) as store:
        number, (question, first, second) = filled(store)
        deeper = store.add(number, "user", "More.", first).id
        tree = store.tree(number)

    assert tree.newest_leaf(None) == second
    assert tree.newest_leaf(first) == deeper
    assert tree.below(question) == [question, first, second, deeper]
    taken = tree.remove(first)
    assert [message.id for message in taken] == [first, deeper]
    assert tree.siblings(second) == [second]
    for message in taken:
        tree.put(message)
    assert len(tree) == 4
    assert Tree().branch(None) == []


def test_turns_keep_the_parts_of_an_answer_apart() -> None:
    """A model gets text, reasoning and calls by the names of OpenAI's API."""
    with Store(None) as store:
        number, (_, first, _) = filled(store)
        turns = store.tree(number).turns(first, "Be brief.")

    assert turns == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is a draft?\nTell me."},
        {
            "role": "assistant",
            "content": "A proposal.",
            "reasoning_content": "A question of words.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "look_up", "arguments": '{"word": "draft"}'},
                }
            ],
        },
    ]


def test_an_answer_stopped_while_reasoning_is_not_sent() -> None:
    """Nor is its question, so that users and assistants alternate; one that only calls is sent."""
    with Store(None) as store:
        number = store.begin().id
        question = store.add(number, "user", "One?")
        stopped = store.add(number, "assistant", "", question.id, reasoning="Let me")
        question = store.add(number, "user", "Two?", stopped.id)
        calling = store.add(number, "assistant", "", question.id, tool_calls=CALLS)
        last = store.add(number, "user", "Three?", calling.id)
        turns = store.tree(number).turns(last.id)

    assert [each["content"] for each in turns] == ["Two?", "", "Three?"]
    assert "reasoning_content" not in turns[1]


SENTENCES = {
    "投机解码可以节省显存,也能更快。": ("显存", "解码", "投机", "节省显存"),
    "このモデルはメモリを節約できます。": ("メモリ", "節約", "モデル"),
    "การถอดรหัสแบบนี้ประหยัดเวลา": ("ประหยัด", "เวลา"),
    "이 모델은 메모리를 절약합니다": ("메모리", "절약"),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_words_of_scripts_without_spaces_are_found(path: Path, sentence: str) -> None:
    """Anywhere in a sentence, also beside other words, in the text or the reasoning."""
    with Store(path) as store:
        number = store.begin("", "").id
        store.add(number, "user", f"GGUF: {sentence}")
        store.add(number, "assistant", "Yes.", reasoning=f"Think of {sentence}")
        store.add(number, "user", "Nothing of the kind.")
        for word in SENTENCES[sentence]:
            reasoned, asked = search_messages(store, word)
            assert (asked.in_reasoning, reasoned.in_reasoning) == (False, True)
            assert word in asked.snippet
            assert len(search_messages(store, f"gguf {word}")) == 1
            assert search_messages(store, f"{word} absent") == []
        assert search_messages(store, "显卡") == []


def test_a_part_of_a_long_text_is_shown(path: Path) -> None:
    """With what stands around the word."""
    with Store(path) as store:
        store.add(store.begin("", "").id, "user", "前" * 100 + "显存" + "后" * 100)
        (found,) = search_messages(store, "显存")
        assert found.snippet == "…" + "前" * 30 + "显存" + "后" * 30 + "…"


def test_saved_seconds_are_added_up_of_today_and_of_all_days() -> None:
    """An answer without statistics, or whose gain is unknown, saved none."""
    with Store(None) as store:
        conversation = store.begin().id
        for saved in ({"saved_s": 1.5}, {"saved_s": 4.0}, {"saved_s": None}, {}):
            answer = store.add(conversation, "assistant", "", None).id
            store.write(answer, "Yes.", finish="stop", statistics=saved)
        with store.transaction() as database:
            database.execute("UPDATE message SET created = 0 WHERE id = 1")
        assert store.saved_seconds() == (4.0, 5.5)


def test_numbers_are_not_given_again(path: Path) -> None:
    """Else what a program still writes to a removed answer would replace another one."""
    with Store(path) as first, Store(path) as second:
        removed = first.begin().id
        answer = first.add(removed, "assistant", "")
        second.delete(removed, permanently=True)
        second.purge()
        number = second.begin().id
        other = second.add(number, "assistant", "")
        second.write(other.id, "Another answer", finish="stop")
        with pytest.raises(AnswerGone, match="no longer in the history"):
            first.write(answer.id, "The answer", finish="stop")
        assert (number, other.id) != (removed, answer.id)
        assert [each.text for each in second.tree(number).values()] == ["Another answer"]
        with pytest.raises(StoreFailed, match="another program deleted this conversation"):
            first.add(removed, "user", "And now?")


def test_an_older_file_gives_no_numbers_again_either(path: Path) -> None:
    """It had no table for them."""
    with Store(path) as store:
        before = store.add(store.begin().id, "user", "Before").id
    with closing(sqlite3.connect(path)) as file:
        file.executescript("DROP TABLE used; PRAGMA user_version = 3")
    with Store(path) as store:
        store.delete(1, permanently=True)
        store.purge()
        assert store.add(store.begin().id, "user", "After").id > before


def test_deleting_for_good_leaves_what_can_be_restored(path: Path) -> None:
    """Another program has promised that."""
    with Store(path) as store:
        kept, removed = store.begin().id, store.begin().id
        message = store.add(kept, "user", "Kept for a day").id
        store.add(removed, "user", "Removed")
        store.delete_messages([message])
        store.delete(removed, permanently=True)
        store.purge()
        store.delete_messages([message], undo=True)
        assert [each.text for each in store.tree(kept).values()] == ["Kept for a day"]
        assert not store.tree(removed)


def test_a_new_message_restores_its_conversation(path: Path) -> None:
    """Another program deleted it, and would remove the message a day later."""
    with Store(path) as store:
        number = store.begin().id
        store.delete(number)
        store.add(number, "user", "Still here")
        assert store.conversation(number).title == "Still here"


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_is_gone_is_reported(path: Path, *, is_replaced: bool) -> None:
    """What is written to it would be lost without a word, and another's numbers say nothing."""
    with Store(path) as store:
        number = store.begin().id
        path.rename(path.with_name("elsewhere.db"))
        if is_replaced:
            with Store(path) as other:
                other.add(other.begin().id, "user", "Another")
        for use in (lambda: store.add(number, "user", "Lost"), lambda: store.tree(number)):
            with pytest.raises(StoreFailed, match="moved, deleted or replaced"):
                use()


def test_a_file_that_another_program_recovered_is_used_on(path: Path) -> None:
    """The one set aside is not in the history any more."""
    with Store(path) as first, Store(path) as second:
        number = first.begin().id
        first.add(number, "user", "Before")
        second.note_damage(damage())
        with pytest.raises(StoreBusy, match="damaged"):
            second.conversations()
        first.add(number, "user", "After")
        assert [each.text for each in second.tree(number).values()] == ["Before", "After"]


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone cannot be set here")
def test_today_begins_at_midnight_also_when_the_clock_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The offset at midnight is the one that counts."""
    set_zone = getattr(time, "tzset")  # noqa: B009 -- Windows has none
    monkeypatch.setenv("TZ", "Europe/Berlin")
    set_zone()
    try:
        noon = datetime(2026, 3, 29, 12)  # noqa: DTZ001 -- in the zone above
        midnight = datetime(2026, 3, 29)  # noqa: DTZ001

        class Clock(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Any:
                return noon

        monkeypatch.setattr(store_module, "datetime", Clock)
        with Store(None) as store:
            number = store.begin().id
            for created in (midnight.timestamp() - 1, midnight.timestamp()):
                answer = store.add(number, "assistant", "").id
                store.write(answer, "Yes.", finish="stop", statistics={"saved_s": 2.0})
                store.run("UPDATE message SET created = ? WHERE id = ?", (created, answer))
            assert store.saved_seconds() == (2.0, 4.0)
    finally:
        monkeypatch.undo()
        set_zone()
