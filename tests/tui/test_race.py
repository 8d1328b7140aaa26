"""The race in the chat: decoded, played, stored with its answer, exported."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from scripted_chat import Script, chat
from specchat.chat.store import Store
from specchat.decoding.replay import Replay
from specchat.tui.app import ChatApp
from specchat.tui.screens.race_screen import RaceScreen
from specchat.tui.widgets.strip import Strip
from specchat.wording import speedup_text
from tui.driving import race, say, screen_text, type_keys, until

pytestmark = pytest.mark.anyio


def is_playing(app: ChatApp) -> bool:
    """Return True while a race is on the screen."""
    return isinstance(app.screen, RaceScreen)


def drafters(script: Script) -> list[Any]:
    """Return the drafter of each answer that was asked for."""
    return [options.get("drafter") for _, options in script.asked]


@pytest.mark.slow(keep=1)
@pytest.mark.usefixtures("short_races")
@pytest.mark.parametrize("call", ["f7", "/race", "/compare"])
async def test_a_race_decodes_the_answer_both_ways_and_stays_with_it(
    call: str, tmp_path: Path
) -> None:
    """Its own tokens; the second time, even in another session, the race is only played."""
    script, path = Script(["abcdefghijkl" * 10]), tmp_path / "history.db"
    app = chat(script, path)
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "A question?")
        before = app.conversations.last
        await race(pilot, call)
        assert drafters(script) == [None, "none", None]
        assert [turns for turns, _ in script.asked] == [script.asked[0][0]] * 3
        known = app.answers.steps_of(before.id) if before else None
        assert known is not None
        tokens = tuple(token for step in known.steps for token in step.tokens)
        replays = [options.get("replay") for _, options in script.asked]
        assert replays == [None, *[Replay(tokens, len(tokens))] * 2]
        await until(pilot, lambda: "Race again" in screen_text(app))
        await pilot.press("end")
        await until(pilot, lambda: "11.4 tokens/s · 30 tokens done in 2.6 s" in screen_text(app))
        shown = screen_text(app)
        assert "plain decoding" in shown
        assert "with draft model and suffix lookup" in shown
        assert "25.0 tokens/s · 30 tokens done in 1.2 s" in shown
        await type_keys(pilot, "escape")
        after = app.conversations.last
        assert before is not None
        assert after is not None
        assert after.text == before.text
        assert after.statistics["speedup"] == pytest.approx(2.2, rel=0.02)
        assert app.answers.figures.saved_before == app.conversations.store.saved_seconds()
        shown = str(app.query_one(Strip).content)
        assert speedup_text(after.statistics["speedup"]) in shown

    with Store(path) as store:
        (kept,) = store.conversations()
        assert "race" in store.tree(kept.id)[kept.leaf or 0].statistics
    app = chat(script, path)
    async with app.run_test(size=(100, 30)) as pilot:
        await app.actions.conversations.open(kept.id)
        await race(pilot, call)
        assert len(script.asked) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("short_races")
async def test_a_race_is_replayed_run_again_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Space replays it, n decodes both answers anew, e and /race export write a file."""
    monkeypatch.chdir(tmp_path)
    script = Script(["abcdefghijkl" * 3])
    app = chat(script)
    async with app.run_test(size=(80, 24)) as pilot:
        await say(pilot, "A question?")
        await race(pilot)
        await type_keys(pilot, "end")
        await until(pilot, lambda: "per target pass" in screen_text(app))
        assert "Export as SVG" in screen_text(app)
        await type_keys(pilot, "space")
        assert is_playing(app)
        await type_keys(pilot, "n")
        await until(pilot, lambda: len(script.asked) == 5 and is_playing(app))
        await type_keys(pilot, "e")
        await until(pilot, lambda: bool(list(tmp_path.glob("specchat-race-*.svg"))))
        for name in ("a race.svg", "race.cast", "race.json"):
            await say(pilot, f"/race export {name}")
            await until(pilot, (tmp_path / name).exists)
            assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a race.svg").read_text("utf-8").startswith("<svg")
    assert json.loads((tmp_path / "race.json").read_text("utf-8"))["prompt"] == "A question?"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("/race", "no answer"),
        ("/race export", "has not been raced yet"),
        ("/race faster", "Use /race, or /race export NAME.svg"),
    ],
)
async def test_what_cannot_be_done_is_a_notice(words: str, part: str) -> None:
    """Nothing is decoded for it."""
    script = Script()
    app = chat(script)
    async with app.run_test() as pilot:
        if words != "/race":
            await say(pilot, "A question?")
        await say(pilot, words)
        await until(pilot, lambda: any(part in notice.message for notice in app._notifications))
    assert len(script.asked) == (words != "/race")


@pytest.mark.slow
async def test_an_answer_without_drafts_has_no_race() -> None:
    """There would be two equal answers; one line says so."""
    script = Script(num_drafted=0)
    app = chat(script)
    async with app.run_test() as pilot:
        await say(pilot, "A question?")
        await say(pilot, "/race")
        await until(pilot, lambda: any("no drafts" in each.message for each in app._notifications))
    assert len(script.asked) == 1


@pytest.mark.slow
async def test_an_answer_of_another_model_has_no_race(tmp_path: Path) -> None:
    """Its tokens are that model's."""
    script, path = Script(), tmp_path / "history.db"
    app = chat(script, path)
    async with app.run_test() as pilot:
        await say(pilot, "A question?")
        known = app.conversations.last
        assert known is not None
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE steps SET target = 'Other 3B'")
    app = chat(script, path)
    async with app.run_test() as pilot:
        await app.actions.conversations.open(1)
        await say(pilot, "/race")
        await until(pilot, lambda: any("Other 3B" in each.message for each in app._notifications))
    assert len(script.asked) == 1


@pytest.mark.slow
async def test_an_export_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of that name stays as it is, and a name must say the format."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "race.svg").write_text("mine", "utf-8")
    app = chat(Script())
    async with app.run_test() as pilot:
        await say(pilot, "A question?")
        await race(pilot)
        await type_keys(pilot, "escape")
        await say(pilot, "/race export race.svg")
        await until(pilot, lambda: any("cannot be" in each.message for each in app._notifications))
        await say(pilot, "/race export race.gif")
        await until(pilot, lambda: any("Use /race" in each.message for each in app._notifications))
    assert (tmp_path / "race.svg").read_text("utf-8") == "mine"
