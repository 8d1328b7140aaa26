"""The question before a download offers what makes a model read images, as `pull` does."""

from __future__ import annotations

import argparse
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import OptionList

from hub_server import HubServer
from scripted_chat import Script, chat
from scripts.support.tiny_gguf import write_model, write_projector
from specchat.catalogue.catalogue_file import own_catalogue_path
from specchat.catalogue.projectors import projector_for
from specchat.cli.arguments import parse
from specchat.cli.offers import find_offers, foresee_offer, open_file
from specchat.cli.option_arguments import complete
from specchat.hub.cache import find_present
from specchat.hub.references import Reference
from specchat.planning.device import Machine
from specchat.tui.actions.pair_actions import _offer_projector
from specchat.tui.app import ChatApp
from specchat.tui.screens.dialogs import ConfirmScreen
from specchat.tui.screens.model_screen import ModelScreen
from tui.driving import hint, say, screen_text, until

pytestmark = pytest.mark.anyio
SIZE = (110, 40)
COMMIT = "c" * 40
REPO = "org/Sees-2B-GGUF"
TARGET, DRAFT = Reference(REPO, "Sees-2B-Q8_0.gguf"), Reference("org/Small-GGUF", "small.gguf")
OTHER = Reference(REPO, "Sees-2B-Q4_0.gguf")
PROJECTOR = Reference(REPO, "mmproj-F16.gguf")
OWN = f"""
[pair.sees]
description = "Reads images"
recommended = true
target = {{ repository = "{REPO}", file = "{TARGET.file}", bytes = {{}} }}
draft = {{ repository = "{DRAFT.repository}", file = "{DRAFT.file}", bytes = {{}} }}
"""


@pytest.fixture(autouse=True)
def _on_hub(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair of the catalogue on the hub, and a projector in the repository of its target."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("specchat.cli.offers.find_machine", lambda: Machine(free=10_000_000))
    monkeypatch.setattr("specchat.planning.forecast.total_bytes", lambda: 0)
    model = write_model(tmp_path / "a.gguf", "llama").read_bytes()
    own_catalogue_path().parent.mkdir(parents=True)
    own_catalogue_path().write_text(OWN.replace("{}", str(len(model))))
    for file in (TARGET, DRAFT, OTHER):
        hub.put(file.repository, file.file, model, COMMIT)
    content = write_projector(tmp_path / "p.gguf", "mlp").read_bytes()
    for name in ("mmproj-F32.gguf", PROJECTOR.file):
        hub.put(REPO, name, content, COMMIT)


def chat_with_catalogue(**setup: Any) -> ChatApp:
    """Return the chat with the pairs of the catalogue."""
    arguments: argparse.Namespace = parse(["chat"])
    complete(arguments)
    return chat(
        Script(),
        offers=lambda: find_offers(arguments),
        foresee=foresee_offer,
        open_file=partial(open_file, arguments),
        **setup,
    )


async def ask_to_pull(pilot: Any, name: str = "sees") -> OptionList:
    """Have the chat ask whether to download a pair, and return its answers."""
    await pilot.press("f8")
    await until(pilot, lambda: pilot.app.screen.query_one(OptionList).option_count > 0)
    pairs = pilot.app.screen.query_one(OptionList)
    pairs.highlighted = pairs.get_option_index(name)
    await pilot.pause()
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen))
    answers: OptionList = pilot.app.screen.query_one(OptionList)
    return answers


@pytest.mark.parametrize(
    ("keys", "num_files"), [(["enter"], 2), (["down", "enter"], 3), (["up", "enter"], 0)]
)
async def test_a_pair_is_pulled_with_its_projector_or_without(
    keys: list[str], num_files: int
) -> None:
    """One question, which names its size; pulled with it, the target reads images."""
    app = chat_with_catalogue()
    async with app.run_test(size=SIZE) as pilot:
        answers = await ask_to_pull(pilot)
        await until(pilot, lambda: answers.option_count == 3)
        assert "With mmproj-F16.gguf (" in screen_text(app)
        assert " kB), to read images" in screen_text(app)
        assert answers.highlighted == 0
        await pilot.press(*keys)
        await until(pilot, lambda: not isinstance(app.screen, ConfirmScreen))
        assert isinstance(app.screen, ModelScreen)
        await until(pilot, lambda: not app.pulls.running)
        assert app.pulls.arrived == ("sees" if num_files else "")
    files = [path for path in map(find_present, (TARGET, DRAFT, PROJECTOR)) if path]
    assert len(files) == num_files
    if num_files:
        assert projector_for(files[0]) == find_present(PROJECTOR)


async def test_a_chosen_answer_stays_chosen_when_the_hub_answers(hub: HubServer) -> None:
    """The hub may take a moment to list the repository; the question does not wait for it."""
    hub.listing = threading.Event()
    app = chat_with_catalogue()
    async with app.run_test(size=SIZE) as pilot:
        answers = await ask_to_pull(pilot)
        await pilot.press("down")
        assert answers.highlighted == 1
        hub.listing.set()
        await until(pilot, lambda: answers.option_count == 3)
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(app.screen, ConfirmScreen))
        assert app.pulls.latest == {}


async def test_the_first_run_asks_it_in_the_same_question() -> None:
    """The hint's download takes one key and one answer, and is used with the next key."""
    app = chat_with_catalogue(is_first_run=True)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "Ctrl+Y downloads sees" in hint(app))
        await pilot.press("ctrl+y")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await until(pilot, lambda: app.screen.query_one(OptionList).option_count == 3)
        await pilot.press("down", "enter")
        await until(pilot, lambda: "sees is installed" in hint(app))
        assert len(app.screen_stack) == 1
    assert find_present(PROJECTOR)


@pytest.mark.parametrize(("file", "num_answers"), [(OTHER, 3), (PROJECTOR, 2)], ids=str)
async def test_a_file_of_the_hub_is_asked_about_by_its_name(
    file: Reference, num_answers: int
) -> None:
    """A target is; a projector takes no other one."""
    app = chat_with_catalogue()
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, f"/models {file}", wait=False)
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        asking = _offer_projector.__name__
        await until(pilot, lambda: all(each.name != asking for each in app.workers))
        assert app.screen.query_one(OptionList).option_count == num_answers
