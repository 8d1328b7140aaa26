"""Asking, editing, stopping and going on: whatever the user does between two answers."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from textual.widgets import OptionList, Static

from scripted_chat import Script, chat
from specchat.chat.store import Store
from specchat.errors import ContextFull, ModelWontLoad
from specchat.tui.app import ChatApp
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.fold import TextFold
from specchat.tui.widgets.message_views import AnswerView, MessageView
from specchat.tui.widgets.suggestions import Suggestions
from tui.driving import agree, frame_text, header_text, say, screen_text, status, type_keys, until

pytestmark = pytest.mark.anyio
SIZE = (120, 40)


def texts(app: ChatApp) -> list[str]:
    """Return what the messages on the screen say."""
    return [view.text for view in app.view.transcript.views]


def notes(app: ChatApp) -> str:
    """Return all notices that are shown."""
    return "\n".join(note.message for note in app._notifications)


def in_folder(monkeypatch: pytest.MonkeyPatch, folder: Path, **files: str) -> None:
    """Go to a folder that holds these text files."""
    for name, content in files.items():
        (folder / f"{name}.txt").write_text(content, "utf-8")
    monkeypatch.chdir(folder)


async def test_a_question_to_a_pair_that_does_not_load_fails_with_the_reason() -> None:
    """The answer ends at once, and the next question loads the pair again."""
    script = Script(load_error=ModelWontLoad("no GGUF file: choose another"))
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "no GGUF file" in status(app))
        await say(pilot, "Is anybody there?")
        assert texts(app) == ["Is anybody there?", ""]
        assert "no GGUF file" in screen_text(app)

        script.load_error = None
        await say(pilot, "And now?")
        assert texts(app)[-1] == "An answer."
        assert script.asked[0][0] == [{"role": "user", "content": "And now?"}]


async def test_a_question_can_be_taken_back_while_the_pair_loads() -> None:
    """Esc ends it at once, though the engine has not heard of it yet."""
    script = Script(load_hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Hello?", wait=False)
        await pilot.press("escape")
        assert app.answers.current is None
        assert script.load_hold is not None
        script.load_hold.set()
        await say(pilot, "Hello!")
        assert texts(app)[-1] == "An answer."


@pytest.mark.slow
@pytest.mark.parametrize("away", ["new", "other", "deleted"])
async def test_an_edit_that_is_left_becomes_a_question_of_its_own(
    away: str, tmp_path: Path
) -> None:
    """Its question is no longer there: in a new conversation, in another one, deleted."""
    app = chat(Script(), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "other")
        await pilot.press("ctrl+n")
        await say(pilot, "kept")
        await say(pilot, "edited")
        await pilot.press("shift+up", "up", "e")
        if away == "new":
            await pilot.press("ctrl+n")
        elif away == "other":
            await app.actions.conversations.open(1)
        else:
            await agree(pilot, "shift+up", "up", "d")
        await pilot.pause()
        await say(pilot, "asked")
        before = {"new": [], "other": ["other", "An answer."], "deleted": ["kept", "An answer."]}
        assert texts(app) == [*before[away], "asked", "An answer."]


async def test_other_chats_can_be_read_and_changed_while_one_is_answered(tmp_path: Path) -> None:
    """Its answer goes on, is shown on coming back, and a question asked meanwhile waits for it."""
    script = Script(["one two three four five six seven eight"], hold=threading.Event())
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        script.hold.set()  # type: ignore[union-attr]
        await say(pilot, "Other")
        await pilot.press("ctrl+n")
        script.hold.clear()  # type: ignore[union-attr]
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: "one two" in screen_text(app))
        await app.actions.conversations.open(1)
        assert texts(app) == ["Other", script.answers[0]]
        assert "another chat answers" in header_text(app)
        assert "■ stop" not in frame_text(app)
        await pilot.press("escape")
        await agree(pilot, "shift+up", "d")
        assert texts(app) == ["Other"]
        await pilot.press("ctrl+z")
        assert texts(app) == ["Other", script.answers[0]]
        await say(pilot, "Next", wait=False)
        assert "Queued: Next" in frame_text(app)
        await app.actions.conversations.open(2)
        assert "Queued" not in frame_text(app)
        await until(pilot, lambda: "one two" in screen_text(app))
        await app.actions.conversations.open(1)
        script.hold.set()  # type: ignore[union-attr]
        await until(pilot, lambda: texts(app)[2:] == ["Next", script.answers[0]])
        await until(pilot, lambda: app.answers.current is None)
        await app.actions.conversations.open(2)
        assert texts(app) == ["Count", script.answers[0]]
        assert app.conversations.branch[-1].finish == "stop"
        assert app.conversations.branch[-1].statistics["generated_tokens"] > 0


async def test_an_answer_goes_on_beside_a_new_chat_and_comes_back_growing(tmp_path: Path) -> None:
    """Coming back before its end, one sees it end, with its figures."""
    script = Script(["one two three four five six seven eight"], hold=threading.Event())
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: "one two" in screen_text(app))
        await pilot.press("ctrl+n")
        await until(pilot, lambda: texts(app) == [] and "one two" not in screen_text(app))
        await app.actions.conversations.open(1)
        await until(pilot, lambda: "one two" in screen_text(app))
        script.hold.set()  # type: ignore[union-attr]
        await until(pilot, lambda: app.answers.current is None)
        assert "seven eight" in screen_text(app)
        assert app.answers.figures.statistics.generated_tokens > 0


@pytest.mark.slow
async def test_names_that_no_file_can_have_are_sent_as_they_are() -> None:
    """Completing such names does nothing."""
    script = Script()
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        composer = app.query_one(Composer)
        for number, name in enumerate(["@~nosuchuser there", "@" + "x" * 300, "@a\0b", "@"], 1):
            composer.text = f"see {name}/x"
            composer.move_cursor(composer.document.end)
            await pilot.press("tab")
            await pilot.pause()
            await say(pilot, f"see {name}")
            assert len(script.asked) == number, name


@pytest.mark.slow
async def test_a_file_goes_once_whatever_becomes_of_its_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question stays as it was written; edited, it is sent with the file, were it gone."""
    in_folder(monkeypatch, tmp_path, notes="NOTES " * 87_000)
    script = Script()
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Read @notes.txt")
        assert texts(app)[0] == "Read @notes.txt"
        assert "notes.txt · 522 kB" in screen_text(app)
        await pilot.press("shift+up", "up", "space")
        await pilot.pause()
        assert "NOTES NOTES" in screen_text(app)
        (tmp_path / "notes.txt").unlink()
        await pilot.press("e")
        assert app.query_one(Composer).text == "Read @notes.txt"
        await say(pilot, "Read it again: @notes.txt")
        assert [turn["content"].count("NOTES") for turn in script.asked[1][0]] == [87_000]
        assert script.asked[1][0][0]["content"].startswith("Read it again: @notes.txt\n\nnotes.txt")

        await app.actions.conversations.open(1)
        await pilot.pause()
        assert len(app.query(TextFold)) == 1
        assert app.conversations.conversation is not None
        assert app.conversations.conversation.title == "Read @notes.txt"


@pytest.mark.slow
async def test_a_name_in_a_sentence_is_found_without_its_punctuation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name without a file is reported, and sent as plain text."""
    in_folder(monkeypatch, tmp_path, n="N", m="M")
    script = Script()
    app = chat(script)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await say(pilot, "Read @n.txt, then (@m.txt). And @missing.txt!")
        content = script.asked[0][0][0]["content"]
        assert content.endswith("\n\nn.txt:\n```\nN\n```\n\nm.txt:\n```\nM\n```")
        assert 'No file "@missing.txt"' in notes(app)


async def test_a_title_cannot_command_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control characters are removed from new, stored and edited titles."""
    evil = "\x1b]2;PWNED\x07title\u202e"
    path = tmp_path / "history.db"
    with Store(path) as store:
        conversation = store.begin()
        question = store.add(conversation.id, "user", evil)
        assert not set(store.conversation(conversation.id).title) & set("\x1b\x07\u202e")
        store.run("UPDATE conversation SET title = ?", (evil,))
        store.add(conversation.id, "assistant", "Answer", question.id)
    app = chat(Script(), path)
    async with app.run_test(size=SIZE) as pilot:
        await app.actions.conversations.open(conversation.id)
        await pilot.press("f2")
        await pilot.pause()
        assert "PWNED" in header_text(app)
        assert not set(screen_text(app)) & set("\x1b\x07\u202e")
        await pilot.press("f2", "shift+up", "up", "e")
        await pilot.pause()
        assert "PWNED" in app.query_one(Composer).text
        assert not set(app.query_one(Composer).text) & set("\x1b\x07\u202e")


@pytest.mark.slow
async def test_a_question_without_an_answer_is_not_asked_again() -> None:
    """Templates that want roles to take turns would refuse the next one."""
    script = Script(["", "fine"], error=ContextFull("too long"))
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "far too long")
        script.error = None
        await say(pilot, "short")
        await say(pilot, "next")
        sent = [(turn["role"], turn["content"]) for turn in script.asked[-1][0]]
        assert sent == [("user", "short"), ("assistant", "fine"), ("user", "next")]


async def test_a_question_that_does_not_fit_names_the_keys_that_help() -> None:
    """As they are set; the command line's option alone would help only at the next start."""
    script = Script([""], error=ContextFull("the prompt is too long: choose a larger --ctx"))
    app = chat(script, keys={"new": "ctrl+b"})
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "far too long")
        note = str(app.query(".note").last(Static).content)
        assert note.startswith("the prompt is too long: choose a larger --ctx. Select the question")
        assert "press e" in note
        assert "Ctrl+B starts a new chat" in note
        assert "F9" in note


async def test_a_new_conversation_begins_with_the_usual_system_prompt(tmp_path: Path) -> None:
    """A system prompt of its own is shown above a conversation, and applies only to it."""
    script = Script()
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "one")
        assert "system prompt" not in frame_text(app)
        app.conversations.set_system_prompt("Talk like a pirate.")
        await say(pilot, "two")
        assert "system prompt" in frame_text(app)
        assert script.asked[1][0][0]["role"] == "system"
        await pilot.press("ctrl+n")
        await say(pilot, "three")
        assert script.asked[2][0] == [{"role": "user", "content": "three"}]


@pytest.mark.slow
async def test_the_first_question_is_the_title_at_once() -> None:
    """The title shows before the conversation is opened again."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "How do whales sleep?")
        assert header_text(app).startswith("How do whales sleep?")


@pytest.mark.slow
async def test_another_conversation_has_no_figures_yet() -> None:
    """How full the context is, and that it is full, is said of the one that is open."""
    script = Script(["x" * 40], hold=threading.Event(), left_out=4)
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "one", wait=False)
        await until(pilot, lambda: app.answers.current is not None and len(script.asked) == 1)
        await until(pilot, lambda: "no longer fit" in status(app))
        assert script.hold is not None
        script.hold.set()
        await until(pilot, lambda: app.answers.current is None)
        assert "▱▱▱▱▱▱ 1 %" in header_text(app)
        await pilot.press("ctrl+n")
        await pilot.pause()
        assert "▱▱▱▱▱▱ 0 %" in header_text(app)
        assert "context" not in status(app)
        assert app.answers.figures.statistics.generated_tokens == 0


@pytest.mark.slow
async def test_statistics_of_a_continued_answer_are_those_of_all_of_it(tmp_path: Path) -> None:
    """Counts and seconds add up."""
    script = Script(["one two three four five six seven eight"], hold=threading.Event())
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: texts(app)[-1:] == ["one two thre"])
        await pilot.press("escape")
        await until(pilot, lambda: app.answers.current is None)
        script.hold, script.answers = None, ["e four five six seven"]
        await pilot.press("ctrl+g")
        await until(pilot, lambda: app.answers.current is None)
        figures = app.conversations.branch[-1].statistics
        assert figures["generated_tokens"] == 3 + 6
        assert figures["decode_s"] == pytest.approx(0.36)
        assert figures["tokens_per_second"] == pytest.approx(25)
        assert figures["acceptance_histogram"] == [0, 0, 3]
        app.view.transcript.views[-1].focus()  # shows all figures
        await until(pilot, lambda: "9 tokens" in screen_text(app))


@pytest.mark.slow
async def test_a_stored_answer_is_shown_with_how_it_ended(tmp_path: Path) -> None:
    """The line below it is the same as when it was stopped."""
    script = Script(["one two three four five six"], hold=threading.Event())
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: texts(app)[-1:] == ["one two thre"])
        await pilot.press("escape")
        await until(pilot, lambda: app.answers.current is None)
        fresh = str(app.query(".note").last(Static).render())
        await app.view.show_branch()
        stored = str(app.query(".note").last(Static).render())
    assert fresh == stored
    assert stored.startswith("stopped · ")


@pytest.mark.slow
@pytest.mark.parametrize("focused", ["message", "sidebar"])
async def test_escape_stops_an_answer_wherever_it_is_pressed(focused: str) -> None:
    """A message or the list of conversations may have the focus."""
    script = Script(["one two three four five six"], hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: texts(app)[-1:] == ["one two thre"])
        await pilot.press("shift+up" if focused == "message" else "f2")
        assert isinstance(app.focused, AnswerView if focused == "message" else OptionList)
        app.call_later(app.pair_controller.progressed, "prompt", 0.3)
        await pilot.pause()
        assert "reading the prompt" in status(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.answers.current is None)
        assert "stopped" in screen_text(app)
        assert "reading" not in status(app)


@pytest.mark.slow
async def test_what_was_asked_before_is_there_by_key(tmp_path: Path) -> None:
    """Earlier questions of all conversations are offered, newest first."""
    path = tmp_path / "history.db"
    async with chat(Script(), path).run_test(size=SIZE) as pilot:
        await say(pilot, "yesterday")
        await pilot.press("ctrl+n")
        await say(pilot, "this morning")
    app = chat(Script(), path)
    async with app.run_test(size=SIZE) as pilot:
        seen = []
        for _ in range(2):
            await pilot.press("up")
            seen.append(app.query_one(Composer).text)

    assert seen == ["this morning", "yesterday"]


async def test_up_goes_on_past_commands_and_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What such a text may become is not listed: Up would move in the list."""
    in_folder(monkeypatch, tmp_path, notes="text")
    app = chat(Script(["One", "Two"]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "first")
        await say(pilot, "see @not")
        await say(pilot, "/copy", wait=False)
        seen = []
        for _ in range(3):
            await pilot.press("up")
            await app.workers.wait_for_complete()
            await pilot.pause()
            seen.append(app.query_one(Composer).text)
        assert seen == ["/copy", "see @not", "first"]
        await pilot.press("down", "down", "backspace")
        await until(pilot, lambda: app.query_one(Suggestions).display)


@pytest.mark.slow
async def test_names_with_spaces_are_completed_in_quotes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder's quotes stay open for the file in it."""
    (tmp_path / "my files").mkdir()
    in_folder(monkeypatch, tmp_path / "my files")
    (tmp_path / "my files" / "a b.txt").write_text("content", "utf-8")
    os.chdir(tmp_path)
    script = Script()
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        composer = app.query_one(Composer)
        composer.text = "Read @my"
        composer.move_cursor(composer.document.end)
        await pilot.press("tab")
        await pilot.pause()
        assert composer.text == 'Read @"my files/'
        await pilot.press("tab")
        await pilot.pause()
        assert composer.text == 'Read @"my files/a b.txt"'
        await say(pilot, composer.text)
        assert "content" in script.asked[0][0][0]["content"]


@pytest.mark.slow
@pytest.mark.parametrize("place", [10, 295])
async def test_searching_leads_to_the_message_that_was_found(place: int, tmp_path: Path) -> None:
    """The message is in view and has the focus, however far up in the conversation it is."""
    path = tmp_path / "history.db"
    with Store(path) as store:
        number, parent = store.begin().id, None
        for each in range(300):
            words = f"message {each} {'needle' if each == place else ''}"
            parent = store.add(number, "assistant" if each % 2 else "user", words, parent).id
    app = chat(Script(), path)
    async with app.run_test(size=SIZE) as pilot:
        await app.actions.conversations.open(number)
        await pilot.pause()
        await pilot.press("ctrl+t")
        await pilot.pause()
        await type_keys(pilot, *"needle")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.focused, MessageView))
        await until(pilot, lambda: f"message {place} needle" in screen_text(app))
        assert isinstance(app.focused, MessageView)
        assert "needle" in app.focused.text


async def test_one_pair_ends_before_the_next_one_is_loaded() -> None:
    """They may not fit into memory together: the second is planned for what is free."""
    script = Script(close_hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await until(
            pilot,
            lambda: (
                app.pair_controller.session is not None and app.pair_controller.session.is_loaded
            ),
        )
        app.pair_controller.use(app.pair_controller.pair)
        await say(pilot, "Hello?", wait=False)
        assert script.close_hold is not None
        assert (script.num_loads, script.num_closed) == (1, 0)
        script.close_hold.set()
        await until(pilot, lambda: app.answers.current is None)
        assert (script.num_loads, script.num_closed) == (2, 1)
        assert texts(app)[-1] == "An answer."
