"""Files that the chat writes: in threads, as a slow disk must not freeze the screen."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from scripted_chat import Script, chat
from specchat.engine.api import EngineFacts
from specchat.settings.schema import find_setting
from specchat.settings.sources import read_settings
from specchat.system.private_files import write_private
from specchat.tui.controllers import race_offer
from specchat.tui.setup import Offer
from tui.driving import hint, say, until

pytestmark = pytest.mark.anyio
WRITING = os.O_WRONLY | os.O_RDWR
FILES = {"offers.json", "ls.sh", "config.toml", "kept.toml"}
LONG = "abcdefghijkl" * 10
is_noting = threading.Event()
opened: list[tuple[str, bool]] = []
"""The files that a running test opened for writing, and whether in the main thread."""


def _note(event: str, details: tuple[object, ...]) -> None:
    if event == "open" and is_noting.is_set():
        path, _, flags = details
        if isinstance(path, str) and isinstance(flags, int) and flags & WRITING:
            opened.append((path, threading.current_thread() is threading.main_thread()))


sys.addaudithook(_note)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, bool]]]:
    """Return what is opened for writing from now on; all files are in the test's folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").touch()
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setattr(race_offer, "offers_path", lambda: tmp_path / "offers.json")
    opened.clear()
    is_noting.set()
    yield opened
    is_noting.clear()


def names_of(written: list[tuple[str, bool]]) -> set[str]:
    """Return the names of files, without what is added to those that replace them later."""
    return {re.split(r"(?<=json|toml)\w", Path(path).name)[0] for path, _ in written}


def test_a_write_in_the_main_thread_is_noted(
    tmp_path: Path, written: list[tuple[str, bool]]
) -> None:
    """Otherwise the test below could not fail."""
    write_private(tmp_path / "some.json", b"{}")
    (tmp_path / "other.txt").write_text("text")
    assert [is_main for _, is_main in written] == [True, True]


@pytest.mark.usefixtures("short_races")
async def test_the_screen_waits_for_no_file(
    tmp_path: Path, written: list[tuple[str, bool]]
) -> None:
    """Settings, code, exports, a pair that is saved, and the note that a race was offered."""

    def keep(facts: EngineFacts) -> str:
        write_private(tmp_path / "kept.toml", facts.target.encode())
        return ""

    script = Script([f"{LONG}\n\n```sh\nls\n```\n"])
    app = chat(script, offers_race=True, is_first_run=True)
    app.pair_controller.pair = replace(app.pair_controller.pair, keep=keep)
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "A question?")
        await until(pilot, lambda: bool(app.query_one("#offer").display))
        await until(pilot, (tmp_path / "offers.json").exists)
        await say(pilot, "/save ls.sh")
        app.actions.conversations.export("html")
        await until(pilot, lambda: any(path.suffix == ".html" for path in tmp_path.iterdir()))
        await app.actions.settings.change_one(find_setting("screen.offer_race"), read_settings())
        assert not app.query_one("#offer").display
        app.actions.pairs.keep(Offer("demo", ""))
        await until(pilot, lambda: read_settings()["model.pair"] == "demo")
        await until(pilot, lambda: hint(app) != "")
        await pilot.press("ctrl+o")
        await until(pilot, lambda: not read_settings()["screen.offer_models"])
        await until(pilot, lambda: names_of(written) >= FILES)
    assert read_settings()["screen.offer_race"] is False
    assert [path for path, is_main in written if is_main] == []
