"""The schema switch: answers follow what the user types, and what was forced can be seen."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.events import Key, Paste
from textual.keys import _character_to_key
from textual.widgets import Static

from conftest import WriteModel
from engine.test_lossless import EXACT
from scripted_chat import Script, chat
from scripts.support.tiny_gguf import CHAT_TEMPLATE, Vocabulary
from specchat.chat.conversation import ChatSchema
from specchat.chat.store import Store
from specchat.drafter_registry import GRAMMAR
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.tui.app import ChatApp
from specchat.tui.setup import PairChoice, Setup
from specchat.tui.widgets.composer import Composer
from tui.driving import frame_text, say, screen_text, type_keys, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def app(tiny: WriteModel) -> ChatApp:
    """Return a chat with a tiny pair."""
    loading = Loading(tiny("llama"), tiny("llama", "half right"), **EXACT)
    options = {"temperature": 0.0, "max_tokens": 80, "draft_length": 4}
    return ChatApp(Setup(PairChoice("tiny", "", loading, options), offers=list, history=None),
                   load=LocalEngine)  # fmt: skip


def notices(app: ChatApp) -> str:
    """Return the messages on the screen."""
    return "\n".join(each.message for each in app.notices.latest)


def last_text(app: ChatApp) -> str:
    """Return the text of the last answer."""
    assert app.conversations.last is not None
    return app.conversations.last.text


async def test_answers_follow_the_schema(app: ChatApp) -> None:
    """From the next answer on, also regenerated ones, until it is switched off."""
    async with app.run_test(size=(120, 40)) as pilot:
        await say(pilot, "/schema ok bool, colour bool", wait=False)
        await until(pilot, lambda: "schema ok bool" in str(app.query_one(Composer).border_title))
        await say(pilot, "A pet, please.")
        texts = [last_text(app)]
        await pilot.press("f5")
        await until(pilot, lambda: app.answers.current is None)
        texts.append(last_text(app))
        assert texts[0] == texts[1]
        assert list(json.loads(texts[0])) == ["ok", "colour"]
        assert app.answers.figures.origins[GRAMMAR.name] > 8
        await say(pilot, "/schema off", wait=False)
        await until(pilot, lambda: not app.conversations.schema)
        await say(pilot, "A pet, please.")
        assert not last_text(app).startswith('{"ok"')


@pytest.mark.slow
async def test_steps_show_what_was_forced(app: ChatApp) -> None:
    """As chips with a mark of their own, with a sentence that says so."""
    async with app.run_test(size=(120, 40)) as pilot:
        await say(pilot, "/schema ok bool", wait=False)
        await until(pilot, lambda: bool(app.conversations.schema))
        await say(pilot, "A pet, please.")
        await pilot.press("f6")
        await until(pilot, lambda: len(app.screen_stack) > 1)
        await pilot.press("home")
        shown = str(app.screen.query_one("#place", Static).render())
        assert "The grammar forced" in shown
        chips = str(app.screen.query_one("#step", Static).render())
        assert "forced by the grammar" in chips


NO_SCHEMAS = (
    ("{broken", "not valid JSON"),
    ("missing.json", "no file missing.json"),
    ("~nobody-here/a.json", "no file ~nobody-here/a.json"),
    ("age nonsense", "nonsense"),
    (
        '{"not": {"type": "string"}}',
        '"not" cannot be enforced: leave it out, or use specchat ask --schema-check relaxed',
    ),
    ('{"properties": {"a": {"pattern": "("}}}', '"pattern"'),
    ("[" * 9, "is not a name"),
)
"""What may be typed as a schema, and why it is none."""


async def test_what_is_no_schema_is_put_back() -> None:
    """With the reason; nothing is set."""
    app = chat(Script())
    async with app.run_test(size=(120, 40)) as pilot:
        for typed, reason in NO_SCHEMAS:
            app.clear_notifications()
            await say(pilot, f"/schema {typed}", wait=False)
            await until(pilot, lambda: bool(notices(app)))
            assert app.conversations.schema is None
            assert reason in notices(app)
            assert app.query_one(Composer).text == f"/schema {typed}"


LINES = json.dumps({"type": "object", "properties": {"ok": {"type": "boolean"}}}, indent=1)
MANY_LINES = LINES.replace("\n", "\n\n\n")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("text", [LINES, MANY_LINES])
async def test_a_schema_of_several_lines_is_pasted(text: str) -> None:
    """It is a command as it is on one line, also where many lines are folded."""
    script = Script()
    app = chat(script)
    async with app.run_test(size=(120, 40)) as pilot:
        await type_keys(pilot, *"/schema ")
        app.post_message(Paste(text))
        await until(pilot, lambda: app.query_one(Composer).text != "/schema ")
        assert ("[pasted " in app.query_one(Composer).text) == (text == MANY_LINES)
        assert "token" not in frame_text(app)
        await type_keys(pilot, "enter")
        await until(pilot, lambda: "schema {" in frame_text(app))
        assert app.conversations.schema is not None
        assert json.loads(app.conversations.schema.source) == json.loads(text)
        assert script.asked == []


@pytest.mark.slow
async def test_lines_that_are_not_marked_as_pasted_are_one_schema() -> None:
    """Terminals without bracketed paste send an Enter for each of them, at once."""
    script = Script()
    app = chat(script)
    async with app.run_test(size=(120, 40)) as pilot:
        for character in f"/schema {LINES}\n".replace("\n", "\r"):
            name = "enter" if character == "\r" else _character_to_key(character)
            app.post_message(Key(name, character))
        await until(pilot, lambda: "schema {" in frame_text(app))
        assert app.query_one(Composer).text == ""
        assert script.asked == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pets.json", "my pets.json"])
async def test_the_name_of_a_file_is_completed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an @, as in a message."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(LINES)
    app = chat(Script())
    async with app.run_test(size=(120, 40)) as pilot:
        await type_keys(pilot, *"/schema @", *name[:2])
        await pilot.press("tab")
        await until(pilot, lambda: "json" in app.query_one(Composer).text)
        await pilot.press("enter")
        await until(pilot, lambda: f"schema {name}" in frame_text(app))


def opened(
    history: Path, tiny: WriteModel, max_tokens: int = 80, template: str | None = CHAT_TEMPLATE
) -> ChatApp:
    """Return a chat with a tiny pair that has a chat template, on a store."""
    target = tiny("llama", vocabulary=Vocabulary(chat_template=template))
    options = {"temperature": 0.0, "max_tokens": max_tokens, "drafter": "none"}
    setup = Setup(PairChoice("tiny", "", Loading(target, **EXACT), options), list, history)
    return ChatApp(setup, load=LocalEngine)


@pytest.mark.slow
async def test_a_conversation_is_reopened_with_its_schema(tiny: WriteModel, tmp_path: Path) -> None:
    """Shown and ended as before; a file it came from may be gone. Other chats have none."""
    path, file = tmp_path / "history.db", tmp_path / "pets.json"
    file.write_text('{"type": "object", "properties": {"ok": {"type": "boolean"}}}')
    app = opened(path, tiny)
    async with app.run_test(size=(120, 40)) as pilot:
        await say(pilot, f"/schema {file}", wait=False)
        await until(pilot, lambda: "schema pets.json" in frame_text(app))
        await say(pilot, "A pet, please.")
        await pilot.press("ctrl+n")
        await until(pilot, lambda: "schema" not in frame_text(app))
        await say(pilot, "A pet, please.")
        assert not last_text(app).startswith("{")
    file.unlink()
    app = opened(path, tiny)
    async with app.run_test(size=(120, 40)) as pilot:
        await app.actions.conversations.open(2)
        assert "schema" not in frame_text(app)
        await app.actions.conversations.open(1)
        assert "schema pets.json" in frame_text(app)
        await say(pilot, "Another one.")
        assert set(json.loads(last_text(app))) <= {"ok"}
        await say(pilot, "/schema", wait=False)
        await until(pilot, lambda: f"follow the schema {file}" in notices(app))
        await say(pilot, "/schema off", wait=False)
        await until(pilot, lambda: "schema" not in frame_text(app))
    app = opened(path, tiny)
    async with app.run_test(size=(120, 40)):
        await app.actions.conversations.open(1)
        assert "schema" not in frame_text(app)


@pytest.mark.slow
@pytest.mark.parametrize("then", ["off", "name, age int"])
async def test_an_answer_goes_on_with_its_own_schema(
    tiny: WriteModel, tmp_path: Path, then: str
) -> None:
    """In a later session, and though the conversation has no schema any more, or another one."""
    path = tmp_path / "history.db"
    app = opened(path, tiny, max_tokens=5)
    async with app.run_test(size=(120, 40)) as pilot:
        await say(pilot, "/schema ok bool, colour bool", wait=False)
        await say(pilot, "A pet, please.")
        begun = last_text(app)
        assert begun
        assert not begun.endswith("}")
    again = opened(path, tiny)
    async with again.run_test(size=(120, 40)) as pilot:
        await again.actions.conversations.open(1)
        await say(pilot, f"/schema {then}", wait=False)
        await until(pilot, lambda: "ok bool" not in frame_text(again))
        await say(pilot, "/continue", wait=False)
        await until(pilot, lambda: again.answers.current is None and last_text(again)[-1] == "}")
        assert last_text(again).startswith(begun)
        assert list(json.loads(last_text(again))) == ["ok", "colour"]


@pytest.mark.slow
@pytest.mark.parametrize("max_tokens", [40, None])
async def test_the_value_that_ran_away_is_named(
    tiny: WriteModel, tmp_path: Path, max_tokens: int | None
) -> None:
    """Below the answer, at the token limit as in a full context, also when it is opened again."""
    path = tmp_path / "history.db"
    said = "in pet.name: limit it in the schema"
    pet = {"type": "object", "properties": {"name": {"type": "string", "minLength": 5000}}}
    pet["required"] = ["name"]
    schema = json.dumps({"type": "object", "properties": {"pet": pet}, "required": ["pet"]})
    for _ in range(2):
        app = opened(path, tiny)
        app.state.options.changed["max_tokens"] = max_tokens
        async with app.run_test(size=(160, 40)) as pilot:
            if path.exists() and app.conversations.store.conversations():
                await app.actions.conversations.open(1)
            else:
                await say(pilot, f"/schema {schema}", wait=False)
                await say(pilot, "A pet, please.")
            ending = "context full" if max_tokens is None else "token limit reached"
            await until(pilot, partial(shows, app, f"{ending} {said} · Ctrl+G continues"))


def shows(app: ChatApp, words: str) -> bool:
    """Return True if words are on the screen, whatever the width of its lines."""
    return words in " ".join(screen_text(app).split())


@pytest.mark.slow
async def test_without_a_template_an_answer_is_not_continued(
    tiny: WriteModel, tmp_path: Path
) -> None:
    """It would begin anew after its beginning, and be invalid; one line says what to do."""
    app = opened(tmp_path / "history.db", tiny, max_tokens=3, template=None)
    async with app.run_test(size=(120, 40)) as pilot:
        await say(pilot, "/schema ok bool, colour bool", wait=False)
        await say(pilot, "A pet, please.")
        begun = last_text(app)
        await say(pilot, "/continue", wait=False)
        await until(pilot, lambda: "cannot be continued, as this" in screen_text(app))
        assert last_text(app) == begun


@pytest.mark.slow
async def test_a_token_that_the_schema_forbids_is_refused(tiny: WriteModel, tmp_path: Path) -> None:
    """The steps offer what the model itself would write; one line says why that cannot be.

    The answer stays as it was, and gets no version that breaks off there.
    """
    app = opened(tmp_path / "history.db", tiny)
    async with app.run_test(size=(120, 40)) as pilot:
        await say(pilot, "/schema ok bool", wait=False)
        await say(pilot, "A pet, please.")
        answer = app.conversations.last
        assert answer is not None
        known = app.answers.steps_of(answer.id)
        assert known is not None
        (first, *_) = known.steps
        forbidden = first._replace(tokens=(first.tokens[0] + 1,), texts=("",), origins=("target",))
        await app.state.questions.branch_off(answer.id, [forbidden], known.target)
        await until(pilot, lambda: app.answers.current is None)
        await until(pilot, lambda: "schema does not allow that token there. F6" in notices(app))
        assert app.conversations.last == answer
        assert app.conversations.tree.version(answer.id) == (1, 1)
        await until(pilot, lambda: app.view.transcript.views[-1].message_id == answer.id)
        await say(pilot, "Another one.")
        assert json.loads(last_text(app)).keys() == {"ok"}


@pytest.mark.slow
async def test_a_schema_in_a_running_chat_has_nothing_read_again(
    tiny: WriteModel, tmp_path: Path
) -> None:
    """Neither where it begins nor where it ends; a prompt only grows."""
    app = opened(tmp_path / "history.db", tiny, max_tokens=4)
    before = 0
    async with app.run_test(size=(120, 40)) as pilot:
        for command in ("", "/schema ok bool", "", "/schema off", ""):
            if command:
                await say(pilot, command, wait=False)
                await until(pilot, lambda: not app.query_one(Composer).text)
                await pilot.pause()
            await say(pilot, "Hi")
            stats = app.answers.figures.statistics
            assert stats.left_out == 0
            assert stats.cached_tokens >= before
            before = stats.prompt_tokens - 1


@pytest.mark.slow
async def test_a_question_says_what_is_new_of_its_answers_schema() -> None:
    """And every time the same; other branches, and the title, are told what their answers had."""
    script = Script(["{}"])
    app = chat(script, titles=True)
    async with app.run_test(size=(120, 40)) as pilot:
        for words in ("Q", "/schema ok bool", "Q", "Q", "/schema off", "Q", "Q"):
            await say(pilot, words)
            await pilot.pause()
    (messages, _) = script.asked[4]
    told = [each["content"] for each in messages if each["role"] == "user"]
    begin = "Q\n\nAnswer only with JSON, in one line, that matches this JSON Schema: {"
    assert told[1].startswith(begin)
    assert [told[0], *told[2:]] == ["Q", "Q", "Q\n\nAnswer in plain text again.", "Q"]
    assert all(each["role"] != "system" for each in messages)
    assert all(messages[: len(each)] == each for each, _ in script.asked[:4])
    assert not any(each["structure"] and each["structure"].is_shown for _, each in script.asked)


@pytest.mark.slow
async def test_the_question_with_the_schema_stays_in_the_context(tmp_path: Path) -> None:
    """As long as answers follow it, and like a pinned turn; after that it drops out."""
    script = Script(["{}"])
    app = chat(script, system_prompt="Be brief.")
    async with app.run_test(size=(120, 40)) as pilot:
        for words in ("Q", "/schema ok bool", "Q", "Q", "Q"):
            await say(pilot, words)
            await pilot.pause()
        assert [options["pinned"] for _, options in script.asked] == [(), [3], [3], [3]]
        (messages, _) = script.asked[-1]
        assert "matches this JSON Schema" in messages[3]["content"]
        await say(pilot, "/context", wait=False)
        await until(pilot, lambda: "1 turn stays whatever happens." in notices(app))
        for words in ("/schema age int", "Q", "/schema off", "Q"):
            await say(pilot, words)
            await pilot.pause()
    assert [options["pinned"] for _, options in script.asked[4:]] == [[9], ()]


def structures(script: Script) -> list[Any]:
    """Return the JSON Schemas that the engine was asked to enforce, None for none."""
    found = [options["structure"] for _, options in script.asked]
    return [each and json.loads(each.source)["required"] for each in found]


@pytest.mark.slow
async def test_a_summary_has_no_schema() -> None:
    """Nor has a summary that is written again."""
    script = Script(["One.", "Two.", "Sum.", "Sum again."])
    app = chat(script)
    async with app.run_test(size=(120, 40)) as pilot:
        await say(pilot, "/schema ok bool", wait=False)
        await say(pilot, "first")
        await say(pilot, "second")
        await say(pilot, "/compact", wait=False)
        await until(pilot, lambda: app.answers.current is None and len(script.asked) == 3)
        await pilot.press("f5")
        await until(pilot, lambda: app.answers.current is None and len(script.asked) == 4)
    assert structures(script) == [["ok"], ["ok"], None, None]


@pytest.mark.slow
async def test_a_race_and_a_branch_follow_the_answers_own_schema() -> None:
    """They are about that answer; one that is written again follows the schema of now."""
    script = Script(["one two three four five six seven eight"], alternatives=((9, " six", 0.4),))
    app = chat(script)
    async with app.run_test(size=(120, 40)) as pilot:
        await say(pilot, "/schema old", wait=False)
        await say(pilot, "first")
        await say(pilot, "/schema new", wait=False)
        await until(pilot, lambda: "schema new" in frame_text(app))
        await app.state.races.run(lambda _: None)
        await until(pilot, lambda: app.state.races.last is not None)
        num_raced = len(script.asked)
        answer = app.conversations.last
        assert answer is not None
        known = app.answers.steps_of(answer.id)
        assert known is not None
        await app.state.questions.branch_off(answer.id, known.steps[:1], known.target)
        await until(pilot, lambda: app.answers.current is None and len(script.asked) > num_raced)
        await pilot.press("f5")
        await until(pilot, lambda: app.answers.current is None)
    assert structures(script) == [["old"]] * (num_raced + 1) + [["new"]]


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "num_left_out"), [("ok bool", 0), ("ok: " + "b " * 300, 2)])
async def test_a_schema_counts_as_part_of_the_prompt(
    tiny: WriteModel, tmp_path: Path, typed: str, num_left_out: int
) -> None:
    """Where it takes the place of older messages, that is said while a message is written."""
    app = opened(tmp_path / "history.db", tiny)

    def is_counted() -> bool:
        size = app.state.message_size.size
        return (
            not app.state.message_size.is_estimate and size is not None and size.num_left_out >= 0
        )

    async with app.run_test(size=(120, 40)) as pilot:
        await say(pilot, "A pet, please.")
        await say(pilot, f"/schema {typed}", wait=False)
        await until(pilot, lambda: "schema ok" in frame_text(app))
        app.query_one(Composer).text = "Another"
        await until(pilot, is_counted)
        assert app.state.message_size.size is not None
        assert app.state.message_size.size.num_left_out == num_left_out


async def test_a_damaged_schema_is_left_out(tmp_path: Path) -> None:
    """The conversation opens without it; a hostile one is shown as plain text and refused."""
    path = tmp_path / "history.db"
    with Store(path) as store:
        for column in ("{", "[]", '{"typed": 1, "source": ""}'):
            number = store.begin().id
            store.add(number, "user", "Hi")
            store.change(number, schema=column)
        number = store.begin(schema=ChatSchema("[@click=app.quit]\x1b[2J\n", "{broken")).id
        store.add(number, "user", "Hi")
    app = chat(Script(), path)
    async with app.run_test(size=(120, 40)):
        for each in (1, 2, 3):
            await app.actions.conversations.open(each)
            assert "schema" not in frame_text(app)
        await app.actions.conversations.open(4)
        assert "schema [@click=app.quit]" in frame_text(app)
        assert "\x1b" not in screen_text(app)
