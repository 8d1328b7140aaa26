"""Images of questions: stored once, exported, and gone with the last conversation that has them."""

from __future__ import annotations

import base64
import importlib.util
import json
import pickle
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import pytest

from image_files import image
from specchat.chat import recovery, tables
from specchat.chat.export import as_html, as_json, as_markdown
from specchat.chat.message_search import search_messages
from specchat.chat.store import Store
from specchat.chat.stored_images import ImageFiles
from specchat.errors import EngineFailed, StoreBusy, StoreFailed
from specchat.images.image import Image

CAT, DOG = replace(image(1), name="cat.png"), replace(image(2), name="dog <b>.png")
PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a store."""
    return tmp_path / "data" / "history.db"


def stored(path: Path) -> list[bytes]:
    """Return the files of images in a store, in order of their bytes."""
    with closing(sqlite3.connect(path)) as file:
        return sorted(data for (data,) in file.execute("SELECT data FROM image"))


def test_messages_keep_their_images_in_order(path: Path) -> None:
    """In every branch; a file that is shown twice is stored once."""
    with Store(path) as store:
        number = store.begin().id
        asked = store.add(number, "user", "@cat.png", images=[CAT, DOG, CAT])
        answer = store.add(number, "assistant", "A cat.", asked.id)
        store.add(number, "user", "@dog.png", None, images=[DOG])
        assert asked.images == (CAT, DOG, CAT)
        tree = store.tree(number)
    assert [each.images for each in tree.values()] == [(CAT, DOG, CAT), (), (DOG,)]
    assert [each.name for each in tree.images(answer.id)] == [CAT.name, DOG.name, CAT.name]
    assert stored(path) == sorted([CAT.data, DOG.data])


def test_turns_have_the_marks_of_their_images() -> None:
    """Before the text; each message has marks of its own."""
    with Store(None) as store:
        number = store.begin().id
        first = store.add(number, "user", "What is it?", images=[CAT, DOG])
        second = store.add(number, "assistant", "A cat.", first.id)
        third = store.add(number, "user", "And it?", second.id, images=[CAT])
        tree = store.tree(number)
    before, after = tree[first.id].images, tree[third.id].images
    turns = [turn["content"] for turn in tree.turns(third.id)]
    assert turns == [f"{before[0]}{before[1]}What is it?", "A cat.", f"{after[0]}And it?"]
    assert tree.images(third.id) == (*before, *after)
    assert len({each.mark for each in tree.images(third.id)}) == 3


def test_images_go_with_the_last_conversation_that_has_them(path: Path) -> None:
    """For good once it is purged; until then it can be restored."""
    with Store(path) as store:
        both, one = store.begin().id, store.begin().id
        question = store.add(both, "user", "@cat @dog", images=[CAT, DOG])
        store.add(one, "user", "@cat", images=[CAT])
        store.delete_messages([question.id])
        store.purge()
        store.delete_messages([question.id], undo=True)
        assert store.tree(both)[question.id].images == (CAT, DOG)
        store.delete(both)
        store.purge(0.0)
        assert stored(path) == [CAT.data]
        store.delete(one)
        store.purge(0.0)
    assert stored(path) == []


def test_searches_and_titles_know_only_the_text(path: Path) -> None:
    """Not the names of images, nor what is in them."""
    with Store(path) as store:
        number = store.begin().id
        store.add(number, "user", "What is it?", images=[CAT])
        assert store.conversation(number).title == "What is it?"
        assert search_messages(store, "cat") == search_messages(store, "PNG") == []
        assert len(search_messages(store, "what")) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_of_an_older_version_takes_images(path: Path, version: int) -> None:
    """It had no tables for them; what it has stays."""
    with Store(path) as store:
        number = store.begin().id
        asked = store.add(number, "user", "Before")
    with closing(sqlite3.connect(path)) as file:
        file.executescript("DROP TABLE shown; DROP TABLE image; DROP TABLE used")
        file.execute(f"PRAGMA user_version = {version}")
    for _ in range(2):
        with Store(path) as store:
            assert store.notice == ""
            store.add(number, "user", "@cat.png", asked.id, images=[CAT])
            assert [each.images for each in store.tree(number).values()][:2] == [(), (CAT,)]


def test_an_update_does_not_follow_the_tables_of_later_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It makes those of the next version, which the update after it expects."""
    later = tables.TABLES.replace("data BLOB NOT NULL\n", "data BLOB NOT NULL, width INTEGER\n")
    monkeypatch.setattr(Path, "read_text", lambda *_: later)
    spec = importlib.util.spec_from_file_location("later_tables", tables.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with closing(sqlite3.connect(":memory:")) as file:
        file.executescript(module.UPDATES[2])
        columns = [
            [each[1] for each in file.execute(f"PRAGMA table_info({table})")]
            for table in ("image", "shown")
        ]
    assert columns == [["digest", "data"], ["message", "place", "name", "digest"]]


def test_a_damaged_file_loses_only_the_images_that_were_damaged(path: Path) -> None:
    """What is left of the others is recovered with its message."""
    large = Image(bytes(range(256)) * 400, "large.png")
    with Store(path) as store:
        number = store.begin().id
        for picture in (CAT, large, DOG):
            store.add(number, "user", picture.name, images=[picture])
    content = bytearray(path.read_bytes())
    middle = content.index(bytes(range(256)) * 12) // PAGE + 1
    content[middle * PAGE : (middle + 1) * PAGE] = b"\xff" * PAGE
    path.write_bytes(content)
    with Store(path) as store:
        shown = {each.text: each.images[0] for each in store.tree(number).values()}
        assert (shown[CAT.name].data, shown[DOG.name].data) == (CAT.data, DOG.data)
        with pytest.raises(StoreFailed, match=r"^large.png cannot be read from the history"):
            shown[large.name].data  # noqa: B018
        with pytest.raises(StoreBusy, match="were recovered"):
            store.tree(number)
        found = {each.text: each.images for each in store.tree(number).values()}
        assert shown[CAT.name].data == CAT.data
        with pytest.raises(StoreFailed, match=r"^large.png is no longer in the history"):
            shown[large.name].data  # noqa: B018
    assert found == {CAT.name: (CAT,), DOG.name: (DOG,), "large.png": ()}


def test_closing_a_file_with_a_damaged_image_recovers_the_rest(path: Path) -> None:
    """So that a command which reads an image and ends there does not fail each time."""
    large = Image(bytes(range(256)) * 400, "large.png")
    with Store(path) as store:
        number = store.begin().id
        for picture in (CAT, large):
            store.add(number, "user", picture.name, images=[picture])
    content = bytearray(path.read_bytes())
    middle = content.index(bytes(range(256)) * 12) // PAGE + 1
    content[middle * PAGE : (middle + 1) * PAGE] = b"\xff" * PAGE
    path.write_bytes(content)
    with Store(path) as store, pytest.raises(StoreFailed, match="cannot be read"):
        as_json(store.conversation(number), store.tree(number))
    assert "1 conversations with 2 messages were recovered" in store.notice
    with Store(path) as store:
        as_json(store.conversation(number), store.tree(number))


def test_the_bytes_of_an_image_are_read_when_they_are_wanted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to open a conversation, nor to name an image with its size; in any thread, and later."""
    read: list[str] = []
    files_read = ImageFiles.read

    def note(files: ImageFiles, name: str, digest: bytes) -> bytes:
        read.append(name)
        return files_read(files, name, digest)

    monkeypatch.setattr(ImageFiles, "read", note)
    with Store(path) as store:
        number = store.begin().id
        store.add(number, "user", "What is it?", images=[CAT, DOG])
        tree = store.tree(number)
        assert "\n*Image: cat.png (12.4 kB)*\n" in as_markdown(store.conversation(number), tree)
    cat, dog = tree.images(1)
    assert (cat, dog) == (CAT, DOG)
    assert (hash(cat), cat.digest, cat.num_bytes) == (hash(CAT), CAT.digest, CAT.num_bytes)
    assert read == []
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(lambda: dog.data).result() == DOG.data
    assert read == [DOG.name]


def test_another_process_gets_an_image_without_its_bytes(path: Path) -> None:
    """It finds it where its mark stands; pickling reads nothing from the store."""
    with Store(path) as store:
        number = store.begin().id
        asked = store.add(number, "user", "What is it?", images=[CAT])
        (stored,) = store.tree(number)[asked.id].images
        sent = pickle.loads(pickle.dumps(stored))  # noqa: S301  # our own
        assert (sent, sent.mark, sent.num_bytes) == (CAT, stored.mark, CAT.num_bytes)
        with pytest.raises(EngineFailed, match="in another process"):
            assert sent.data
        store.delete(number)
        store.purge(0.0)
        pickle.dumps(stored)
        with pytest.raises(StoreFailed, match=r"^cat.png is no longer in the history"):
            assert stored.data


def test_an_image_that_is_kept_ahead_is_not_written_again(path: Path) -> None:
    """Adding its message, which the screen waits for, writes none of its bytes."""
    with Store(path) as store, ThreadPoolExecutor(1) as thread:
        number = store.begin().id
        thread.submit(store.images.keep, CAT).result()
        assert stored(path) == [CAT.data]
        statements: list[str] = []
        store._connection.set_trace_callback(statements.append)
        store.add(number, "user", "What is it?", images=[CAT])
        assert any(each.startswith("INSERT INTO shown") for each in statements)
        assert not any("INTO image" in each for each in statements)
    with Store(path) as store:
        assert [each.images for each in store.tree(number).values()] == [(CAT,)]


def test_a_write_waits_for_an_image_that_is_being_copied(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than for another program, which would be to blame for it."""
    has_begun, may_end = threading.Event(), threading.Event()

    class Copying(sqlite3.Connection):
        def execute(self, statement: str, *given: Any) -> sqlite3.Cursor:
            cursor = super().execute(statement, *given)
            if statement.startswith("INSERT"):  # within its transaction
                has_begun.set()
                assert may_end.wait(60)
            return cursor

    with Store(path, busy_timeout=0.0) as store, ThreadPoolExecutor(1) as thread:
        number = store.begin().id
        monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Copying))
        copied = thread.submit(store.images.keep, CAT)
        assert has_begun.wait(60)
        threading.Timer(0.2, may_end.set).start()
        store.add(number, "user", "What is it?")
        copied.result(60)
        monkeypatch.undo()
        with closing(sqlite3.connect(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy):
                store.add(number, "user", "And it?")
    assert stored(path) == [CAT.data]


def test_a_message_never_refers_to_an_image_that_is_gone(path: Path) -> None:
    """Another program may remove one that was kept ahead, which no message shows yet."""
    with Store(path) as store:
        number = store.begin().id
        store.images.keep(CAT)
        Store(path).close()  # it removes what no message shows
        assert stored(path) == []
        store.add(number, "user", "What is it?", images=[CAT])
    assert stored(path) == [CAT.data]


def test_an_image_that_cannot_be_kept_ahead_is_added_with_its_message(path: Path) -> None:
    """As for a store in memory, or while another program writes for long."""
    for place in (path, None):
        with Store(place) as store:
            number = store.begin().id
            if place:
                store.images._files = ImageFiles(path.parent, store.note_damage)
            store.images.keep(CAT)
            asked = store.add(number, "user", "What is it?", images=[CAT])
            assert store.rows("SELECT COUNT(*) FROM image", ()) == [(1,)]
            if place is None:
                assert store.tree(number)[asked.id].images == (CAT,)


def test_exports_have_images() -> None:
    """JSON and HTML have the files, Markdown names them; names are text."""
    with Store(None) as store:
        number = store.begin().id
        store.add(number, "user", "What is it?", images=[CAT, DOG])
        asked = store.conversation(number), store.tree(number)
    files = [base64.b64encode(each.data).decode() for each in (CAT, DOG)]
    page = as_html(*asked)
    assert all(f'src="data:image/png;base64,{file}"' in page for file in files)
    assert 'alt="dog &lt;b&gt;.png"' in page
    assert "default-src 'none'; img-src data:" in page
    found = json.loads(as_json(*asked))["messages"][0]["images"]
    assert found == [
        {"name": each.name, "data": data} for each, data in zip((CAT, DOG), files, strict=True)
    ]
    text = as_markdown(*asked)
    assert "\n*Image: cat.png (12.4 kB)*\n" in text
    assert "\n*Image: dog <b>.png (12.4 kB)*\n\nWhat is it?\n" in text


def test_an_image_kept_ahead_makes_no_file(path: Path) -> None:
    """SQLite would make one that others can read."""
    with Store(path) as store:
        for each in path.parent.glob(f"{path.name}*"):
            each.unlink()
        store.images.keep(CAT)
        assert not path.exists()


def test_the_address_of_a_file_on_a_share_has_no_server() -> None:
    """SQLite refuses one."""

    class Share(PurePosixPath):
        def resolve(self) -> PureWindowsPath:
            return PureWindowsPath(r"\\server\share\history.db")

    address = recovery.address_of(cast("Path", Share()), "ro")
    assert urlsplit(address).netloc == ""
    assert unquote(urlsplit(address).path) == r"\\server\share\history.db"
