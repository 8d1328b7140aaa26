"""Reasoning in the chat: folded above the answer, and kept apart from it everywhere."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from scripted_chat import Script, chat
from specchat.chat.message_search import search_messages
from specchat.chat.store import Store
from specchat.errors import EngineFailed
from specchat.options.declarations import ScreenOptions
from specchat.tui.app import ChatApp
from specchat.tui.widgets.fold import Fold
from specchat.tui.widgets.message_views import AnswerView
from tui.driving import say, screen_text, type_keys, until

pytestmark = pytest.mark.anyio
SIZE = (150, 40)
THOUGHTS = "Hidden thoughts of the model."


def last(app: ChatApp) -> AnswerView:
    """Return the last answer on the screen."""
    view = app.view.transcript.views[-1]
    assert isinstance(view, AnswerView)
    return view


def title(app: ChatApp) -> str:
    """Return the title above the reasoning of the last answer."""
    return str(last(app).query_one(Fold).query_one(".title", Static).content)


def open_chat(script: Script, path: Path | None = None, *, fold_reasoning: bool = True) -> ChatApp:
    """Return a chat that folds reasoning or does not."""
    return chat(script, path, screen=ScreenOptions(fold_reasoning=fold_reasoning))


async def test_reasoning_is_folded_and_can_be_opened() -> None:
    """Its title says how long it took and how many tokens; the answer stands alone."""
    app = chat(Script(["The answer."], reasoning=THOUGHTS))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Think")
        assert "The answer." in screen_text(app)
        assert THOUGHTS not in screen_text(app)
        assert title(app) == "▸ thought <1 s · 8 tokens"
        for key in ("space", "enter"):
            last(app).arm()
            await pilot.press(key)
            await pilot.pause()
            assert (THOUGHTS in screen_text(app)) == (key == "space")


@pytest.mark.slow
async def test_the_title_counts_while_the_model_reasons() -> None:
    """Then the reasoning is open or folded, as the settings say; what comes stays as it is."""
    for folds in (True, False):
        script = Script(["The answer."], reasoning=THOUGHTS, hold=threading.Event())
        app = open_chat(script, fold_reasoning=folds)
        async with app.run_test(size=SIZE) as pilot:
            await say(pilot, "Think", wait=False)
            await until(pilot, lambda app=app: "thinking <1 s · 3 tokens" in screen_text(app))  # type: ignore[misc]
            assert ("Hidden thou" in screen_text(app)) == (not folds)
            assert script.hold is not None
            script.hold.set()
            await until(pilot, lambda app=app: app.answers.current is None)  # type: ignore[misc]
            assert (THOUGHTS in screen_text(app)) == (not folds)
            assert "thought <1 s · 8 tokens" in screen_text(app)


async def begin_to_think(pilot: Pilot[None], app: ChatApp) -> None:
    """Ask, and open the reasoning once there is some."""
    await say(pilot, "Think", wait=False)
    await until(pilot, lambda: "thinking" in screen_text(app))
    await pilot.press("shift+up", "space")
    await until(pilot, lambda: last(app).query_one(Fold)._body.display)


@pytest.mark.slow
async def test_the_screen_goes_to_the_answer_and_leaves_the_reasoning_open() -> None:
    """Opened while it was written, it stays open above the answer, which is in view."""
    script = Script(["The answer."], reasoning="thought\n\n" * 60, hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=(80, 20)) as pilot:
        await begin_to_think(pilot, app)
        assert script.hold is not None
        script.hold.set()
        await until(pilot, lambda: app.answers.current is None)
        await until(pilot, lambda: "The answer." in screen_text(app))
        assert last(app).query_one(Fold)._body.display
        assert "▾" in title(app)


@pytest.mark.slow
async def test_a_reader_of_the_reasoning_is_left_there() -> None:
    """Who has scrolled up stays, although the answer begins."""
    script = Script(["The answer."], reasoning="thought\n\n" * 60, pause=0.02)
    app = open_chat(script, fold_reasoning=False)
    async with app.run_test(size=(80, 20)) as pilot:
        await say(pilot, "Think", wait=False)
        await until(pilot, lambda: app.view.transcript.max_scroll_y > 20)
        app.view.transcript.scroll_home(animate=False)
        await until(pilot, lambda: app.answers.current is None)
        await pilot.pause()
        assert "Think" in screen_text(app)
        assert "The answer." not in screen_text(app)


async def test_a_stopped_answer_goes_on_with_its_reasoning(tmp_path: Path) -> None:
    """Stopped while reasoning, it is stored as reasoning, sent as reasoning, and continued."""
    path = tmp_path / "history.db"
    script = Script(["unwritten"], reasoning=THOUGHTS, hold=threading.Event())
    app = chat(script, path)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Think", wait=False)
        await until(pilot, lambda: "thinking" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: app.answers.current is None)
        await until(pilot, lambda: "thought <1 s · 3 tokens" in title(app))
        stopped = app.conversations.branch[-1]
        assert (stopped.text, stopped.reasoning) == ("", THOUGHTS[:12])
        assert "stopped" in screen_text(app)

        script.hold, script.answers, script.reasoning = None, ["The answer."], THOUGHTS[12:]
        await pilot.press("ctrl+g")
        await until(pilot, lambda: len(script.asked) == 2 and app.answers.current is None)
        assert script.asked[1][0][-1] == {
            "role": "assistant", "content": "", "reasoning_content": THOUGHTS[:12],
        }  # fmt: skip
        assert last(app).text == "The answer."
        assert "thought <1 s · 8 tokens" in title(app)
    with Store(path) as store:
        answer = store.tree(1).branch(2)[-1]
    assert (answer.text, answer.reasoning) == ("The answer.", THOUGHTS)
    assert answer.statistics["reasoning_tokens"] == 8
    assert [each.kind for each in answer.pieces] == ["reasoning"] * 8 + ["answer"] * 3


@pytest.mark.slow
async def test_an_answer_stopped_in_its_text_sends_both() -> None:
    """The model then has its reasoning before the text that it continues."""
    script = Script(["The answer."], reasoning="Hmm.", finish="length")
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Think")
        script.reasoning, script.answers = "", [" More."]
        await pilot.press("ctrl+g")
        await until(pilot, lambda: len(script.asked) == 2 and app.answers.current is None)
    assert script.asked[1][0][-1] == {
        "role": "assistant", "content": "The answer.", "reasoning_content": "Hmm.",
    }  # fmt: skip
    assert app.conversations.branch[-1].text == "The answer. More."


@pytest.mark.slow
async def test_a_crash_keeps_reasoning_as_reasoning(tmp_path: Path) -> None:
    """What was written when the engine died, and what is stored before that."""
    path = tmp_path / "history.db"
    error = EngineFailed("the engine process ended")
    script = Script(["unwritten"], reasoning=THOUGHTS, error=error, hold=threading.Event())
    app = chat(script, path)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Think", wait=False)
        await until(pilot, lambda: app.pair_controller.session is None)
        answer = app.conversations.branch[-1]
        assert (answer.text, answer.reasoning) == ("", THOUGHTS[:12])
        assert "the engine process ended" in screen_text(app)


@pytest.mark.slow
async def test_growing_reasoning_is_stored_as_such(tmp_path: Path) -> None:
    """A chat that is killed loses a moment of it at most, and can go on."""
    path = tmp_path / "history.db"
    script = Script(["The answer."], reasoning=THOUGHTS, hold=threading.Event())
    app = chat(script, path)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Think", wait=False)
        await until(pilot, lambda: "thinking" in screen_text(app))
        with Store(path) as store:
            growing = store.tree(1).branch(2)[-1]
        await pilot.press("escape")
    assert (growing.text, growing.reasoning, growing.finish) == ("", THOUGHTS[:12], None)


@pytest.mark.slow
async def test_a_stored_answer_shows_its_reasoning_again(tmp_path: Path) -> None:
    """Folded, with the same title; the copied text is the answer's alone."""
    path = tmp_path / "history.db"
    async with chat(Script(["Yes."], reasoning=THOUGHTS), path).run_test(size=SIZE) as pilot:
        await say(pilot, "Think")
    app = chat(Script(), path)
    async with app.run_test(size=SIZE) as pilot:
        await app.actions.conversations.open(1)
        await pilot.pause()
        assert title(app) == "▸ thought <1 s · 8 tokens"
        last(app).arm()
        await pilot.press("c")
        await until(pilot, lambda: app.clipboard == "Yes.")
        await pilot.press("space")
        await until(pilot, lambda: THOUGHTS in screen_text(app))


def marks(app: ChatApp, word: str) -> list[tuple[bool, bool]]:
    """Return for every fourth character of a word whether it is underlined, and italic."""
    strips = app.screen._compositor.render_strips()
    line = next(each for each in strips if word in each.text)
    found = []
    for place in range(line.text.index(word), line.text.index(word) + len(word), 4):
        ((_, style, _),) = line.crop(place, place + 1)
        found.append((bool(style and style.underline), bool(style and style.italic)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("is_stored", [False, True])
async def test_reasoning_and_answer_are_tinted_apart(tmp_path: Path, *, is_stored: bool) -> None:
    """The same words in both have the marks of their own tokens."""
    script = Script(["abcdefghijkl"], reasoning="efghabcd")
    app = open_chat(script, tmp_path / "history.db", fold_reasoning=False)
    draft, suffix, target = (True, False), (True, True), (False, False)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Colours")
        if is_stored:
            await app.actions.conversations.open(1)
        await pilot.press("f4")
        await pilot.pause()
        assert marks(app, "efghabcd") == [draft, suffix]
        assert marks(app, "abcdefghijkl") == [target, suffix, target]
        script.reasoning, script.answers = "", ["mnop"]
        await say(pilot, "Raw text")
        assert marks(app, "mnop") == [target]


@pytest.mark.slow
async def test_an_answer_says_how_many_tokens_were_reasoning(tmp_path: Path) -> None:
    """Also of a stored answer, whose tokens without text count too."""
    path = tmp_path / "history.db"
    app = chat(Script(["Yes, it is."], reasoning=THOUGHTS), path)
    async with app.run_test(size=(150, 60)) as pilot:
        await say(pilot, "Think")
        await until(pilot, lambda: "(8 reasoning)" in screen_text(app))
        before = app.answers.figures.origins
        await app.actions.conversations.open(1)
        await until(pilot, lambda: "(8 reasoning)" in screen_text(app))
        assert app.answers.figures.origins == before


@pytest.mark.slow
async def test_the_steps_show_reasoning_before_the_answer() -> None:
    """Going through an answer shows all that was written before a step."""
    app = chat(Script(["The answer."], reasoning="One two three."))
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Think")
        await pilot.press("f6", "end")
        await until(pilot, lambda: "One two three.The a" in screen_text(app))


@pytest.mark.slow
async def test_the_context_counts_reasoning_while_it_is_there() -> None:
    """After the answer it is what the next question finds: most templates leave reasoning out."""
    script = Script(["x" * 400], reasoning="y" * 4000, hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=(80, 24)) as pilot:
        await say(pilot, "Think", wait=False)
        assert script.hold is not None
        script.hold.set()
        await until(pilot, lambda: app.answers.current is None)
        stats = app.answers.figures.statistics
        assert stats.reasoning_tokens == 1000
        kept = stats.prompt_tokens + stats.generated_tokens
        for is_kept, used in ((False, kept - 1000), (True, kept)):
            facts = app.pair_controller.facts
            assert facts is not None
            app.pair_controller.facts = replace(facts, keeps_reasoning=is_kept)
            app.view.show_state()
            await pilot.pause()
            assert f" {round(100 * used / facts.context)} %" in screen_text(app)


@pytest.mark.slow
async def test_a_search_that_finds_reasoning_opens_it(tmp_path: Path) -> None:
    """The word is then on the screen, and the result says where it was found."""
    with Store(tmp_path / "history.db") as store:
        number = store.begin().id
        question = store.add(number, "user", "Why?")
        answer = store.add(number, "assistant", "", question.id)
        store.write(answer.id, "So.", reasoning="because of llamas", finish="stop")
        assert [each.in_reasoning for each in search_messages(store, "llamas")] == [True]
        assert [each.in_reasoning for each in search_messages(store, "so")] == [False]
    app = chat(Script(), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("ctrl+f")
        await until(pilot, lambda: len(app.screen_stack) == 2)
        await type_keys(pilot, *"llamas")
        await until(pilot, lambda: "Reasoning: because of llamas" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "because of llamas" in screen_text(app))
        assert title(app).startswith("▾")


@pytest.mark.slow
async def test_a_fold_that_opens_shows_its_beginning() -> None:
    """However long the reasoning is."""
    thoughts = "\n\n".join(f"Thought {number}." for number in range(60))
    app = chat(Script(["The answer."], reasoning=thoughts))
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "Think")
        last(app).arm()
        await pilot.press("space")
        await until(pilot, lambda: "Thought 0." in screen_text(app))
        assert "▾ thought" in screen_text(app)


@pytest.mark.slow
async def test_words_of_another_model_are_not_used(tmp_path: Path) -> None:
    """They are reported once, and the top line does not show them."""
    script = Script(["The answer."], thinking=("on", "off"))
    app = chat(script)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        app.state.options.changed["think"] = "low"
        await say(pilot, "Think")
        first = [note.message for note in app._notifications]
        await say(pilot, "Again")
        again = [note.message for note in app._notifications]
        assert script.asked[-1][1]["think"] == "auto"
        assert ["does not support think = low: using auto" in note for note in first] == [True]
        assert again == []
        assert "think: low  " not in screen_text(app).splitlines()[0]
