"""The model screen: choosing pairs, and pulling them from a hub on this machine meanwhile."""

from __future__ import annotations

import argparse
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import OptionList

from catalogue_files import CONTENT, DRAFT, DRAFT_CONTENT, FILE, blobs
from conftest import WriteModel
from hub_server import Fault, HubServer
from scripted_chat import FACTS, Script, chat
from specchat.catalogue.catalogue_file import own_catalogue_path
from specchat.catalogue.local_models import ModelFolder
from specchat.cli.arguments import parse
from specchat.cli.chat import left_out
from specchat.cli.model_arguments import is_first_run
from specchat.cli.offers import find_offers, foresee_offer
from specchat.cli.option_arguments import complete
from specchat.engine.api import EngineFacts, Loading
from specchat.errors import ModelWontLoad
from specchat.settings.sources import read_settings, settings_path
from specchat.tui.app import ChatApp
from specchat.tui.screens.dialogs import ConfirmScreen
from specchat.tui.screens.model_screen import ModelScreen
from specchat.tui.setup import Offer, PairChoice, Setup
from tui.driving import hint, say, screen_text, status, until

pytestmark = pytest.mark.anyio
SIZE = (110, 40)
OWN = """
[pair.one]
description = "The first"
tier = "small"
licence = "Apache-2.0"
target = { repository = "org/model", file = "model-Q4.gguf" }
draft = { repository = "org/small", file = "quantised/small-Q8.gguf" }

[pair.two]
description = "The second"
kind = "dspark"
target = { repository = "org/model", file = "model-Q4.gguf" }
draft = { repository = "org/small", file = "quantised/small-Q8.gguf" }
"""


@pytest.fixture(autouse=True)
def _own_pairs(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue with two pairs of its own, and a hub that has their files."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    own_catalogue_path().parent.mkdir(parents=True)
    own_catalogue_path().write_text(OWN)
    hub.put(FILE.repository, FILE.file, CONTENT)
    hub.put(DRAFT.repository, DRAFT.file, DRAFT_CONTENT)


def words(*given: str) -> argparse.Namespace:
    """Return what the command line says."""
    arguments = parse(["chat", *given])
    complete(arguments)
    return arguments


def chat_with_catalogue(script: Script, **setup: Any) -> ChatApp:
    """Return the chat with the pairs of the catalogue."""
    return chat(script, offers=lambda: find_offers(words()), foresee=foresee_offer, **setup)


def marked(app: ChatApp) -> str:
    """Return the pair that is marked."""
    option = app.screen.query_one(OptionList).highlighted_option
    return str(option.id) if option else ""


async def open_models(pilot: Any) -> ModelScreen:
    """Open the model screen and wait for its pairs."""
    await pilot.press("f8")
    await until(pilot, lambda: pilot.app.screen.query_one(OptionList).option_count > 0)
    assert isinstance(pilot.app.screen, ModelScreen)
    return pilot.app.screen


async def mark(pilot: Any, name: str) -> None:
    """Mark a pair."""
    options = pilot.app.screen.query_one(OptionList)
    options.highlighted = options.get_option_index(name)
    await pilot.pause()


async def pull_one(pilot: Any) -> None:
    """Begin to pull the first pair, and close the screen."""
    await open_models(pilot)
    await mark(pilot, "one")
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen))
    before = pilot.app.pulls.latest.get("one")
    await pilot.press("enter")
    await until(pilot, lambda: pilot.app.pulls.latest.get("one") is not before)
    await pilot.press("escape")
    await until(pilot, lambda: not isinstance(pilot.app.screen, ModelScreen))


@pytest.mark.slow
async def test_pairs_are_listed_with_what_there_is_to_know() -> None:
    """Name, draft, quantization, size, memory, licence, what for."""
    app = chat_with_catalogue(Script())
    async with app.run_test(size=(150, 120)) as pilot:
        await open_models(pilot)
        await until(pilot, lambda: "2.22 GB   ≈ 4.3 of" in screen_text(app))
        shown = screen_text(app)
        await mark(pilot, "one")
        await until(pilot, lambda: "The first" in screen_text(app))
        details = screen_text(app)
        await mark(pilot, "two")
        await until(pilot, lambda: "The second" in screen_text(app))
        assert "Drafts come from a prediction head" in screen_text(app)

    lines = {line.split()[1]: line.split() for line in shown.splitlines() if len(line.split()) > 2}
    assert lines["one"][2:4] == ["small", "Q4"]
    assert lines["qwen3-1.7b"][2:8] == ["Qwen3-0.6B", "Q8_0", "2.22", "GB", "≈", "4.3"]
    assert "one · Q4 · " in details
    assert " · Apache-2.0" in details
    assert "Drafts come from small" in details
    assert "✔ demo" in shown
    assert "● scripted" in shown
    assert "in use" in shown
    headings = ("Recent", "Downloaded", "To download")
    order = [shown.index(heading) for heading in headings]
    assert order == sorted(order)
    assert shown.index(" two ") > order[-1]


async def test_another_pair_is_loaded_in_place_of_the_first() -> None:
    """Enter on one that is here ends the old engine and begins with the other."""
    script = Script()
    app = chat_with_catalogue(script)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: script.num_loads == 1)
        first = app.pair_controller.session
        await open_models(pilot)
        await mark(pilot, "demo")
        await pilot.press("enter")
        await until(pilot, lambda: script.num_loads == 2)
        assert first is not None
        await until(pilot, lambda: script.num_closed == 1)
        assert not isinstance(app.screen, ModelScreen)
        assert app.pair_controller.pair.name == "demo"


@pytest.mark.slow
@pytest.mark.parametrize("error", [None, ModelWontLoad("it is damaged")])
async def test_a_pair_is_saved_once_it_is_loaded(error: Exception | None) -> None:
    """A pair that fails to load is not saved."""
    script = Script(load_error=error)
    kept: list[EngineFacts] = []

    def keep(facts: EngineFacts) -> str:
        kept.append(facts)
        return "saved"

    pair = PairChoice("mine", "", Loading(Path("t.gguf")), keep=keep)
    app = ChatApp(Setup(pair, offers=list, history=None), load=script.load)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: bool(kept) or "it is damaged" in status(app))
    assert kept == ([] if error else [FACTS])


@pytest.mark.slow
async def test_models_of_other_programs_are_used_with_the_best_draft_here(
    tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are listed among the installed pairs, with the program that brought them."""
    folder = tmp_path / "lmstudio" / "maker" / "models"
    folder.mkdir(parents=True)
    (folder / "answers.gguf").symlink_to(tiny("llama"))
    monkeypatch.setattr(
        "specchat.catalogue.local_models.find_model_folders",
        lambda: [ModelFolder("LM Studio", folder.parent.parent)],
    )
    script = Script()
    app = chat_with_catalogue(script)
    async with app.run_test(size=(110, 120)) as pilot:
        await open_models(pilot)
        (name,) = [
            each.name for each in app.actions.pairs.offers() if each.description == "from LM Studio"
        ]
        shown = screen_text(app)
        assert shown.index("Downloaded") < shown.index("answers") < shown.index("To download")
        await mark(pilot, name)
        await until(pilot, lambda: "From LM Studio" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: script.num_loads == 2)
        assert app.pair_controller.pair.loading.target.name == "answers.gguf"


@pytest.mark.slow
async def test_a_pair_is_not_changed_in_the_middle_of_an_answer() -> None:
    """The list stays open, and the answer goes on."""
    script = Script(["one two three four"], hold=threading.Event())
    app = chat_with_catalogue(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: bool(script.asked))
        await open_models(pilot)
        await mark(pilot, "demo")
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, ModelScreen)
        assert script.num_loads == 1
        script.hold.set()  # type: ignore[union-attr]
        await until(pilot, lambda: app.answers.current is None)


async def test_a_question_asked_while_the_other_pair_is_chosen_ends_with_the_first() -> None:
    """The chat does not wait for its answer for ever; the next one is the other pair's."""
    is_asked = threading.Event()
    other = PairChoice("other", "another", Loading(Path("other.gguf")))

    def choose() -> PairChoice:
        assert is_asked.wait(60)
        return other

    script = Script(["one two three four"], hold=threading.Event())
    app = chat(script, offers=lambda: [Offer("other", "another", choose=choose)])
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "/models other", wait=False)
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: bool(script.asked))
        is_asked.set()
        await until(pilot, lambda: app.answers.current is None)
        assert app.conversations.branch[-1].finish == "cancelled"
        await say(pilot, "And now?")
        assert app.conversations.branch[-1].text == "one two three four"
        assert app.conversations.branch[-1].statistics["pair"] == "other"


def hold_downloads(hub: HubServer, seconds_per_piece: float) -> threading.Event:
    """Let both files of a pair come slowly, and whole only once the event is set."""
    gate = threading.Event()
    hub.faults = [Fault("storage", seconds_per_piece=seconds_per_piece, gate=gate, times=2)]
    return gate


@pytest.mark.slow
async def test_a_pair_is_pulled_while_the_user_chats(hub: HubServer) -> None:
    """How far it is stands above the chat; when it is here, one key leads to it."""
    gate = hold_downloads(hub, 0.01)
    script = Script()
    app = chat_with_catalogue(script)
    async with app.run_test(size=SIZE) as pilot:
        await pull_one(pilot)
        await until(pilot, lambda: "↓ one" in screen_text(app))
        await say(pilot, "Meanwhile")
        assert len(script.asked) == 1
        gate.set()
        await until(pilot, lambda: not app.pulls.running)
        assert hint(app).startswith("one is installed · Ctrl+Y")
        assert "↓" not in screen_text(app)
        await open_models(pilot)
        assert marked(app) == "one"
        await pilot.press("enter")
        await until(pilot, lambda: script.num_loads == 2)
        assert app.pair_controller.pair.name == "one"
        assert hint(app) == ""
    assert len(blobs()) == 2


@pytest.mark.slow
async def test_the_screen_shows_bytes_rate_and_time_left(hub: HubServer) -> None:
    """While it is open, in the pair's own line."""
    gate = hold_downloads(hub, 0.01)
    app = chat_with_catalogue(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pull_one(pilot)
        await open_models(pilot)
        await mark(pilot, "one")
        await until(pilot, lambda: " of 250 kB" in screen_text(app) and "/s" in screen_text(app))
        assert " left" in screen_text(app)
        await pilot.press("enter")
        assert not isinstance(app.screen, ConfirmScreen)  # it is on its way already
        gate.set()
        await until(pilot, lambda: not app.pulls.running)
        await until(pilot, lambda: "✔ one" in screen_text(app))


@pytest.mark.slow
async def test_a_pull_can_be_given_up_and_taken_up_again(hub: HubServer) -> None:
    """The downloaded part is kept: no byte is sent twice."""
    hold_downloads(hub, 0.05)
    app = chat_with_catalogue(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pull_one(pilot)
        await until(pilot, lambda: hub.num_sent > 0 and " 0 %" not in app.pulls.summary())
        await open_models(pilot)
        await mark(pilot, "one")
        await until(pilot, lambda: "Cancel download" in screen_text(app))
        await pilot.press("delete")
        await until(pilot, lambda: not app.pulls.running)
        assert hint(app) == ""
        await until(pilot, lambda: "% downloaded" in screen_text(app))
        hub.faults, hub.seen = [], []
        await pilot.press("escape")
        await pull_one(pilot)
        await until(pilot, lambda: not app.pulls.running)
        assert len(blobs()) == 2
    assert any(seen.range and seen.range != "bytes=0-" for seen in hub.seen)


@pytest.mark.slow
async def test_the_progress_of_a_pull_moves_no_line() -> None:
    """Progress fits the line even where other lines reach the edge of the list."""
    offers = [Offer(f"pair-{n}", "x" * (n + 60), "1 GB") for n in range(50)]
    offers.append(Offer("last", "the last one", "1 GB"))
    app = chat(Script(), offers=lambda: offers)
    async with app.run_test(size=SIZE) as pilot:
        screen = await open_models(pilot)
        await mark(pilot, "last")
        await until(pilot, lambda: "  last  " in screen_text(app))
        before = next(line for line in screen_text(app).splitlines() if "  last  " in line)
        screen.show_pull("last")
        await pilot.pause(0.1)
        assert before in screen_text(app).splitlines()


@pytest.mark.slow
async def test_pairs_that_are_found_after_the_screen_was_closed_are_no_hindrance() -> None:
    """A pull that reports before the screen is drawn does no harm either."""
    app = chat_with_catalogue(Script())
    async with app.run_test(size=SIZE) as pilot:
        screen = ModelScreen(app.actions.pairs, app.pulls, "none")
        opening = app.push_screen(screen)
        screen.show_pull("one")
        await opening
        await until(pilot, lambda: screen.query_one(OptionList).option_count > 0)
        await screen.dismiss()
        await screen.find_again().wait()


@pytest.mark.slow
async def test_nothing_is_pulled_without_confirmation(hub: HubServer) -> None:
    """Escape closes the dialog; the hub is only asked whether the target has a projector."""
    app = chat_with_catalogue(Script())
    async with app.run_test(size=SIZE) as pilot:
        await open_models(pilot)
        await mark(pilot, "one")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        assert "Apache-2.0" in screen_text(app)
        assert str(FILE) in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert app.pulls.running == {}
    assert {seen.path for seen in hub.seen} <= {"/api/models/org/model/tree/main?recursive=true"}


def _refuse(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.faults = [Fault("HEAD", status=403, times=9)]


def _be_gone(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("happens", "reason"), [(_refuse, "is gated"), (_be_gone, "cannot be reached")]
)
async def test_a_pull_that_fails_says_why_in_one_line(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, happens: Any, reason: str
) -> None:
    """Over the chat while the screen is closed, and with the pair when it is opened again."""
    monkeypatch.setattr("specchat.hub.download.download.__kwdefaults__", {"waits": (0.0,)})
    happens(hub, monkeypatch)
    app = chat_with_catalogue(Script())
    async with app.run_test(size=(200, 60), notifications=True) as pilot:
        (offer,) = [each for each in app.actions.pairs.offers() if each.name == "one"]
        app.pulls.start(offer)
        await until(pilot, lambda: "one" in app.pulls.latest and not app.pulls.running)
        await until(pilot, lambda: bool(app._notifications))
        (note,) = [each for each in app._notifications if "one" in each.title]
        assert reason in note.message
        assert "\n" not in note.message
        await open_models(pilot)
        await mark(pilot, "one")
        await until(pilot, lambda: reason in screen_text(app))


@pytest.mark.slow
async def test_leaving_ends_what_is_on_its_way(hub: HubServer) -> None:
    """No thread goes on after the chat; one that a busy machine delays ends soon after."""
    earlier = set(threading.enumerate())  # other tests may have left some of the same names
    hold_downloads(hub, 0.05)
    app = chat_with_catalogue(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pull_one(pilot)
        await until(pilot, lambda: hub.num_sent > 0)
    names = {"pull one", str(FILE), str(DRAFT), "engine session"}
    ours = [each for each in set(threading.enumerate()) - earlier if each.name in names]
    for thread in ours:
        thread.join(10.0)

    assert [each.name for each in ours if each.is_alive()] == []


@pytest.mark.slow
async def test_what_threads_tell_while_the_chat_ends_is_dropped(hub: HubServer) -> None:
    """The widgets go before the last messages are heard."""
    hold_downloads(hub, 0.05)
    app = chat_with_catalogue(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pull_one(pilot)
        before = app.pulls.latest["one"]
        await app.screen_stack[0].remove_children()
        await until(pilot, lambda: app.pulls.latest["one"] is not before)


@pytest.mark.slow
async def test_a_mistake_in_the_users_own_catalogue_hides_no_other_pair() -> None:
    """The chat begins with the line that is wrong, and offers all pairs but that one."""
    assert left_out() == ""
    with own_catalogue_path().open("a") as own:
        own.write("\n[pair.three]\n")
    line = 1 + own_catalogue_path().read_text().split("\n").index("[pair.three]")
    app = chat_with_catalogue(Script(), notice=left_out())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await until(pilot, lambda: bool(app._notifications))
        [note] = app._notifications
        assert note.message.startswith("Some pairs are not listed: ")
        assert f"models.toml line {line}: pair three" in note.message
        await open_models(pilot)
        offered = {offer.name for offer in app.setup.offers()}
        assert {"one", "two"} <= offered
        assert "three" not in offered
        await mark(pilot, "one")


@pytest.mark.slow
async def test_the_first_run_offers_pairs_until_the_hint_is_dismissed(hub: HubServer) -> None:
    """The hint is one line with its key, and asks nothing."""
    assert is_first_run(words())
    app = chat_with_catalogue(Script(), is_first_run=True)
    async with app.run_test(size=(60, 20)) as pilot:
        await until(pilot, lambda: hint(app) != "")
        assert "F8" in screen_text(app)
        await pilot.press("ctrl+o")
        await pilot.pause()
        assert hint(app) == ""
    assert read_settings()["screen.offer_models"] is False
    assert hub.seen == []


@pytest.mark.slow
async def test_the_offer_can_be_clicked() -> None:
    """A click opens the models screen."""
    app = chat_with_catalogue(Script(), is_first_run=True)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: hint(app) != "")
        await pilot.click("#hint")
        await until(pilot, lambda: isinstance(app.screen, ModelScreen))


def test_it_is_no_first_run_once_a_pair_is_here() -> None:
    """A start with a named pair is not a first run either."""
    from specchat.hub.download import download

    assert not is_first_run(words("--target", "some.gguf"))
    download([FILE, DRAFT])
    assert not is_first_run(words())


@pytest.mark.slow
async def test_a_pair_can_be_kept_for_the_next_start() -> None:
    """The settings name it from then on."""
    app = chat_with_catalogue(Script())
    async with app.run_test(size=SIZE) as pilot:
        await open_models(pilot)
        await mark(pilot, "demo")
        await until(pilot, lambda: "Make default" in screen_text(app))
        await pilot.press("ctrl+d")
        await until(pilot, lambda: settings_path().exists())

    assert words().pair == "demo"


@pytest.mark.slow
async def test_pairs_can_be_chosen_with_the_mouse() -> None:
    """A click on a pair that is not here asks, and a click answers."""
    app = chat_with_catalogue(Script())
    async with app.run_test(size=(110, 90)) as pilot:
        screen = await open_models(pilot)
        await until(pilot, lambda: "  one  " in screen_text(app))
        rows: Sequence[str] = screen_text(app).splitlines()
        (y,) = [number for number, row in enumerate(rows) if "  one  " in row]
        await pilot.click(offset=(20, y))
        await until(pilot, lambda: app.screen is not screen)
        assert "Download one?" in screen_text(app)
        rows = screen_text(app).splitlines()
        (y,) = [number for number, row in enumerate(rows) if "Not now" in row]
        await pilot.click(offset=(20, y))
        await until(pilot, lambda: app.screen is screen)
        assert app.pulls.running == {}
        assert status(app) == ""
