"""The first minute: from the demo pair to a real one by one key, while the chat is in use."""

from __future__ import annotations

import argparse
import hashlib
import threading
from pathlib import Path
from typing import Any

import pytest

from catalogue_files import CONTENT, DRAFT, DRAFT_CONTENT, FILE, blobs
from hub_server import Fault, HubServer
from scripted_chat import Script, chat
from specchat.catalogue.catalogue_file import TRIAL, own_catalogue_path
from specchat.cli.arguments import parse
from specchat.cli.model_arguments import is_first_run
from specchat.cli.offers import find_offers
from specchat.cli.option_arguments import complete
from specchat.hub.cache import cache_root
from specchat.planning.device import Machine
from specchat.settings.editor import write_setting
from specchat.settings.sources import settings_path
from specchat.tui.app import ChatApp
from specchat.tui.commands import key_of
from specchat.tui.controllers.hint import ModelHint
from specchat.tui.controllers.pulls import Pulls, PullState
from specchat.tui.setup import Offer, PairChoice
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.transcript import Transcript
from specchat.tui.widgets.welcome import QUESTIONS
from tui.driving import agree, hint, say, screen_text, until

pytestmark = pytest.mark.anyio
SIZE = (120, 40)
SHA256 = hashlib.sha256(DRAFT_CONTENT).hexdigest()
OWN = f"""
[pair.large]
description = "Fits this machine best"
recommended = true
target = {{ repository = "org/model", file = "model-Q4.gguf", bytes = {len(CONTENT)} }}

[pair."{TRIAL}".target]
repository = "org/small"
file = "quantised/small-Q8.gguf"
revision = "{"d" * 40}"
bytes = {len(DRAFT_CONTENT)}
sha256 = "{SHA256}"
"""
"""A machine that fits one pair, and a small stand-in for the one to try things out with."""


@pytest.fixture(autouse=True)
def _small_machine(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that fits only these pairs, and a hub that has their files."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    own_catalogue_path().parent.mkdir(parents=True)
    trial = f'[pair."{TRIAL}"]\ndescription = "Small"\n'
    own_catalogue_path().write_text(trial + OWN)
    monkeypatch.setattr("specchat.cli.offers.find_machine", lambda: Machine(free=1_000_000))
    monkeypatch.setattr("specchat.planning.forecast.total_bytes", lambda: 0)
    hub.put(FILE.repository, FILE.file, CONTENT)
    hub.put(DRAFT.repository, DRAFT.file, DRAFT_CONTENT, "d" * 40)


def words(*given: str) -> argparse.Namespace:
    """Return what the command line says."""
    arguments = parse(["chat", *given])
    complete(arguments)
    return arguments


def first_chat(script: Script, **setup: Any) -> ChatApp:
    """Return the chat as its first start makes it."""
    arguments = words()
    assert is_first_run(arguments)
    return chat(script, offers=lambda: find_offers(arguments), is_first_run=True, **setup)


async def offered(pilot: Any) -> None:
    """Wait until the pairs to begin with are shown."""
    await until(pilot, lambda: "Ctrl+Y" in hint(pilot.app))


async def test_two_pairs_are_offered_with_their_sizes_and_keys(hub: HubServer) -> None:
    """The recommended one first; nothing is asked of the hub before a key is pressed."""
    app = first_chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await offered(pilot)
        lines = hint(app).splitlines()
        assert lines[0].startswith("The demo pair is tiny · F8")
        assert lines[1:] == [
            "Ctrl+Y downloads large, recommended here · 200 kB",
            f"Ctrl+S downloads {TRIAL}, to try things out · 50.0 kB",
        ]
        assert app.focused is app.query_one(Composer)
    assert hub.seen == []


@pytest.mark.slow
async def test_a_small_screen_keeps_its_room_for_the_chat() -> None:
    """The hint takes one row there, unlike on the start screen, and the figures two."""
    script = Script(["words and more words " * 30])
    app = first_chat(script)
    async with app.run_test(size=(60, 20)) as pilot:
        await offered(pilot)
        await until(pilot, lambda: app.query_one("#hint").size.height == 3)
        shown = ("F8: better models", "Ctrl+Y", "Ctrl+S", *QUESTIONS)
        await until(pilot, lambda: all(words in screen_text(app) for words in shown))
        await say(pilot, "Please")
        await until(pilot, lambda: "2.2x faster" in screen_text(app))
        await pilot.pause(0.2)
        assert app.query_one("#hint").size.height == 1
        assert "The demo pair is t" in screen_text(app)
        assert app.query_one(Transcript).size.height >= 12


@pytest.mark.slow
async def test_a_key_downloads_while_the_user_chats_and_then_switches(hub: HubServer) -> None:
    """Time left is shown, questions are answered; the new pair continues the conversation."""
    gate = threading.Event()
    hub.faults = [Fault("storage", seconds_per_piece=0.01, gate=gate)]
    script = Script(["First answer", "Second answer"])
    app = first_chat(script)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await offered(pilot)
        await say(pilot, "Before")
        await agree(pilot, "ctrl+s")
        await until(pilot, lambda: f"↓ {TRIAL}: " in hint(app) and " left" in hint(app))
        assert "Ctrl+Y downloads large" in hint(app)
        assert "Ctrl+S" not in hint(app)
        await say(pilot, "Meanwhile")
        gate.set()
        await until(pilot, lambda: not app.pulls.running)
        assert hint(app) == (
            f"{TRIAL} is installed · Ctrl+Y to switch, keeping the conversation · Ctrl+O: hide"
        )
        await pilot.press("ctrl+y")
        await until(pilot, lambda: script.num_loads == 2)
        assert app.pair_controller.pair.name == TRIAL
        assert [note.message for note in app._notifications] == [f"Using {TRIAL} now."]
        assert hint(app) == ""
        await say(pilot, "After")
        questions = [each.text for each in app.conversations.branch if each.role == "user"]
        assert questions == ["Before", "Meanwhile", "After"]
        assert "Before" in screen_text(app)
    assert len(blobs()) == 1


@pytest.mark.slow
async def test_a_key_asks_before_it_downloads(hub: HubServer) -> None:
    """With the size and the folder; nothing is fetched unless the user agrees."""
    del hub
    app = first_chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await offered(pilot)
        await pilot.press("ctrl+y")
        await until(pilot, lambda: "Download large?" in screen_text(app))
        shown = screen_text(app)
        assert "size " in shown
        assert str(cache_root())[:20] in shown
        await pilot.press("escape")
        await until(pilot, lambda: "Download large?" not in screen_text(app))
        assert app.pulls.running == {}


@pytest.mark.slow
async def test_both_are_downloaded_at_once(hub: HubServer) -> None:
    """Each has its line; the one that arrives last is offered."""
    gate = threading.Event()
    hub.faults = [Fault("storage", seconds_per_piece=0.01, gate=gate, times=2)]
    app = first_chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await offered(pilot)
        await agree(pilot, "ctrl+y")
        await agree(pilot, "ctrl+s")
        await until(pilot, lambda: hint(app).count("↓") == 2)
        assert "downloads" not in hint(app)
        gate.set()
        await until(pilot, lambda: not app.pulls.running)
        assert "is installed · Ctrl+Y" in hint(app)
    assert len(blobs()) == 2


@pytest.mark.slow
async def test_a_download_that_fails_is_offered_again(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notice has the reason in one line."""
    monkeypatch.setattr("specchat.hub.download.download.__kwdefaults__", {"waits": ()})
    hub.faults = [Fault("HEAD", status=403)]
    app = first_chat(Script())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await offered(pilot)
        await agree(pilot, "ctrl+y")
        await until(pilot, lambda: bool(app._notifications))
        (notice,) = app._notifications
        assert "is gated" in notice.message
        assert "Ctrl+Y downloads large" in hint(app)
        await agree(pilot, "ctrl+y")
        await until(pilot, lambda: app.pulls.arrived == "large")


@pytest.mark.slow
async def test_no_switch_in_the_middle_of_an_answer(hub: HubServer) -> None:
    """The key says why, and works once the answer is there."""
    script = Script(["one two three"], hold=threading.Event())
    app = first_chat(script)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await offered(pilot)
        await agree(pilot, "ctrl+s")
        await until(pilot, lambda: app.pulls.arrived == TRIAL)
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: bool(script.asked))
        await pilot.press("ctrl+y")
        await until(pilot, lambda: bool(app._notifications))
        assert [note.message for note in app._notifications] == ["Still answering. Esc stops it."]
        assert script.num_loads == 1
        script.hold.set()  # type: ignore[union-attr]
        await until(pilot, lambda: app.answers.current is None)
        await pilot.press("ctrl+y")
        await until(pilot, lambda: script.num_loads == 2)


@pytest.mark.slow
async def test_hiding_the_line_takes_the_keys_away(hub: HubServer) -> None:
    """What is downloading goes on, and is offered when it has arrived."""
    gate = threading.Event()
    hub.faults = [Fault("storage", seconds_per_piece=0.01, gate=gate)]
    app = first_chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await offered(pilot)
        await agree(pilot, "ctrl+s")
        await until(pilot, lambda: "↓" in hint(app))
        await pilot.press("ctrl+o")
        await until(pilot, lambda: hint(app) == "")
        await pilot.press("ctrl+y")
        assert set(app.pulls.latest) == {TRIAL}
        assert not settings_path().exists()  # the next start may offer the other one
        gate.set()
        await until(pilot, lambda: "is installed" in hint(app))
        await pilot.press("ctrl+o")
        await until(pilot, lambda: hint(app) == "")


@pytest.mark.slow
async def test_without_an_offer_the_keys_are_the_composers() -> None:
    """Ctrl+Y restores what Ctrl+Z took back, as in other editors."""
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        composer = app.query_one(Composer)
        await pilot.press("a", "b")
        composer.undo()
        assert composer.text == ""
        await pilot.press("ctrl+y")
        await until(pilot, lambda: composer.text == "ab")
        await pilot.press("ctrl+s")
        assert app.pulls.running == {}


@pytest.mark.slow
async def test_a_slow_or_failing_search_stops_no_chat() -> None:
    """The line above the composer stays as it was."""
    found = threading.Event()

    def search() -> list[Offer]:
        found.wait(20)
        return []

    app = chat(Script(), offers=search, is_first_run=True)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Hello")
        assert hint(app).startswith("The demo pair is tiny")
        found.set()
        await until(pilot, lambda: not app.workers._workers)
        assert hint(app).startswith("The demo pair is tiny")
        assert "Ctrl+Y" not in hint(app)


def test_settings_turn_the_offers_off() -> None:
    """Ctrl+O on the first run writes the same setting."""
    write_setting(settings_path(), "screen.offer_models", value=False)
    assert not is_first_run(words())


def test_what_is_installed_or_recommended_twice_is_offered_once() -> None:
    """On a small machine both are the same pair."""
    pulls = Pulls(_Silent(), lambda *call: None)  # type: ignore[arg-type]
    line = ModelHint(pulls, key_of, is_first_run=True)
    line.begin_with([Offer("small", "", "1 MB", is_recommended=True, is_trial=True)])
    assert line.words().count("small") == 1
    assert line.offered(1) is None
    installed = Offer("small", "", "1 MB", is_trial=True, choose=_never)
    line.begin_with([installed])
    assert line.offered(0) is None


def test_the_pair_that_arrived_is_offered_until_another_is_in_use() -> None:
    """Afterwards downloads alone are shown."""
    pulls = Pulls(_Silent(), lambda *call: None)  # type: ignore[arg-type]
    line = ModelHint(pulls, key_of, is_first_run=True)
    for name in ("one", "two"):
        pulls.start(Offer(name, "", share=0.5))
    pulls.follow("one", PullState("installed"))
    assert line.words().startswith("one is installed · Ctrl+Y")
    line.end_first_run()
    assert line.words() == "↓ two: asking the hub"
    pulls.end()


def _never() -> PairChoice:
    """Return no pair: nothing is chosen in this test."""
    raise AssertionError


class _Silent:
    """A view that shows nothing."""

    def show_pull(self, name: str) -> None:
        """Nothing to show."""
