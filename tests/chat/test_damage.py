"""A damaged store: named as damaged, recovered as far as it can be read, and kept."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from specchat.chat import database as database_module
from specchat.chat.conversation import Role
from specchat.chat.database import Database
from specchat.chat.message_search import search_messages
from specchat.chat.preset import Preset
from specchat.chat.recovery import _readable, recover
from specchat.chat.store import Store
from specchat.chat.stored_steps import StoredSteps
from specchat.decoding.chunk import Chunk
from specchat.errors import StoreBusy, StoreFailed
from specchat.images.image import Image

T = TypeVar("T")
PAGE = 4096
ROLES: tuple[Role, Role] = "user", "assistant"
NUM_CONVERSATIONS, NUM_MESSAGES = 4, 10


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a store with some conversations."""
    path = tmp_path / "data" / "history.db"
    with Store(path) as store:
        for number in range(NUM_CONVERSATIONS):
            conversation = store.begin("Be brief.")
            above = None
            for place in range(NUM_MESSAGES):
                text = f"message {number} {place} " + "word " * 200
                above = store.add(conversation.id, ROLES[place % 2], text, above).id
        store.save_preset(Preset("poet", "In verse.", {}))
    return path


def damage() -> sqlite3.DatabaseError:
    """Return the error that SQLite reports for a damaged file."""
    error = sqlite3.DatabaseError("damaged")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def with_page_zeroed(path: Path, number: int) -> None:
    """Replace a page by zeros, as a bad disk might."""
    content = bytearray(path.read_bytes())
    content[number * PAGE : (number + 1) * PAGE] = bytes(PAGE)
    path.write_bytes(content)


def messages_of(store: Store) -> int:
    """Read everything, as the chat and `specchat history` would; return the number of messages."""
    store.questions(100)
    search_messages(store, "message")
    store.presets()
    return sum(len(store.tree(each.id)) for each in store.conversations())


def trying_twice(act: Callable[[], T]) -> T:
    """Do something again if the store has been recovered meanwhile."""
    with suppress(StoreBusy):
        return act()
    return act()


def root_of_messages(path: Path) -> int:
    """Return the number of the page above all messages."""
    with closing(sqlite3.connect(path)) as database:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'message'"
        return int(database.execute(query).fetchone()[0]) - 1


def test_any_damaged_page_costs_only_what_was_on_it(path: Path) -> None:
    """Each page is zeroed in turn, except the first and the root of all messages.

    Whatever notices the damage says that it is damage; then everything can be read and written.
    """
    whole = path.read_bytes()
    lost_whole = {0, root_of_messages(path)}
    for number in range(len(whole) // PAGE):
        for each in path.parent.iterdir():
            each.unlink()
        path.write_bytes(whole)
        with_page_zeroed(path, number)
        with Store(path) as store:
            trying_twice(partial(messages_of, store))
            num_left = messages_of(store)
            begun = trying_twice(store.begin)
            trying_twice(partial(store.add, begun.id, "user", "And on."))
            if number not in lost_whole:
                assert num_left >= NUM_CONVERSATIONS * NUM_MESSAGES - 4
            kept = list(path.parent.glob("*.damaged-*.db"))
            assert bool(kept) == ("recovered" in store.notice)
        with Store(path) as store:
            assert store.notice == ""
            assert messages_of(store) == num_left + 1
        left = {each.name for each in path.parent.iterdir() if "damaged" not in each.name}
        assert left == {"history.db"}


def test_what_follows_a_lost_message_stays_in_the_branch(path: Path) -> None:
    """It continues the message before the lost ones."""
    with closing(sqlite3.connect(path)) as database:
        (last,) = database.execute("SELECT max(id) FROM message WHERE conversation = 1").fetchone()
    content = path.read_bytes()
    with_page_zeroed(path, content.index(b"message 0 4 ") // PAGE)
    with Store(path) as store:
        with pytest.raises(StoreBusy, match="recovered; the damaged file is kept as"):
            store.tree(1)
        branch = store.tree(1).branch(last)
    assert NUM_MESSAGES - 4 <= len(branch) < NUM_MESSAGES
    assert branch[0].text.startswith("message 0 0 ")
    assert branch[-1].text.startswith(f"message 0 {NUM_MESSAGES - 1} ")


def test_opening_reads_no_messages(path: Path) -> None:
    """Damage among the messages does not keep the store from being opened, and used elsewhere."""
    with_page_zeroed(path, path.read_bytes().index(b"message 1 4 ") // PAGE)
    with Store(path) as store:
        assert store.notice == ""
        assert len(store.conversations()) == NUM_CONVERSATIONS
        store.add(store.begin().id, "user", "Hello")
        assert store.notice == ""


@pytest.mark.parametrize("version", [-5, -(2**31)])
def test_an_impossible_version_is_damage(path: Path, version: int) -> None:
    """Everything is recovered."""
    content = path.read_bytes()
    path.write_bytes(content[:60] + struct.pack(">i", version) + content[64:])
    with Store(path) as store:
        assert "4 conversations with 40 messages were recovered" in store.notice


def test_text_that_is_not_utf8_is_damage_at_most(path: Path) -> None:
    """In the schema, every byte of it, and in messages."""
    whole = path.read_bytes()
    begin = whole.index(b"CREATE TABLE conversation")
    places = [*range(begin, begin + 60, 7), whole.index(b"message 1 4 ")]
    for place in places:
        for each in path.parent.iterdir():
            each.unlink()
        path.write_bytes(whole[:place] + b"\xff\xfe" + whole[place + 2 :])
        with Store(path) as store:
            assert messages_of(store) in {0, NUM_CONVERSATIONS * NUM_MESSAGES}


def test_damaged_columns_are_left_out(path: Path) -> None:
    """Statistics, tokens and other parts that are no JSON do not hide the rest."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE message SET statistics = '{', pieces = '[[', attachments = '[ '")
        database.execute("UPDATE conversation SET schema = '{'")
        database.execute("UPDATE preset SET sampling = '{'")
        database.execute("INSERT INTO preset VALUES ('other', '', '[1]', '')")
    with Store(path) as store:
        assert [each.sampling for each in store.presets()] == [{}, {}]
        assert [each.schema for each in store.conversations()] == [None] * NUM_CONVERSATIONS
        assert all(not each.statistics and not each.pieces for each in store.tree(1).values())


def test_a_write_continues_after_the_recovery(path: Path) -> None:
    """A chat that finds the damage while it writes may write again, to the new file."""
    with Store(path) as store:
        for number in range(1, len(path.read_bytes()) // PAGE):
            with_page_zeroed(path, number)
        with pytest.raises(StoreBusy, match="damaged"):
            store.begin()
        assert store.begin().id


@pytest.mark.parametrize("lost", ["newest", "all", "none"])
def test_a_recovered_file_gives_no_numbers_again(path: Path, lost: str) -> None:
    """What another program still writes to a removed or a lost message replaces no other one."""
    with Store(path) as first, Store(path) as second:
        number = first.begin().id
        answer = first.add(number, "assistant", "the newest answer")
        if lost == "none":
            second.delete(number, permanently=True)
            second.purge()
            second.note_damage(damage())
        else:
            with closing(sqlite3.connect(path)) as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            newest = path.read_bytes().rindex(b"the newest answer") // PAGE
            with_page_zeroed(path, root_of_messages(path) if lost == "all" else newest)
        trying_twice(partial(messages_of, second))
        assert "recovered" in second.notice
        begun = second.begin().id
        other = second.add(begun, "assistant", "Another")
        with pytest.raises(StoreFailed):
            first.write(answer.id, "The answer", finish="stop")
        assert [each.text for each in second.tree(begun).values()] == ["Another"]
        assert begun > number
        assert other.id > answer.id
        assert second.rows("SELECT count(*) FROM used", ()) == [(1,)]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("message.id", 2**63 - 1),
        ("message.conversation", 2**63 - 1),
        ("message.conversation", 1.5),
        ("message.conversation", "abc"),
        ("conversation.id", 2**63 - 1),
        ("conversation.leaf", 2**63 - 1),
        ("conversation.leaf", 1e300),
        ("steps.message", 2**63 - 1),
        ("used.conversation", 2**63 - 1),
        ("used.message", 1e300),
    ],
)
@pytest.mark.parametrize("is_known", [False, True])
def test_a_damaged_number_keeps_nothing_from_being_written(
    path: Path, column: str, value: object, is_known: bool
) -> None:
    """Not in the file as it is, nor in that with its readable rows, which keeps the others."""
    table, name = column.split(".")
    with Store(path) as store:
        images = [Image(b"\x89PNG of a cat", "cat.png")]
        last = store.add(store.begin().id, "user", "the last one", images=images)
        steps = StoredSteps("target", (Chunk("the", (1,), ("target",), ("the",)),))
        store.write(last.id, "the last one", finish="stop", steps=steps)
    with closing(sqlite3.connect(path)) as file, file:
        (newest,) = file.execute(f"SELECT max(rowid) FROM {table}").fetchone()  # noqa: S608
        file.execute(f"UPDATE {table} SET {name} = ? WHERE rowid = ?", (value, newest))  # noqa: S608
    with Store(path) as store:
        if is_known:
            store.note_damage(damage())
        begun = trying_twice(store.begin)
        added = trying_twice(partial(store.add, begun.id, "user", "And on."))
        assert [each.id for each in store.tree(begun.id).values()] == [added.id]
        assert 0 < added.id < 2**62
        assert messages_of(store) in {NUM_CONVERSATIONS * NUM_MESSAGES + each for each in (1, 2)}
        if "recovered" in store.notice:
            assert all(store.tree(each.id).branch(each.leaf) for each in store.conversations())


def refuse(*_: object) -> None:
    """Fail as a file does that cannot be opened, for example for want of descriptors."""
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    raise error


@pytest.mark.parametrize("failing", ["recover", "Database._connect"])
def test_a_recovery_that_fails_is_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Once there is space or whatever lacked, the next use succeeds."""
    with Store(path) as store:
        store.note_damage(damage())
        monkeypatch.setattr(database_module, "COPY_AGAIN_SECONDS", 0.0)
        with monkeypatch.context() as patch:
            if failing == "recover":
                patch.setattr(database_module, "recover", refuse)
            else:
                whole = recover

                def recovered(*paths: Path) -> tuple[int, int]:
                    patch.setattr(Database, "_connect", refuse)
                    return whole(*paths)

                patch.setattr(database_module, "recover", recovered)
            for _ in range(2):
                with pytest.raises(StoreFailed, match="unable to open") as raised:
                    messages_of(store)
                assert not isinstance(raised.value, StoreBusy)
                store.set_busy_timeout(1.0)
        assert trying_twice(partial(messages_of, store)) == NUM_CONVERSATIONS * NUM_MESSAGES
        assert "recovered" in store.notice
        assert len(list(path.parent.glob("*.damaged-*.db"))) == 1


def test_a_recovery_that_fails_is_not_tried_at_each_use(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The screen waits for it; what fails meanwhile says why, and the end tries once more."""
    tries = list[object]()

    def fail(*given: object) -> None:
        tries.append(given)
        refuse()

    with Store(path) as store:
        store.note_damage(damage())
        with monkeypatch.context() as patch:
            patch.setattr(database_module, "recover", fail)
            patch.setattr(database_module, "COPY_AGAIN_SECONDS", 3600.0)
            for _ in range(3):
                with pytest.raises(StoreFailed, match="unable to open"):
                    messages_of(store)
        assert len(tries) == 1
    assert "recovered" in store.notice


def test_what_another_program_recovered_is_opened_once_it_can_be(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A use that fails leaves that to the next one."""
    with Store(path) as first, Store(path) as second:
        second.note_damage(damage())
        trying_twice(partial(messages_of, second))
        with monkeypatch.context() as patch:
            patch.setattr(Database, "_connect", refuse)
            with pytest.raises(StoreFailed, match="unable to open"):
                messages_of(first)
        assert messages_of(first) == NUM_CONVERSATIONS * NUM_MESSAGES
        first.add(1, "user", "And on.")
        assert messages_of(second) == NUM_CONVERSATIONS * NUM_MESSAGES + 1


def test_a_damaged_file_that_was_moved_is_not_replaced_by_an_empty_one(path: Path) -> None:
    """Nor by another one, in which the numbers of its rows say nothing."""
    with Store(path) as store:
        path.rename(path.with_name("elsewhere.db"))
        for _ in range(2):
            store.note_damage(damage())
            with pytest.raises(StoreFailed, match="moved, deleted or replaced"):
                messages_of(store)
        assert not path.exists()
        path.with_name("elsewhere.db").rename(path)
        assert trying_twice(partial(messages_of, store)) == NUM_CONVERSATIONS * NUM_MESSAGES


def test_the_recovery_needs_space(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it nothing is moved, and the error says that the store is damaged."""

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with_page_zeroed(path, 0)
    before = path.read_bytes()
    monkeypatch.setattr("specchat.chat.database.recover", fail)
    with pytest.raises(StoreFailed, match=r"is damaged, and .* \(database or disk is full\)"):
        Store(path)
    assert [each.name for each in path.parent.iterdir()] == ["history.db"]
    assert path.read_bytes() == before


@pytest.mark.parametrize("number", [10**9, 2**62])
def test_a_damaged_row_number_of_an_image_costs_no_reading(path: Path, number: int) -> None:
    """Nor does it keep the chat from opening: only rows that are there are read."""
    with Store(path) as store:
        conversation = store.begin()
        store.add(conversation.id, "user", "look", images=[Image(b"\x89PNG of a cat", "cat.png")])
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE image SET rowid = ?", (number,))
    fresh = path.with_name("fresh.db")
    Database(fresh).close()
    recover(path, fresh)
    with Store(fresh) as store:
        [(_, images)] = store.images.by_message(conversation.id).items()
        assert [each.data for each in images] == [b"\x89PNG of a cat"]


def test_rows_that_are_damaged_and_far_apart_end_the_search() -> None:
    """Those before them are found; each range around them would have to be divided."""
    rows, lost, asked = [1, 2, 3, 2**51], range(5, 2**50), list[tuple[int, int]]()

    class Damaged:
        def execute(self, _: str, numbers: tuple[int, int]) -> Damaged:
            asked.append(numbers)
            if numbers[0] < lost.stop and numbers[1] >= lost.start:
                raise damage()
            return self

        def fetchall(self) -> list[tuple[int]]:
            first, last = asked[-1]
            return [(row,) for row in rows if first <= row <= last]

    source: Any = Damaged()
    found = list(_readable(source, "", 1, 2**51, iter(range(1000))))
    assert found[:3] == [(1,), (2,), (3,)]
    assert len(asked) <= 2 * 1000 + 1
