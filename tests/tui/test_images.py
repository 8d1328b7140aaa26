"""Images in the chat: attached, checked, sent with every question after them, and shown."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from hashlib import sha256
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from textual.events import Paste
from textual.geometry import Size
from textual.pilot import Pilot
from textual.widgets import Static

from conftest import WriteModel
from engine.test_lossless import EXACT
from image_files import encoded, image, picture
from scripted_chat import Script, chat
from scripts.support.tiny_gguf import write_projector
from specchat.chat.store import Store
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import NotDecodedNow
from specchat.images.image import Image
from specchat.images.picture import Picture
from specchat.images.thumbnail import Thumbnail
from specchat.options.declarations import ScreenOptions
from specchat.tui.app import ChatApp
from specchat.tui.controllers.image_checks import ImageChecks
from specchat.tui.mentions import mention_of, named_files, pasted_files, without_mention
from specchat.tui.setup import PairChoice, Setup
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.image_view import ImageView
from specchat.tui.widgets.protocol_picture import protocol_widgets
from specchat.tui.widgets.shown_picture import BlockPicture, block_strips, cells_of, way_of
from tui.driving import PATIENCE, frame_text, panel_text, race, say, screen_text, status, until

pytestmark = pytest.mark.anyio
SIZE = (100, 40)
CAT = encoded(picture(1))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that the chat is opened in, with two images; nothing is set up for them."""
    (tmp_path / "cat.png").write_bytes(CAT)
    (tmp_path / "my dog.jpg").write_bytes(encoded(picture(2, (200, 100)), "JPEG"))
    (tmp_path / "broken.png").write_bytes(CAT[:200])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("specchat.system.clone.set_up_images", lambda *_, **__: "")
    return tmp_path


def attached(app: ChatApp) -> str:
    """Return the lines about images above the composer."""
    line = app.query_one("#attached", Static)
    return str(line.content) if line.display else ""


def shown_to(script: Script, number: int = -1) -> list[bytes]:
    """Return the images of a request, in the order in which its messages show them."""
    messages, options = script.asked[number]
    text = " ".join(message["content"] for message in messages)
    images = sorted(options["images"], key=lambda each: text.index(each.mark))
    return [each.data for each in images]


def copied_name(data: bytes) -> str:
    """Return the name that a copied picture gets in any chat."""
    return f"copied-{sha256(data).hexdigest()[:8]}.png"


async def attach_copied(pilot: Pilot[None], data: bytes) -> None:
    """Attach the copied picture, and wait until its name is shown."""
    app = pilot.app
    assert isinstance(app, ChatApp)
    await pilot.press(*"/attach", "enter")
    await until(pilot, lambda: copied_name(data) in attached(app))


def wait_for(event: threading.Event, *_: object, **__: object) -> str:
    """Set up what reads images once an event has happened."""
    event.wait(PATIENCE)
    return ""


async def ask(pilot: Pilot[None], script: Script, text: str) -> None:
    """Ask something with images, which are checked first, and wait for the answer."""
    app, before = pilot.app, len(script.asked)
    assert isinstance(app, ChatApp)
    await say(pilot, text, wait=False)
    await until(pilot, lambda: len(script.asked) > before and app.answers.current is None)


def test_images_are_named_as_texts_are(folder: Path) -> None:
    """In quotation marks with spaces; one that is gone is taken from before."""
    named = named_files('Compare @cat.png with @"my dog.jpg".', folder)
    assert [each.name for each in named.images] == ["cat.png", "my dog.jpg"]
    assert named.attachments == []
    (folder / "cat.png").unlink()
    before = [Image(CAT, "cat.png")]
    assert named_files("@cat.png", folder, before).images == before
    assert named_files("@cat.png", folder).missing == ["cat.png"]


async def test_a_copied_picture_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no file; without one, a line says so."""
    copied = [encoded(picture(7)), encoded(picture(8)), b""]
    monkeypatch.setattr("specchat.tui.actions.attaching.image_in_clipboard", lambda: copied.pop(0))
    script = Script(["One.", "Two."], takes_images=True)
    app = chat(script)
    first, second = copied[:2]
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        composer = app.query_one(Composer)
        await attach_copied(pilot, first)
        app.actions.attaching.attach()  # as from the palette, in the middle of a message
        await until(pilot, lambda: copied_name(second) in attached(app))
        assert composer.text == f"@{copied_name(first)} @{copied_name(second)} "
        await pilot.press(*"What?", "enter")
        await until(pilot, lambda: len(script.asked) == 1 and app.answers.current is None)
        assert shown_to(script) == [first, second]
        await pilot.press(*"/attach", "enter")
        await until(pilot, lambda: "No copied picture came from" in screen_text(app))
        assert composer.text == ""


async def test_quitting_waits_for_no_copied_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be seconds away; a line says that the chat waits for it."""
    hold, threads = threading.Event(), list[threading.Thread]()

    def copied() -> bytes:
        threads.append(threading.current_thread())
        wait_for(hold)
        return CAT

    monkeypatch.setattr("specchat.tui.actions.attaching.image_in_clipboard", copied)
    app = chat(Script([], takes_images=True))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*"/attach", "enter")
        await until(pilot, lambda: bool(threads))
        await until(pilot, lambda: status(app) == "waiting for the copied picture")
        assert threads[0].daemon  # Python waits for those of asyncio
        hold.set()
        await until(pilot, lambda: copied_name(CAT) in attached(app))
        assert "waiting" not in status(app)


async def test_a_copied_picture_stays_for_a_text_that_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another message was written meanwhile, and got a picture by another name."""
    copied = [encoded(picture(7)), encoded(picture(8))]
    first, second = copied
    monkeypatch.setattr("specchat.tui.actions.attaching.image_in_clipboard", lambda: copied.pop(0))
    script = Script(["One."], takes_images=True)
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        composer = app.query_one(Composer)
        await attach_copied(pilot, first)
        composer.rewrite("@cat.png ")
        await until(pilot, lambda: "cat.png" in attached(app))
        composer.rewrite("")
        await attach_copied(pilot, second)
        await ask(pilot, script, f"@{copied_name(first)} What is it?")
    assert shown_to(script) == [first]


async def test_a_question_is_not_sent_without_its_copied_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is recalled from an earlier chat; a picture that was copied since is another one."""
    copied, history = [encoded(picture(7)), encoded(picture(8))], tmp_path / "data" / "history.db"
    first, second = copied
    monkeypatch.setattr("specchat.tui.actions.attaching.image_in_clipboard", lambda: copied.pop(0))
    script, text = Script(["One."], takes_images=True), f"@{copied_name(first)} What is it?"
    app = chat(script, history)
    async with app.run_test(size=SIZE) as pilot:
        await attach_copied(pilot, first)
        await ask(pilot, script, text)
    app = chat(script, history)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await attach_copied(pilot, second)
        composer = app.query_one(Composer)
        composer.rewrite("")
        await until(pilot, lambda: attached(app) == "")
        await pilot.press("up", "up")  # the command was the last input
        assert composer.text == text
        await pilot.press("enter")
        gone = f"@{copied_name(first)} is gone: copy it again"
        await until(pilot, lambda: gone in screen_text(app))
        assert composer.text == text
    assert len(script.asked) == 1
    assert shown_to(script) == [first]


async def test_a_picture_is_attached_in_a_folder_that_cannot_be_entered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its name cannot be that of a file which cannot be read."""
    whole = Path.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if path.name.startswith("copied-"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return whole(path, **options)

    monkeypatch.setattr("specchat.tui.actions.attaching.image_in_clipboard", lambda: CAT)
    monkeypatch.setattr(Path, "stat", refuse)
    app = chat(Script([], takes_images=True))
    async with app.run_test(size=SIZE) as pilot:
        await attach_copied(pilot, CAT)
    assert not app.failure


def test_pasted_paths_of_images_are_mentions(folder: Path) -> None:
    """As terminals paste them when a picture is dropped."""
    assert pasted_files(f"'{folder}/my dog.jpg'", folder) == ['@"my dog.jpg"']
    assert pasted_files(f"{folder}/cat.png", folder) == ["@cat.png"]


def test_mentions_are_made_and_taken_out(folder: Path) -> None:
    """All of a file, and none of another whose name begins alike."""
    assert mention_of("'my dog.jpg'", folder) == '@"my dog.jpg"'
    text = 'See @cat.png, @cat.png.old and @"my dog.jpg" @cat.png'
    assert without_mention(text, "cat.png") == 'See , @cat.png.old and @"my dog.jpg" '
    assert without_mention(text, "my dog.jpg") == "See @cat.png, @cat.png.old and @cat.png"


async def test_an_image_is_shown_before_and_after_it_is_sent() -> None:
    """With its size and its tokens; the question begins with it."""
    script = Script(takes_images=True)
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.state.pair_controller.facts is not None)
        app.query_one(Composer).text = "What is @cat.png?"
        words = "▣ cat.png · 64 by 64 pixels · 12 tokens · remove"
        await until(pilot, lambda: attached(app) == words)
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.query(BlockPicture)))
        assert attached(app) == ""
        await until(pilot, lambda: "▀" * 32 in screen_text(app))
        assert "▾ cat.png · 64 by 64 pixels · 12.4 kB" in screen_text(app)
        app.query_one(ImageView).toggle()
        await until(pilot, lambda: "▀" not in screen_text(app))
    (message,), options = script.asked[0]
    (sent,) = options["images"]
    assert sent.data == CAT
    assert message["content"] == f"{sent}What is @cat.png?"


async def test_images_stay_in_the_conversation(folder: Path, tmp_path: Path) -> None:
    """With the next question, after another answer and an edit, in a race, and in the next chat."""
    script, history = Script(["One.", "Two."], takes_images=True), tmp_path / "data" / "history.db"
    app = chat(script, history)
    async with app.run_test(size=SIZE) as pilot:
        await ask(pilot, script, '@cat.png @"my dog.jpg" Which?')
        both = [CAT, (folder / "my dog.jpg").read_bytes()]
        assert shown_to(script) == both
        await pilot.press("f5")
        await until(pilot, lambda: app.answers.current is None and len(script.asked) == 2)
        assert shown_to(script) == both
        await race(pilot)
        assert all(shown_to(script, number) == both for number in range(2, len(script.asked)))
        await pilot.press("escape")
        await ask(pilot, script, "And now?")
        assert shown_to(script) == both
        (folder / "cat.png").unlink()
        app.state.questions.editing = app.conversations.branch[0].id
        await ask(pilot, script, "@cat.png alone")
        assert shown_to(script) == [CAT]
    app = chat(script, history)
    async with app.run_test(size=SIZE) as pilot:
        app.actions.conversations.state.conversations.open(1)
        await app.view.show_branch()
        await until(pilot, lambda: bool(app.query(BlockPicture)))
        await ask(pilot, script, "Again?")
        assert shown_to(script) == [CAT]


async def test_the_screen_waits_for_no_bytes_of_an_image(tmp_path: Path) -> None:
    """They are written ahead, in a thread, also if they were checked before they were sent."""
    script, history = Script(takes_images=True), tmp_path / "data" / "history.db"
    app = chat(script, history)
    async with app.run_test(size=SIZE) as pilot:
        statements: list[str] = []
        app.conversations.store._connection.set_trace_callback(statements.append)
        app.query_one(Composer).text = "What is @cat.png?"
        await until(pilot, lambda: "64 by 64 pixels" in attached(app))
        await pilot.press("enter")
        await until(pilot, lambda: bool(script.asked) and app.answers.current is None)
        assert any("INTO shown" in each for each in statements)
        assert not any("INTO image" in each for each in statements)
    with Store(history) as store:
        assert [each.data for each in store.tree(1)[1].images] == [CAT]


async def test_a_new_conversation_is_stored_before_its_images_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be refused meanwhile: a store has one writer at a time."""
    script, history = Script(takes_images=True), tmp_path / "data" / "history.db"
    app = chat(script, history)
    numbers = list[int | None]()
    begin = ImageChecks.begin

    def note(checks: ImageChecks, *given: Any) -> bool:
        numbers.append(app.conversations.number)
        return begin(checks, *given)

    monkeypatch.setattr(ImageChecks, "begin", note)
    async with app.run_test(size=SIZE) as pilot:
        await ask(pilot, script, "What is @cat.png?")
    assert numbers[0] == 1


async def test_an_image_that_is_gone_from_the_history_is_named(tmp_path: Path) -> None:
    """Where it would be shown; the rest of its conversation is."""
    script, history = Script(takes_images=True), tmp_path / "data" / "history.db"
    with Store(history) as store:
        number = store.begin().id
        first = store.add(number, "user", "What is it?", images=[replace(image(9), name="a.png")])
        store.write(store.add(number, "assistant", "A cat.", first.id).id, "A cat.", finish="stop")
    app = chat(script, history)
    async with app.run_test(size=SIZE) as pilot:
        app.conversations.open(number)
        with closing(sqlite3.connect(history)) as file, file:
            file.execute("DELETE FROM image")
        await app.view.show_branch()
        words = "a.png is no longer in the history"
        await until(pilot, lambda: words in screen_text(app))
        assert "A cat." in screen_text(app)


async def test_a_question_waits_while_its_images_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In sight, and kept as one that waits; the chat goes on meanwhile, and says what it does."""
    hold = threading.Event()

    def set_up(on_line: Callable[[str], object], **_: bool) -> str:
        on_line("building what reads images")
        return wait_for(hold)

    monkeypatch.setattr("specchat.system.clone.set_up_images", set_up)
    script = Script(takes_images=True)
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "What is @cat.png?", wait=False)
        await until(pilot, lambda: "Queued: What is @cat.png?" in frame_text(app))
        await until(pilot, lambda: status(app) == "building what reads images")
        assert script.asked == []
        hold.set()
        await until(pilot, lambda: bool(script.asked) and app.answers.current is None)
        assert "Queued" not in frame_text(app)
        assert "building" not in status(app)
    assert shown_to(script) == [CAT]


async def test_questions_keep_their_order_while_images_are_checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without images waits for one before it, which keeps files that are gone meanwhile."""
    hold = threading.Event()
    monkeypatch.setattr("specchat.system.clone.set_up_images", partial(wait_for, hold))
    script = Script(takes_images=True)
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "What is @cat.png?", wait=False)
        await say(pilot, "And @broken.png?", wait=False)
        await say(pilot, "Why?", wait=False)
        await until(pilot, lambda: "Queued: What is @cat.png? (+2)" in frame_text(app))
        (folder / "cat.png").unlink()
        hold.set()
        await until(pilot, lambda: len(script.asked) == 2 and app.answers.current is None)
        questions = [each.text for each in app.conversations.branch if each.role == "user"]
        assert questions == ["What is @cat.png?", "Why?"]
        assert app.query_one(Composer).text == "And @broken.png?"
    assert shown_to(script, 0) == [CAT]


async def test_a_check_that_fails_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it raises; what is sent again once that is cured is asked."""

    def fail(*_: object, **__: object) -> None:
        raise OSError("too many processes")

    monkeypatch.setattr("specchat.system.clone.set_up_images", fail)
    script = Script(takes_images=True)
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "What is @cat.png?", wait=False)
        await until(pilot, lambda: bool(app.query_one(Composer).text))
        said = "cat.png cannot be checked: too many processes"
        assert app.notices.latest[-1].message == said
        await until(pilot, lambda: attached(app) == f"▣ {said} · remove")
        monkeypatch.setattr("specchat.system.clone.set_up_images", lambda *_, **__: "")
        app.query_one(Composer).text = "What is it? @cat.png"
        await until(pilot, lambda: "64 by 64 pixels" in attached(app))
        await pilot.press("enter")
        await until(pilot, lambda: bool(script.asked) and app.answers.current is None)
    assert shown_to(script) == [CAT]


async def test_what_could_not_be_decoded_is_tried_again_once_it_is_sent(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each pause in typing it would take as long."""
    given, tries, said = encoded(picture(3)), list[str](), "cat.png takes more than 30 s to decode"

    def fail(image: Image) -> None:
        tries.append(image.name)
        raise NotDecodedNow(said)

    script = Script(takes_images=True)
    (folder / "cat.png").write_bytes(given)
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        with monkeypatch.context() as patch:
            patch.setattr("specchat.images.thumbnail.picture_of", fail)
            composer = app.query_one(Composer)
            composer.text = "What is @cat.png?"
            await until(pilot, lambda: attached(app) == f"▣ {said} · remove")
            composer.text = ""
            await until(pilot, lambda: attached(app) == "")
            composer.text = "What is that @cat.png?"
            await until(pilot, lambda: attached(app) == f"▣ {said} · remove")
            assert tries == ["cat.png"]
        await pilot.press("enter")
        await until(pilot, lambda: bool(script.asked) and app.answers.current is None)
    assert shown_to(script) == [given]


async def test_a_set_up_that_failed_is_why_an_image_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a line beside it says; sending it tries again, once for all its images."""
    reason, attempts = "images cannot be read: no compiler", [False]

    def fail(_: object, *, again: bool = False) -> str:
        attempts.extend([True] * again)
        return reason

    monkeypatch.setattr("specchat.system.clone.set_up_images", fail)
    script = Script(takes_images=True)
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        app.query_one(Composer).text = 'What is @cat.png? And @"my dog.jpg"?'
        await until(pilot, lambda: attached(app).count(f"▣ {reason} · remove") == 2)
        assert attempts == [False]
        for count in (1, 2):
            app.notices.latest.clear()
            await pilot.press("enter")
            await until(pilot, lambda: bool(app.notices.latest))
            assert [each.message for each in app.notices.latest] == [reason]
            assert attempts == [False] + [True] * count
        monkeypatch.setattr("specchat.system.clone.set_up_images", lambda *_, **__: "")
        await pilot.press("enter")
        await until(pilot, lambda: bool(script.asked) and app.answers.current is None)
    assert shown_to(script)[0] == CAT


async def test_why_images_cannot_be_read_here_is_said_instead_of_the_model() -> None:
    """It has a projector; what is missing is something else."""
    script, reason = Script(), "images need Pillow: run `pip install pillow`"
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.state.pair_controller.facts is not None)
        facts = app.state.pair_controller.facts
        assert facts is not None
        app.state.pair_controller.facts = replace(facts, images_off_reason=reason)
        app.query_one(Composer).text = "What is @cat.png?"
        words = f"▣ cat.png · 64 by 64 pixels · {reason} · remove"
        await until(pilot, lambda: attached(app) == words)
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.query_one(Composer).text))
        assert app.notices.latest[-1].message == reason
    assert script.asked == []


async def test_a_broken_image_is_not_sent() -> None:
    """A line says so while the message is written; sending it puts it back."""
    script = Script(takes_images=True)
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        app.query_one(Composer).text = "What is @broken.png?"
        await until(pilot, lambda: attached(app) == "▣ broken.png is damaged or cut off · remove")
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.query_one(Composer).text))
        assert app.query_one(Composer).text == "What is @broken.png?"
        assert app.notices.latest[-1].message == "broken.png is damaged or cut off"
        await pilot.pause()  # the line is shown anew with the message that is put back
        await until(pilot, lambda: "remove" in screen_text(app))
        await pilot.click("#attached", offset=(41, 0))
        await until(pilot, lambda: attached(app) == "")
        assert app.query_one(Composer).text == "What is ?"
    assert script.asked == []
    assert app.conversations.branch == []


async def test_a_model_that_reads_text_only_gets_no_image() -> None:
    """The line says so, and so does sending it; the message stays."""
    script = Script()
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.state.pair_controller.facts is not None)
        app.query_one(Composer).text = "What is @cat.png?"
        words = "▣ cat.png · 64 by 64 pixels · this model reads text only · remove"
        await until(pilot, lambda: attached(app) == words)
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.query_one(Composer).text))
        assert app.query_one(Composer).text == "What is @cat.png?"
        said = "This model reads text only. F8 switches to a model with a projector (mmproj)."
        assert app.notices.latest[-1].message == said
        await until(pilot, lambda: attached(app) == words)
    assert script.asked == []


async def test_a_chat_with_images_asks_for_a_model_that_reads_them(tmp_path: Path) -> None:
    """Before anything is stored; a new version of its first question needs none."""
    history = tmp_path / "data" / "history.db"
    with Store(history) as store:
        number = store.begin().id
        first = store.add(number, "user", "What is it?", images=[Image(CAT, "cat.png")])
        last = store.add(number, "assistant", "A cat.", first.id)
        store.write(last.id, "A cat.", finish="length")
    script = Script()
    app = chat(script, history)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.state.pair_controller.facts is not None)
        await app.actions.conversations.open(number)
        said = (
            "This model reads text only, and this chat has images. F8 switches to a model with a"
            " projector (mmproj), Ctrl+N starts a new chat."
        )
        await say(pilot, "Why?", wait=False)
        await until(pilot, lambda: app.query_one(Composer).text == "Why?")
        assert app.notices.latest[-1].message == said
        await app.state.questions.regenerate()
        assert [each.message for each in app.notices.latest][-1] == said
        assert app.answers.current is None
        assert list(app.conversations.tree) == [first.id, last.id]
        for act in (
            app.state.questions.go_on,
            partial(app.state.questions.branch_off, last.id, (), "Scripted 8B"),
            partial(app.state.races.run, lambda _: None),
        ):
            app.notices.latest.clear()
            await act()
            assert [each.message for each in app.notices.latest] == [said]
            assert app.answers.current is None
        assert list(app.conversations.tree) == [first.id, last.id]
        app.query_one(Composer).text = ""
        app.state.questions.editing = first.id
        await say(pilot, "Hello")
    assert len(script.asked) == 1


async def test_images_are_attached_by_a_command_and_by_dropping(folder: Path) -> None:
    """Both write a mention, which a message that waits keeps."""
    script = Script(takes_images=True)
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        composer = app.query_one(Composer)
        await say(pilot, "/attach cat.png", wait=False)
        await until(pilot, lambda: composer.text == "@cat.png ")
        app.post_message(Paste(f"{folder}/my\\ dog.jpg"))
        await until(pilot, lambda: composer.text == '@cat.png @"my dog.jpg" ')
        await until(pilot, lambda: attached(app).count("\n") == 1)
        await say(pilot, "/attach none.png", wait=False)
        await until(pilot, lambda: "No file none.png." in app.notices.latest[-1].message)
        await say(pilot, "/attach", wait=False)
        await until(pilot, lambda: "Use /attach FILE" in app.notices.latest[-1].message)


async def test_the_panel_counts_images_apart() -> None:
    """Their tokens and seconds, where an answer has any."""
    app = chat(Script())
    async with app.run_test(size=(150, 60)) as pilot:
        await say(pilot, "Hello")
        assert "images" not in panel_text(app)
        stats = app.answers.figures.statistics
        stats.image_tokens, stats.image_s = 256, 1.23
        app.view.show_state()
        (line,) = (each for each in panel_text(app).splitlines() if "images" in each)
        assert line.split() == ["images", "256", "tokens,", "1.2", "s"]


@pytest.mark.parametrize(
    ("chosen", "variables", "way"),
    [
        ("auto", {"TERM": "xterm-kitty"}, "kitty"),
        ("auto", {"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ("auto", {"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1", "VTE_VERSION": "7"}, "blocks"),
        ("auto", {"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1", "NVIM": "/run/nvim"}, "blocks"),
        ("auto", {"TERM": "xterm", "KITTY_WINDOW_ID": "1", "TERM_PROGRAM": "vscode"}, "blocks"),
        ("auto", {"TERM": "xterm", "KITTY_WINDOW_ID": "1", "KONSOLE_VERSION": "24"}, "blocks"),
        ("auto", {"TERM": "st-256color", "KITTY_WINDOW_ID": "1"}, "blocks"),
        ("auto", {"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1", "TMUX": "0,1,0"}, "blocks"),
        ("auto", {"TERM": "xterm-kitty", "TMUX": "default,1,0"}, "blocks"),
        ("auto", {"TERM": "xterm-kitty", "TERM_PROGRAM": "WezTerm"}, "kitty"),
        ("auto", {"TERM": "foot", "KITTY_WINDOW_ID": "1"}, "sixel"),
        ("auto", {"TERM": "xterm", "KONSOLE_VERSION": "24", "XTERM_VERSION": "4"}, "blocks"),
        ("auto", {"TERM": "foot"}, "sixel"),
        ("auto", {"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "sixel"),
        ("auto", {"TERM": "xterm-256color", "KONSOLE_VERSION": "240201"}, "sixel"),
        ("auto", {"TERM": "xterm-256color"}, "blocks"),
        ("sixel", {"TERM": "tmux-256color", "TMUX": "1"}, "sixel"),
        ("kitty", {}, "kitty"),
        ("blocks", {"TERM": "xterm-kitty"}, "blocks"),
        ("off", {"TERM": "xterm-kitty"}, "off"),
    ],
)
def test_the_way_to_show_a_picture_follows_the_terminal(
    monkeypatch: pytest.MonkeyPatch, chosen: str, variables: dict[str, str], way: str
) -> None:
    """Or what the user chose; in half blocks without textual-image, in words without colours."""
    for is_here, has_colours, expected in (
        (True, True, way),
        (False, True, way if way == "off" else "blocks"),
        (True, False, "off" if chosen == "auto" else way),
    ):
        monkeypatch.setattr(f"{way_of.__module__}.is_installed", lambda found=is_here: found)
        assert way_of(chosen, variables, has_colours=has_colours) == expected


@pytest.mark.parametrize("way", ["kitty", "sixel"])
async def test_a_terminals_protocol_shows_the_picture(
    monkeypatch: pytest.MonkeyPatch, way: Any
) -> None:
    """In as many cells as half blocks would take; the terminal is asked nothing."""
    pytest.importorskip("textual_image", exc_type=ImportError)
    terminal = StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.__stdout__", terminal)
    script = Script(takes_images=True)
    app = chat(script, screen=ScreenOptions(pictures=way))
    async with app.run_test(size=SIZE) as pilot:
        await ask(pilot, script, "What is @cat.png?")
        place = app.query_one(ImageView).query_one(".picture")
        await until(pilot, lambda: bool(place.children))
        await until(pilot, lambda: place.children[0].size == Size(32, 16))
        written = terminal.getvalue()
    asked = ("\x1b[c", "\x1b[16t", "a=q")
    assert not any(each in written for each in asked)
    if way == "kitty":
        assert "U=1" in written
        assert "c=32,r=16" in written


async def test_another_textual_image_shows_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what keeps it from asking the terminal it is not used, and the chat goes on."""
    monkeypatch.setitem(sys.modules, "textual_image", ModuleType("textual_image"))
    monkeypatch.delitem(sys.modules, "textual_image._terminal", raising=False)
    protocol_widgets.cache_clear()
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await app.screen.mount(ImageView(Image(CAT, "cat.png"), "kitty"))
        await until(pilot, lambda: bool(app.query(BlockPicture)))


async def test_decoding_takes_no_thread_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports and searches go on while pictures wait for their turn."""
    hold, begun = threading.Event(), threading.Event()

    def decode(*_: object) -> Thumbnail:
        begun.set()
        hold.wait(2 * PATIENCE)
        return Thumbnail(1, 1, Picture(1, 1, bytes(3)))

    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        monkeypatch.setattr("specchat.images.thumbnail.thumbnail_of", decode)
        await app.screen.mount(ImageView(Image(CAT, "cat.png"), "blocks"))
        try:
            await until(pilot, begun.is_set)
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), PATIENCE) == "free"
        finally:
            hold.set()


async def test_without_colours_a_line_stands_for_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its name and size, and it is not decoded for that."""
    monkeypatch.setattr("specchat.tui.appearance.Appearance.has_colours", lambda _: False)
    script = Script(takes_images=True)
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await ask(pilot, script, "What is @cat.png?")
        assert "▣ cat.png · 12.4 kB" in screen_text(app)
        assert not app.query(ImageView)


def test_half_blocks_are_the_pixels() -> None:
    """Two in a cell, the upper one in the colour of the text; never larger than the picture."""
    pixels = bytes([255, 0, 0] * 2 + [0, 255, 0] * 2 + [0, 0, 255] * 2 + [9, 9, 9] * 2)
    strips = block_strips(Picture(2, 4, pixels), Size(2, 2))
    styles = [[str(each.style) for each in strip] for strip in strips]
    assert styles == [["#ff0000 on #00ff00"] * 2, ["#0000ff on #090909"] * 2]
    assert [strip.text for strip in strips] == ["▀▀", "▀▀"]


@pytest.mark.parametrize(
    ("size", "room", "cells"),
    [
        ((640, 480), 100, (43, 16)),
        ((640, 160), 100, (48, 6)),
        ((640, 160), 20, (20, 2)),
        ((4, 2000), 100, (1, 16)),
        ((2000, 4), 100, (48, 1)),
        ((8, 8), 100, (8, 4)),
        ((1, 1), 100, (1, 1)),
    ],
)
def test_a_picture_keeps_its_shape(
    size: tuple[int, int], room: int, cells: tuple[int, int]
) -> None:
    """Within its room, and within a part of the screen."""
    assert cells_of(Picture(*size, b""), room) == cells


@pytest.mark.slow
@pytest.mark.usefixtures("image_library")
async def test_a_model_reads_what_the_chat_shows(tiny: WriteModel, folder: Path) -> None:
    """The tokens that are counted before are those of the prompt; other images, other answers."""
    projector = write_projector(folder / "mmproj.gguf", "mlp")
    loading = Loading(tiny("llama"), tiny("llama", "half right"), projector=projector, **EXACT)
    options: dict[str, Any] = {"temperature": 0.0, "max_tokens": 24}
    pair = PairChoice("tiny", "for tests", loading, options)
    app = ChatApp(Setup(pair, offers=list, history=None), load=LocalEngine)
    (folder / "bird.png").write_bytes(replace(image(3), name="bird.png").data)
    answers = []
    async with app.run_test(size=(150, 50)) as pilot:
        for name in ("cat.png", "bird.png", "cat.png"):
            await pilot.press("ctrl+n")
            app.query_one(Composer).text = f"@{name} aa aa aa"
            await until(pilot, lambda: "64 tokens · remove" in attached(app))
            await pilot.press("enter")
            await until(pilot, lambda: bool(app.conversations.branch))
            await until(pilot, lambda: app.answers.current is None)
            last = app.conversations.last
            assert last is not None
            assert last.statistics["image_tokens"] == 64
            answers.append(last.text)
        assert "images" in panel_text(app)
    assert answers[0] == answers[2] != answers[1]
