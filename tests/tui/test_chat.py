"""The chat, driven by keys, with a scripted engine and a real store."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest
from textual.widgets import OptionList, Static
from textual.widgets._footer import FooterKey

from scripted_chat import STEP_SECONDS, Script, chat
from specchat.chat.conversation import Role
from specchat.chat.preset import Preset
from specchat.chat.store import Store, default_path
from specchat.docs import topics
from specchat.errors import EngineFailed, ModelWontLoad
from specchat.tui.app import ChatApp
from specchat.tui.commands import key_rows
from specchat.tui.screens.dialogs import ChoiceScreen
from specchat.tui.screens.help_screen import HelpScreen
from specchat.tui.screens.steps_screen import StepsScreen
from specchat.tui.widgets import transcript
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.message_views import AnswerView, MessageView, QuestionView
from specchat.tui.widgets.panel import Panel
from specchat.tui.widgets.sidebar import Sidebar
from specchat.tui.widgets.transcript import Transcript
from tui.driving import agree, ask_twice, say, screen_text, status, type_keys, until
from tui.test_asking import notes

pytestmark = pytest.mark.anyio
SIZE = (150, 40)


def views(app: ChatApp) -> list[MessageView]:
    """Return the messages on the screen."""
    return app.view.transcript.views


def last(app: ChatApp) -> AnswerView:
    """Return the last answer on the screen."""
    view = views(app)[-1]
    assert isinstance(view, AnswerView)
    return view


async def test_an_answer_is_shown_and_kept(tmp_path: Path) -> None:
    """Question and answer are on the screen, in the store, and the figures beside them."""
    script = Script(["It is **quick**, and the text is the target's own. " * 3])
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "What is it?")
        shown = screen_text(app)

        assert "What is it?" in shown
        assert "It is quick, and the text" in shown
        assert re.search(r"with drafts █+ +25\.0\n", shown)
        assert "Speculation helps" in shown
        assert script.asked[0][0] == [{"role": "user", "content": "What is it?"}]
    with Store(tmp_path / "history.db") as store:
        (conversation,) = store.conversations()
        question, answer = store.tree(conversation.id).branch(conversation.leaf)

    assert conversation.title == "What is it?"
    assert (question.text, answer.text) == ("What is it?", script.answers[0])
    assert answer.finish == "stop"
    assert answer.statistics["tokens_per_second"] == pytest.approx(39 / (13 * STEP_SECONDS))
    assert "".join(each.text for each in answer.pieces) == script.answers[0]


async def test_nothing_is_kept_where_nothing_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a history file no file is created."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Hello")

    assert not default_path().exists()


async def test_escape_stops_an_answer_and_keeps_what_is_there(tmp_path: Path) -> None:
    """The part that came is on the screen and in the store, and can be gone on with."""
    script = Script(["one two three four five six seven eight"], hold=threading.Event())
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: len(views(app)) == 2 and last(app).text != "")
        await pilot.press("escape")
        await until(pilot, lambda: app.answers.current is None)
        stopped = last(app).text
        assert stopped == "one two thre"
        assert "stopped" in screen_text(app)

        script.hold, script.answers = None, ["e four"]
        await pilot.press("ctrl+g")
        await until(pilot, lambda: app.answers.current is None)
        whole = last(app).text
        assert whole == "one two three four"
        assert script.asked[1][0][-1] == {"role": "assistant", "content": stopped}
    with Store(tmp_path / "history.db") as store:
        (conversation,) = store.conversations()
        assert store.tree(conversation.id).branch(conversation.leaf)[-1].text == whole


async def test_a_second_question_waits_for_its_turn() -> None:
    """While an answer is written questions are queued, and are asked in their order."""
    script = Script(["one two three four five"], hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "First", wait=False)
        await until(pilot, lambda: len(script.asked) == 1)
        await say(pilot, "Second", wait=False)
        assert app.query_one(Composer).text == ""
        await until(pilot, lambda: "Queued: Second" in screen_text(app))
        await say(pilot, "Third [b]", wait=False)
        await until(pilot, lambda: "Queued: Second (+1)" in screen_text(app))
        assert len(script.asked) == 1
        script.hold.set()  # type: ignore[union-attr]
        await until(pilot, lambda: len(script.asked) == 3 and app.answers.current is None)
        assert [each[0][-1]["content"] for each in script.asked] == [
            "First", "Second", "Third [b]",
        ]  # fmt: skip
        assert "Queued" not in screen_text(app)


async def test_versions_of_an_answer_are_branches() -> None:
    """Asked again, the first answer stays as another branch, and the keys go between them."""
    script = Script(["first", "second"])
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await ask_twice(pilot, script, "Say something")
        assert last(app).text == "second"
        assert "2/2" in screen_text(app)

        await pilot.press("shift+up", "left")
        await pilot.pause()
        assert last(app).text == "first"
        assert "1/2" in screen_text(app)


@pytest.mark.slow
async def test_a_question_can_be_asked_in_another_way() -> None:
    """The edited question is a branch of its own, and what followed the old one stays there."""
    script = Script(["first", "second"])
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Old words")
        await pilot.press("shift+up", "up", "e")
        assert app.query_one(Composer).text == "Old words"
        await say(pilot, "New words")
        assert [view.text for view in views(app)] == ["New words", "second"]
        assert script.asked[1][0] == [{"role": "user", "content": "New words"}]

        await pilot.press("shift+up", "up", "left")
        await pilot.pause()
        assert [view.text for view in views(app)] == ["Old words", "first"]


@pytest.mark.slow
async def test_deleting_can_be_undone() -> None:
    """A message goes with all that follows it, and comes back."""
    app = chat(Script(["first", "second"]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One")
        await say(pilot, "Two")
        await agree(pilot, "shift+up", "up", "d")
        await pilot.pause()
        assert [view.text for view in views(app)] == ["One", "first"]
        await app.run_action("undo")
        await pilot.pause()
        assert [view.text for view in views(app)] == ["One", "first", "Two", "second"]


async def test_an_engine_that_dies_leaves_the_answer_and_can_be_started_again() -> None:
    """What came is kept, the reason is on the screen, and one key loads the pair again."""
    script = Script(["one two three four five"], error=EngineFailed("the engine process ended"))
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Count")
        await until(pilot, lambda: app.pair_controller.session is None)
        assert last(app).text == "one two thre"
        assert "the engine process ended" in screen_text(app)
        assert "Ctrl+R" in status(app)

        script.error = None
        await pilot.press("ctrl+r")
        await say(pilot, "Again")
        assert last(app).text == "one two three four five"
        assert script.num_loads == 2


async def test_a_pair_that_does_not_load_says_why() -> None:
    """The reason and what can be done are on the screen."""
    app = chat(Script(load_error=ModelWontLoad("no GGUF file: choose another")))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "no GGUF file" in status(app))
        assert "F8" in status(app)


@pytest.mark.slow
async def test_the_panel_leaves_room_on_narrow_terminals() -> None:
    """Below 140 columns it is hidden; a key hides it where it fits."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        assert app.query_one(Panel).display
        await pilot.resize_terminal(60, 20)
        await pilot.pause()
        assert not app.query_one(Panel).display
        await pilot.resize_terminal(300, 80)
        await pilot.pause()
        assert app.query_one(Panel).display
        await pilot.press("f3")
        assert not app.query_one(Panel).display


HARMFUL = {
    "escape sequences": "\x1b[31mred\x1b[0m \x1b]0;title\x07",
    "control characters": "a\x00b\x08c\x7fd\x9be",
    "markup": "[bold red]not markup[/] [link=x]y[/link]",
    "unclosed Markdown": "**bold and `code and [link](http://",
    "an open fence": "```python\nprint('hi')",
    "HTML": "<script>alert(1)</script> <b>bold</b>",
    "right to left": "\u202eevil\u202c שלום \u2067x\u2069",
    "no space": "x" * 100_000,
    "halves of characters": "\ud83d x \udc00",
    "a table": "| a | b |\n|---|---|\n| 1 |",
    "nesting": "> " * 200 + "deep",
}


@pytest.mark.slow
async def test_whatever_a_model_writes_is_shown_harmlessly(tmp_path: Path) -> None:
    """No control character reaches the screen, nothing vanishes, nothing fails."""
    app = chat(Script(list(HARMFUL.values())), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        for name in HARMFUL:
            await app.actions.conversations.new()
            await say(pilot, "Do harm")
            shown = ""
            for key in ("f4", "f4"):
                shown = screen_text(app)
                assert not any(ord(c) < 32 and c != "\n" for c in shown), name
                assert not set(shown) & set("\u202e\u202c\u2067\u2069\x7f\x9b"), name
                await pilot.press(key)
                await pilot.pause()
            if name == "HTML":
                assert "<script>alert(1)</script>" in shown
            if name == "markup":
                assert "[bold red]not markup[/]" in shown


@pytest.mark.slow
async def test_tokens_are_told_apart_by_where_they_came_from() -> None:
    """In that view draft and suffix tokens are underlined, so that it works without colours."""
    app = chat(Script(["abcdefghijkl"]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Colours")
        await pilot.press("f4")
        await pilot.pause()
        strips = app.screen._compositor.render_strips()
        segments = [s for strip in strips for s in strip if s.text in {"abcd", "efgh", "ijkl"}]
        styles = [(s.style.underline, s.style.italic) for s in segments if s.style]

        assert [bool(underline) for underline, _ in styles] == [True, True, False]
        assert [bool(italic) for _, italic in styles] == [False, True, False]
        legend = app.query_one("#legend", Static)
        assert "draft model  suffix lookup  target" in str(legend.render())
        await say(pilot, "Again")
        assert "draft model  suffix lookup" in screen_text(app)
        await pilot.press("f4")
        await pilot.pause()
        assert not legend.display


@pytest.mark.slow
async def test_an_answer_can_be_gone_through_step_by_step() -> None:
    """Each step shows what was kept, what was rejected and what the target put in its place."""
    app = chat(Script(["abcdefghijklmnop"]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Steps")
        await pilot.press("f6")
        await pilot.pause()
        assert isinstance(app.screen, StepsScreen)
        shown = screen_text(app)
        assert "step 1 of 2" in shown
        parts = ("✔ abcd", "draft model", "✔ efgh", "✘ ·no", "+ ijkl", "replaced the next one")
        assert all(part in shown for part in parts)
        assert "3 tokens drafted and checked in one pass: the target accepted 2" in shown
        assert "…" not in shown.partition("step 1 of 2")[2].partition("✔")[0]
        await pilot.press("right")
        await pilot.pause()
        assert "step 2 of 2" in screen_text(app)
        await pilot.press("escape")
        assert not isinstance(app.screen, StepsScreen)


@pytest.mark.slow
async def test_the_chip_under_the_cursor_shows_its_probabilities() -> None:
    """Arrows and clicks move the cursor; a token after a rejected one was not checked."""
    app = chat(Script(["abcdefghijkl", "abcdefghijkl"], chances=((0.91, 0.82), (0.004, 1.0))))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Steps")
        await pilot.press("f6")
        for key, chip, words in (
            (
                "home",
                "[✔ abcd]",
                "[abcd] accepted · at temperature 0.8: drafter 82 % · target 91 %",
            ),
            (
                "down",
                "[✔ efgh]",
                "[efgh] accepted · at temperature 0.8: drafter 100 % · target 1 %",
            ),
            ("j", "[✘ ·no]", "[·no] not checked: a token before it was rejected"),
            ("down", "[+ ijkl]", "correction"),
            ("down", "[+ ijkl]", "correction"),
        ):
            await pilot.press(key)
            await until(pilot, lambda each=(chip, words): all(x in screen_text(app) for x in each))  # type: ignore[misc]
        assert "at temperature 0.8:" not in screen_text(app)
        line = app.screen.query_one("#step", Static)
        await pilot.click(line, offset=(3, 1))
        await until(pilot, lambda: "[✔ abcd]" in screen_text(app))


@pytest.mark.slow
async def test_steps_stay_when_an_answer_is_shown_again() -> None:
    """Another version takes it off the screen; back again, it can be gone through as before."""
    script = Script(["abcdefghijkl", "second"])
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await ask_twice(pilot, script, "Say something")
        last(app).arm()
        await pilot.press("left")
        await until(pilot, lambda: last(app).text == "abcdefghijkl")
        await pilot.press("s")
        await pilot.pause()
        assert isinstance(app.screen, StepsScreen)
        assert "step 1 of" in screen_text(app)


async def test_conversations_are_listed_opened_and_deleted(tmp_path: Path) -> None:
    """What was said yesterday is there today."""
    path = tmp_path / "history.db"
    async with chat(Script(["old answer"]), path).run_test(size=SIZE) as pilot:
        await say(pilot, "Old question")
    app = chat(Script(), path)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f2")
        await pilot.pause()
        assert "Old question" in screen_text(app)
        await pilot.press("down", "enter")
        await pilot.pause()
        assert [view.text for view in views(app)] == ["Old question", "old answer"]
        app.query_one(Sidebar).focus()
        await agree(pilot, "d")
        await pilot.pause()
        assert views(app) == []
        await app.run_action("undo")
        assert len(app.conversations.store.conversations()) == 1


@pytest.mark.slow
async def test_on_a_narrow_terminal_the_list_lies_over_the_conversation(tmp_path: Path) -> None:
    """The list takes no columns from the conversation; a choice or Esc closes it there."""
    app = chat(Script(["an answer"]), tmp_path / "history.db")
    async with app.run_test(size=(60, 20)) as pilot:
        await say(pilot, "A question")
        sidebar, transcript = app.query_one(Sidebar), app.query_one(Transcript)
        for key in ("enter", "escape"):
            await pilot.press("f2")
            await pilot.pause()
            assert sidebar.has_focus_within
            assert transcript.size.width >= 58
            await pilot.press(key)
            await until(pilot, lambda: not sidebar.display)
            assert isinstance(app.focused, Composer)
        await pilot.resize_terminal(110, 30)
        await pilot.press("f2")
        await pilot.pause()
        assert transcript.region.x >= sidebar.region.right
        await pilot.press("enter")
        await pilot.pause()
        assert sidebar.display


@pytest.mark.slow
async def test_searching_opens_the_message_that_was_found(tmp_path: Path) -> None:
    """Any conversation is found by its words."""
    app = chat(Script(["about llamas", "about whales"]), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "First")
        await pilot.press("ctrl+n")
        await say(pilot, "Second")
        await pilot.press("ctrl+f")
        await pilot.pause()
        await type_keys(pilot, *"llama")
        await pilot.press("enter")
        await until(pilot, lambda: [view.text for view in views(app)] == ["First", "about llamas"])


@pytest.mark.slow
async def test_a_long_conversation_shows_its_end_first(tmp_path: Path) -> None:
    """Of 5000 messages few are put on the screen; older ones come as the reader goes up."""
    path = tmp_path / "history.db"
    with Store(path) as store:
        conversation = store.begin()
        parent = None
        roles: tuple[Role, Role] = ("user", "assistant")
        for number in range(5000):
            role = roles[number % 2]
            parent = store.add(conversation.id, role, f"message {number}", parent).id
    app = chat(Script(), path)
    async with app.run_test(size=SIZE) as pilot:
        await app.actions.conversations.open(conversation.id)
        await pilot.pause()
        assert len(views(app)) < 100
        assert "message 4999" in screen_text(app)
        app.view.transcript.scroll_home(animate=False)
        await until(pilot, lambda: len(views(app)) > 30)
        assert views(app)[-1].text == "message 4999"


@pytest.mark.slow
async def test_files_named_in_a_question_go_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their contents stand below the question, fenced."""
    (tmp_path / "notes.txt").write_text("some ``` notes", "utf-8")
    monkeypatch.chdir(tmp_path)
    script = Script()
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        app.query_one(Composer).text = "Read @no"
        app.query_one(Composer).move_cursor((0, 8))
        await pilot.press("tab")
        await pilot.pause()
        assert app.query_one(Composer).text == "Read @notes.txt"
        await say(pilot, "Read @notes.txt")

    assert script.asked[0][0][0]["content"] == (
        "Read @notes.txt\n\nnotes.txt:\n````\nsome ``` notes\n````"
    )


@pytest.mark.slow
async def test_help_explains_the_keys() -> None:
    """The first page lists all; it is closed by a click on its key."""
    app = chat(Script())
    async with app.run_test(size=(120, 250)) as pilot:
        await pilot.press("f1")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        shown = screen_text(app)
        for key, _ in key_rows():
            assert key in shown
        (close,) = (each for each in app.screen.query(FooterKey) if each.description == "Close")
        await pilot.click(close)
        assert not isinstance(app.screen, HelpScreen)


@pytest.mark.slow
async def test_help_opens_every_topic() -> None:
    """Right and Left turn the pages, from the last to the first; a topic is chosen from a list."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f1")
        for title in [*topics().values(), next(iter(topics().values()))]:
            await until(pilot, lambda title=title: f"Help: {title} ·" in screen_text(app))  # type: ignore[misc]
            await pilot.press("right")
        await pilot.press("t")
        await type_keys(pilot, *"trouble", "enter")
        await until(pilot, lambda: f"Help: {topics()['troubleshooting']} ·" in screen_text(app))
        await pilot.press("left", "escape")
        await until(pilot, lambda: not isinstance(app.screen, HelpScreen))


async def test_what_was_sent_before_comes_back_by_key() -> None:
    """Up and down walk through it, and what was being written is not lost."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "first")
        await say(pilot, "second")
        composer = app.query_one(Composer)
        composer.text = "unsent"
        seen = []
        for key in ("up", "up", "up", "down", "down"):
            await pilot.press(key)
            seen.append(composer.text)

    assert seen == ["second", "first", "first", "second", "unsent"]


async def test_questions_are_shown_as_they_were_written() -> None:
    """Markdown in a question is not rendered."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "# not a **heading**")
        assert isinstance(views(app)[0], QuestionView)
        assert "# not a **heading**" in screen_text(app)


@pytest.mark.slow
async def test_settings_are_changed_from_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes are written to the file, which keeps the user's comments, and apply at once."""
    path = tmp_path / "config.toml"
    path.write_text("# mine\n[screen]\nstatistics = true  # keep this\n", "utf-8")
    monkeypatch.setenv("SPECCHAT_CONFIG", str(path))
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f9")
        await pilot.pause()
        await type_keys(pilot, *"screen.statistics")
        await pilot.press("enter")
        await pilot.pause()
        await until(pilot, lambda: not app.query_one(Panel).display)

    assert path.read_text("utf-8") == "# mine\n[screen]\nstatistics = false  # keep this\n"


@pytest.mark.slow
async def test_no_setting_opens_the_panel_over_the_chat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it has no room, the setting counts from the next wider screen on."""
    (path := tmp_path / "config.toml").touch()
    monkeypatch.setenv("SPECCHAT_CONFIG", str(path))
    app = chat(Script())
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.press("f9")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await type_keys(pilot, *"screen.statistics")
        await pilot.press("enter")
        await until(pilot, lambda: not app.view.arrangement.wants_panel)
        assert not app.query_one(Panel).display
        await pilot.press("escape")
        await pilot.resize_terminal(*SIZE)
        await pilot.pause()
        assert not app.query_one(Panel).display


@pytest.mark.slow
async def test_a_preset_is_kept_and_used(tmp_path: Path) -> None:
    """Choosing the preset restores its system prompt."""
    script = Script()
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        app.conversations.store.save_preset(
            Preset("poet", "Answer in verse.", {"temperature": 1.5})
        )
        app.actions.conversations.use_preset(app.conversations.store.presets()[0])
        await say(pilot, "Hello")

    assert script.asked[0][0][0] == {"role": "system", "content": "Answer in verse."}
    assert script.asked[0][1]["temperature"] == 1.5


async def test_a_conversation_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a file in the present folder, in each form."""
    monkeypatch.chdir(tmp_path)

    def exported() -> list[str]:
        return sorted(path.suffix for path in tmp_path.iterdir() if path.suffix)

    app = chat(Script(["An answer."]))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "A question")
        for form in ("md", "json", "html"):
            app.actions.conversations.export(form)
        await until(pilot, lambda: exported() == [".html", ".json", ".md"])
    files = [Path(name) for name in os.listdir(tmp_path)]  # noqa: PTH208  # async
    assert all(path.stat().st_mode & 0o077 == 0 for path in files if path.suffix)


async def test_a_conversation_whose_history_is_gone_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its notice says: with what was changed since it was stored."""
    monkeypatch.chdir(tmp_path)

    def exported() -> str:
        return "".join(path.read_text("utf-8") for path in tmp_path.glob("*.md"))

    path = tmp_path / "history.db"
    app = chat(Script(["An answer."]), path)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await say(pilot, "A question")
        app.conversations.set_system_prompt("Be brief.")
        path.rename(tmp_path / "elsewhere.db")
        await say(pilot, "Another", wait=False)
        await until(pilot, lambda: "move it back, or export this chat" in notes(app))
        app.actions.conversations.export("md")
        await until(pilot, lambda: "An answer." in exported())
    assert 'title: "A question"' in exported()
    assert "Be brief." in exported()


@pytest.mark.slow
async def test_a_full_disk_does_not_end_the_chat(tmp_path: Path) -> None:
    """What cannot be stored is reported above the composer, and the chat goes on."""
    app = chat(Script(["x" * 50_000, "short"]), tmp_path / "history.db")
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        database = app.conversations.store._connection
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages + 1}")
        await say(pilot, "Fill the disk")
        await until(pilot, lambda: "disk is full" in status(app))
        assert "xxxx" in screen_text(app)
        database.execute("PRAGMA max_page_count = 100000")
        await say(pilot, "Again")
        assert last(app).text == "short"


@pytest.mark.slow
async def test_searching_here_finds_nothing_elsewhere(tmp_path: Path) -> None:
    """Only messages of the conversation that is open are offered."""
    app = chat(Script(["about llamas", "more about llamas"]), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "First")
        await pilot.press("ctrl+n")
        await say(pilot, "Second")
        await pilot.press("ctrl+t")
        await pilot.pause()
        await type_keys(pilot, *"llama")
        assert app.screen.query_one(OptionList).option_count == 1


@pytest.mark.slow
async def test_control_c_stops_an_answer_and_else_says_how_to_leave() -> None:
    """Ctrl+C quits the chat only if it is pressed twice."""
    script = Script(["one two three four five six seven"], hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert [note.message for note in app._notifications] == ["Press Ctrl+C again to quit."]
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: app.answers.current is not None and len(script.asked) == 1)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app.answers.current is None)
        assert app.conversations.branch[-1].finish == "cancelled"


@pytest.mark.slow
async def test_a_long_session_keeps_the_screen_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest messages wait above, and come back as they were; here a third as many as usual."""
    assert transcript.MAX_MOUNTED <= 90
    monkeypatch.setattr("specchat.tui.widgets.transcript.NUM_AT_ONCE", 10)
    monkeypatch.setattr("specchat.tui.widgets.transcript.MAX_MOUNTED", 30)
    app = chat(Script(["answer"]))
    async with app.run_test(size=SIZE) as pilot:
        for number in range(17):
            await say(pilot, f"question {number}")
        assert len(views(app)) <= 32
        assert views(app)[-2].text == "question 16"
        await app.view.transcript._show_older()
        assert len(views(app)) > 20
        texts = [view.text for view in views(app) if isinstance(view, QuestionView)]
        assert texts == [f"question {number}" for number in range(17 - len(texts), 17)]
