"""Presets and sampling, chosen in the chat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from scripted_chat import Script, chat
from specchat.chat.preset import Preset
from specchat.settings.schema import find_setting
from specchat.tui.screens.dialogs import ChoiceScreen, LineScreen, TextScreen
from specchat.tui.texts.setting_names import setting_title
from tui.driving import frame_text, say, screen_text, type_keys, until
from tui.test_asking import SIZE

pytestmark = pytest.mark.anyio


async def choose(pilot: Pilot[None], words: str) -> None:
    """Choose a line of the list that is open."""
    await until(pilot, lambda: isinstance(pilot.app.screen, ChoiceScreen))
    await type_keys(pilot, *words)
    await pilot.press("enter")
    await pilot.pause()


async def write(pilot: Pilot[None], title: str, text: str | None = None) -> str:
    """Write a text where one is asked for; return what was there before."""

    def is_asked() -> bool:
        screen = pilot.app.screen
        return isinstance(screen, TextScreen) and title in screen._heading

    await until(pilot, is_asked)
    screen = pilot.app.screen
    assert isinstance(screen, TextScreen)
    before = screen.written
    if text is not None and isinstance(screen, LineScreen):
        screen.query_one(Input).value = text
    elif text is not None:
        screen.query_one(TextArea).text = text
    await pilot.press("ctrl+s")
    await pilot.pause()
    return before


async def test_a_preset_is_made_changed_and_deleted_in_the_chat(tmp_path: Path) -> None:
    """A preset holds the values chosen there, not the command line's; invalid ones are refused."""
    script = Script()
    app = chat(script, tmp_path / "history.db", options={"temperature": 0.1, "drafter": "none"})
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        app.conversations.set_system_prompt("Answer in verse.")
        app.run_worker(app.actions.conversations.choose_preset())
        await choose(pilot, "new preset")
        await write(pilot, "Name", " ")
        await until(pilot, lambda: "needs a name" in screen_text(app))
        await write(pilot, "Name", "poet\x1b")
        assert await write(pilot, "System prompt") == "Answer in verse."
        assert await write(pilot, "Sampling", "top_k = many") == ""
        await until(pilot, lambda: "top_k must be" in screen_text(app))
        assert await write(pilot, "Sampling", "top_k = 7\nseed = random\n") == "top_k = many"
        assert await write(pilot, "Schema of poet") == ""
        await until(pilot, lambda: "poet" in frame_text(app))
        (kept,) = app.conversations.store.presets()
        assert kept == Preset("poet\ufffd", "Answer in verse.", {"top_k": 7, "seed": None})
        await say(pilot, "one")
        options = script.asked[0][1]
        assert (options["top_k"], options["temperature"], options["drafter"]) == (7, 0.1, "none")

        await pilot.press("ctrl+n")
        await say(pilot, "two")
        assert "top_k" not in script.asked[1][1]
        assert [turn["role"] for turn in script.asked[1][0]] == ["user"]

        app.run_worker(app.actions.conversations.choose_preset())
        await choose(pilot, "poet")
        await choose(pilot, "edit")
        await write(pilot, "System prompt", "Answer in prose.")
        assert await write(pilot, "Sampling", "top_k = 9") == "top_k = 7\nseed = random"
        assert await write(pilot, "Schema") == ""
        await until(pilot, lambda: app.conversations.store.presets()[0].sampling == {"top_k": 9})
        app.run_worker(app.actions.conversations.choose_preset())
        await choose(pilot, "poet")
        await choose(pilot, "delete")
        await until(pilot, lambda: app.conversations.store.presets() == [])


@pytest.mark.slow
async def test_sampling_set_in_the_chat_counts_for_the_next_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The values are written into the file and passed to the engine."""
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").touch()
    script = Script()
    app = chat(script, options={"temperature": 0.8, "drafter": "auto"})
    async with app.run_test(size=SIZE) as pilot:
        await app.run_action("settings")
        for name, value in (
            ("sampling.temperature", "0.3"), ("sampling.seed", "random"),
            ("decoding.draft_length", "auto"), ("chat.system_prompt", "Be brief."),
        ):  # fmt: skip
            await choose(pilot, name.partition(".")[2])
            await write(pilot, setting_title(find_setting(name)), value)
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press("escape")
        await say(pilot, "one")
    turns, options = script.asked[0]

    assert (options["temperature"], options["seed"], options["draft_length"]) == (0.3, None, "auto")
    assert turns[0] == {"role": "system", "content": "Be brief."}
    assert "temperature = 0.3" in (tmp_path / "config.toml").read_text("utf-8")


@pytest.mark.slow
async def test_a_conversation_is_reopened_with_its_preset(tmp_path: Path) -> None:
    """Its system prompt and its sampling; other conversations have none of it."""
    script = Script()
    path = tmp_path / "history.db"
    app = chat(script, path)
    async with app.run_test(size=SIZE) as pilot:
        app.conversations.store.save_preset(
            Preset("cold", "Be brief.", {"temperature": 0.0, "drafter": "none"})
        )
        (preset,) = app.conversations.store.presets()
        app.actions.conversations.use_preset(preset)
        await say(pilot, "one")
        await app.actions.conversations.new()
        assert "cold" not in frame_text(app)
        await say(pilot, "two")
    for opened, is_cold in ((1, True), (2, False)):
        again = chat(script, path)
        async with again.run_test(size=SIZE) as pilot:
            await again.actions.conversations.open(opened)
            assert ("preset cold" in frame_text(again)) == is_cold
            await say(pilot, "more")
            turns, options = script.asked[-1]
            assert (options.get("temperature") == 0.0) == is_cold
            assert "drafter" not in options
            assert (turns[0]["content"] == "Be brief.") == is_cold


def schema_of(script: Script) -> Any:
    """Return the JSON Schema that the engine was asked to enforce last, None for none."""
    structure = script.asked[-1][1]["structure"]
    return structure and json.loads(structure.source)


@pytest.mark.slow
async def test_a_preset_has_the_schema_of_the_chat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is kept by its whole path and read when the preset is chosen; others end it."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "dog.json"
    file.write_text('{"type": "object", "properties": {"name": {"type": "string"}}}')
    script = Script()
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "/schema dog.json", wait=False)
        await until(pilot, lambda: "schema dog.json" in frame_text(app))
        app.run_worker(app.actions.conversations.choose_preset())
        await choose(pilot, "new preset")
        await write(pilot, "Name", "dogs")
        await write(pilot, "System prompt")
        await write(pilot, "Sampling")
        assert await write(pilot, "Schema of dogs", "{") == str(file)
        await until(pilot, lambda: "not valid JSON" in screen_text(app))
        assert await write(pilot, "Schema of dogs", "./dog.json") == "{"
        await until(pilot, lambda: "preset dogs" in frame_text(app))
        (kept,) = app.conversations.store.presets()
        assert kept.schema == str(file)
        await say(pilot, "/schema off", wait=False)
        await until(pilot, lambda: "schema" not in frame_text(app))
        file.write_text('{"enum": ["woof"]}')
        app.actions.conversations.use_preset(kept)
        await say(pilot, "one")
        assert schema_of(script) == {"enum": ["woof"]}
        app.actions.conversations.use_preset(Preset("plain", "", {}))
        assert "schema" not in frame_text(app)
        await say(pilot, "two")
        assert schema_of(script) is None
        app.run_worker(app.actions.conversations.choose_preset())
        await until(pilot, lambda: f"schema {file}"[:40] in screen_text(app))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("gone/dog.json", "no file gone/dog.json"),
        ("gone/\ndog.json", "no file gone/ dog.json"),
        ("{", "not valid JSON"),
        ('{"not": {}}', '"not" cannot be enforced'),
        ("age nonsense", "unknown type"),
    ],
)
async def test_a_wrong_schema_in_a_preset_is_one_line(
    tmp_path: Path, schema: str, reason: str
) -> None:
    """It names the preset, the field and what to do; nothing of the preset is used."""
    script = Script()
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        app.conversations.store.save_preset(Preset("poet", "In verse.", {"top_k": 3}, schema))
        await type_keys(pilot, "ctrl+p")
        await type_keys(pilot, *"preset: poet")
        await until(pilot, lambda: "Preset: poet" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.notices.latest))
        (notice,) = [each.message for each in app.notices.latest]
        assert "\n" not in notice
        assert notice.startswith("Preset poet cannot be used. Its schema: ")
        assert notice.endswith(". /presets edits it.")
        assert reason in notice
        await say(pilot, "one")
    turns, options = script.asked[-1]
    assert [turn["role"] for turn in turns] == ["user"]
    assert schema_of(script) is None
    assert "top_k" not in options


@pytest.mark.slow
async def test_a_preset_that_is_gone_is_no_hindrance(tmp_path: Path) -> None:
    """The conversation keeps its system prompt."""
    script = Script()
    path = tmp_path / "history.db"
    app = chat(script, path)
    async with app.run_test(size=SIZE) as pilot:
        app.actions.conversations.use_preset(Preset("gone", "Be brief.", {"temperature": 0.0}))
        await say(pilot, "one")
    again = chat(script, path)
    async with again.run_test(size=SIZE) as pilot:
        await again.actions.conversations.open(1)
        assert "gone" not in frame_text(again)
        await say(pilot, "more")
        turns, options = script.asked[-1]
        assert "temperature" not in options
        assert turns[0]["content"] == "Be brief."


@pytest.mark.slow
async def test_a_name_in_the_frame_is_no_markup() -> None:
    """It is shown as it is, and a click opens the presets."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        for name in ("[A]b", "ends\\", "x[", "[@click=app.quit]here[/]"):
            app.actions.conversations.use_preset(Preset(name, "Be brief.", {}))
            shown = f"preset {name[:19]}"
            await until(pilot, lambda shown=shown: shown in screen_text(app))  # type: ignore[misc]
            rows = screen_text(app).splitlines()
            row = next(index for index, line in enumerate(rows) if shown in line)
            await pilot.click(offset=(rows[row].index(shown) + 2, row))
            await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(app.screen, ChoiceScreen))
