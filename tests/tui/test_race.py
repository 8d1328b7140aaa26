"""The race in the chat: offered, decoded, played, stored with its answer, saved."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input, Static

from scripted_chat import Script, chat
from specchat.bench import race_picture
from specchat.bench.race_record import Race
from specchat.chat.answer_statistics import MIN_MEASURED_TOKENS
from specchat.chat.store import Store
from specchat.decoding.replay import Replay
from specchat.tui.app import ChatApp
from specchat.tui.controllers import race_offer as race_offer_module
from specchat.tui.controllers.pulls import Pull, PullState
from specchat.tui.controllers.races import Races
from specchat.tui.screens.dialogs import LineScreen
from specchat.tui.screens.race_screen import RaceScreen
from specchat.tui.setup import Offer
from specchat.tui.widgets.strip import Strip
from specchat.wording import speedup_text
from tui.driving import hint, race, say, screen_text, type_keys, until

pytestmark = pytest.mark.anyio


def is_playing(app: ChatApp) -> bool:
    """Return True while a race is on the screen."""
    return isinstance(app.screen, RaceScreen)


def newest(app: ChatApp) -> str:
    """Return the newest notice."""
    return app.notices.latest[-1].message if app.notices.latest else ""


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
async def test_a_race_is_replayed_run_again_and_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Space replays it, n decodes both answers anew, Ctrl+E and /race save write a file."""
    monkeypatch.chdir(tmp_path)
    script = Script(["abcdefghijkl" * 3])
    app = chat(script)
    async with app.run_test(size=(80, 24)) as pilot:
        await say(pilot, "A question?")
        await race(pilot)
        await type_keys(pilot, "end")
        await until(pilot, lambda: "draft tokens accepted" in screen_text(app))
        await type_keys(pilot, "space")
        assert is_playing(app)
        await type_keys(pilot, "n")
        await until(pilot, lambda: len(script.asked) == 5 and is_playing(app))
        await pilot.press("ctrl+e")
        await until(pilot, lambda: isinstance(app.screen, LineScreen))
        line = app.screen.query_one(Input)
        assert line.value == "race.svg"
        line.value = "race.jpg"
        await pilot.press("enter")
        await until(pilot, lambda: "must end in .svg" in screen_text(app))
        line.value = "cards/mine.svg"
        await pilot.press("enter")
        await until(pilot, lambda: "create it first" in screen_text(app))
        (tmp_path / "cards").mkdir()
        await pilot.press("enter")
        await until(pilot, lambda: "Saved to" in newest(app))
        assert is_playing(app)
        assert (tmp_path / "cards" / "mine.svg").read_text("utf-8").startswith("<svg")
        await type_keys(pilot, "escape")
        for name in ("a race.svg", "race.cast", "race.json"):
            await say(pilot, f"/race save {name}")
            await until(pilot, (tmp_path / name).exists)
            assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a race.svg").read_text("utf-8").startswith("<svg")
    assert json.loads((tmp_path / "race.json").read_text("utf-8"))["prompt"] == "A question?"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("/race", "no answer"),
        ("/race save race.svg", "has not been raced yet"),
        ("/race save", "Use /race, or /race save NAME"),
        ("/race faster", "Use /race, or /race save NAME"),
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
async def test_saving_overwrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of that name stays as it is, and a name must say the format."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "race.svg").write_text("mine", "utf-8")
    app = chat(Script())
    async with app.run_test() as pilot:
        await say(pilot, "A question?")
        await race(pilot)
        await type_keys(pilot, "escape")
        await say(pilot, "/race save race.svg")
        await until(pilot, lambda: any("cannot be" in each.message for each in app._notifications))
        await say(pilot, "/race save race.jpg")
        await until(pilot, lambda: "must end in .svg" in newest(app))
    assert (tmp_path / "race.svg").read_text("utf-8") == "mine"


@pytest.mark.slow
async def test_a_card_is_written_while_the_chat_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notice says so, keys still work, and another one names the file."""
    monkeypatch.chdir(tmp_path)
    is_free = threading.Event()

    def slow(races: list[Race]) -> bytes:
        assert len(races) == 1
        assert is_free.wait(60)
        return b"{}"

    monkeypatch.setitem(race_picture.ENDINGS, ".cast", slow)
    app = chat(Script())
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "A question?")
        await race(pilot)
        await type_keys(pilot, "escape")
        await say(pilot, "/race save race.cast")
        await until(pilot, lambda: newest(app) == "Saving race.cast…")
        await say(pilot, "Another question?")
        assert not (tmp_path / "race.cast").exists()
        is_free.set()
        await until(pilot, lambda: newest(app) == f"Saved to {tmp_path / 'race.cast'}.")
    assert (tmp_path / "race.cast").read_bytes() == b"{}"


LONG = "abcdefghijkl" * 10
OFFER = "Faster with drafts: F7 races this answer with and without · Ctrl+O: hide"


@pytest.fixture
def own_offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep in a file of the test's own that the offer has been made."""
    monkeypatch.setattr(race_offer_module, "offers_path", lambda: tmp_path / "offers.json")


def race_offer(app: ChatApp) -> str:
    """Return the line that offers a race, empty while it is hidden."""
    line = app.query_one("#offer", Static)
    return str(line.render()) if line.display else ""


@pytest.mark.usefixtures("short_races", "own_offers")
async def test_the_first_faster_answer_offers_its_race_once() -> None:
    """A click takes the offer, and no later answer makes it again, even in another session."""
    script = Script([LONG])
    app = chat(script, offers_race=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "A question?")
        assert race_offer(app) == OFFER
        await pilot.click("#offer")
        await until(pilot, lambda: is_playing(app))
        assert len(script.asked) == 3
        await type_keys(pilot, "escape")
        assert race_offer(app) == ""
        await say(pilot, "Another one?")
        assert race_offer(app) == ""
    app = chat(script, offers_race=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "A third one?")
        assert app.answers.figures.tone == "good"
        assert race_offer(app) == ""


@pytest.mark.usefixtures("short_races", "own_offers")
async def test_the_offer_names_living_keys_and_is_hidden() -> None:
    """It goes with its answer too, and comes back with it."""
    app = chat(Script([LONG]), offers_race=True, keys={"compare": "ctrl+b", "hide": "f12"})
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "A question?")
        offer = race_offer(app)
        assert "Ctrl+B races this answer" in offer
        first = app.conversations.number
        await pilot.press("ctrl+n")
        await until(pilot, lambda: race_offer(app) == "")
        await app.actions.conversations.open(first or 0)
        await until(pilot, lambda: race_offer(app) == offer)
        await pilot.press("f12")
        await until(pilot, lambda: race_offer(app) == "")


@pytest.mark.usefixtures("short_races", "own_offers")
@pytest.mark.parametrize("script", [Script(["No."]), Script([LONG], num_drafted=0)])
async def test_an_answer_that_is_not_faster_offers_nothing(script: Script) -> None:
    """Without drafts, or where nothing can be told."""
    app = chat(script, offers_race=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "A question?")
        assert app.answers.figures.tone == ""
        assert race_offer(app) == ""


@pytest.mark.usefixtures("short_races", "own_offers")
async def test_an_answer_elsewhere_offers_no_race(tmp_path: Path) -> None:
    """Nor does it make the one on the screen an offer, which ended long ago."""
    path = tmp_path / "history.db"
    app = chat(Script([LONG]), path)
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "A question?")
        faster = app.conversations.number or 0
    script = Script([LONG], hold=threading.Event())
    app = chat(script, path, offers_race=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "Another one?", wait=False)
        await until(pilot, lambda: app.answers.current is not None and bool(script.asked))
        await app.actions.conversations.open(faster)
        assert script.hold is not None
        script.hold.set()
        await until(pilot, lambda: app.answers.current is None)
        assert app.answers.figures.tone == "good"
        assert race_offer(app) == ""


@pytest.mark.usefixtures("short_races", "own_offers")
async def test_an_answer_that_cannot_be_raced_does_not_take_the_offer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next one that can be has it, above a running download."""
    app = chat(Script([LONG]), offers_race=True)
    async with app.run_test(size=(100, 30)) as pilot:
        with monkeypatch.context() as patched:
            patched.setattr(Races, "can_race", lambda *_: False)
            await say(pilot, "A question?")
        assert race_offer(app) == ""
        app.pulls.running["qwen"] = Pull(Offer("qwen", ""), lambda _: None)
        app.pulls.latest["qwen"] = PullState(words="1 of 2 GB")
        await say(pilot, "Another one?")
        assert race_offer(app) == OFFER
        assert hint(app) == "↓ qwen: 1 of 2 GB"
        del app.pulls.running["qwen"]


@pytest.mark.usefixtures("short_races", "own_offers")
async def test_a_race_replaces_the_estimate_of_the_pair(tmp_path: Path) -> None:
    """F8 sums up what was measured of the answer, as all other screens show it."""
    app = chat(Script([LONG * (MIN_MEASURED_TOKENS // 10)]), tmp_path / "history.db")
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "A question?")
        estimated = app.actions.pairs.measured()["scripted"].speedup
        await race(pilot)
        await type_keys(pilot, "escape")
        answer = app.conversations.last
        assert answer is not None
        measured = app.actions.pairs.measured()["scripted"].speedup
        assert measured == pytest.approx(answer.statistics["speedup"])
        assert measured != estimated
