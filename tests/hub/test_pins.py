"""What a name stood for at its first download, kept for the next one."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from catalogue_files import CONTENT, FILE, SHA256
from hub_server import HubServer
from specchat.cli import main
from specchat.hub.pins import drop_pin, keep_pin, kept_references, pinned, pins_path
from specchat.hub.references import Reference

COMMIT = "7" * 40
FOUND = replace(FILE, revision=COMMIT, size=9, sha256=SHA256)


@pytest.mark.usefixtures("hub")
def test_what_was_kept_is_known_until_it_is_dropped() -> None:
    """Its commit, its size and its sha256; a pin of the catalogue's own comes first."""
    keep_pin(FILE, FOUND)

    assert pinned(FILE) == FOUND
    assert pinned(replace(FILE, sha256="0" * 64)) == replace(FOUND, sha256="0" * 64)
    assert kept_references() == [FILE]
    drop_pin(FILE)
    assert pinned(FILE) == FILE


@pytest.mark.usefixtures("hub")
def test_downloads_at_once_lose_no_pin() -> None:
    """Each adds its own to what others have kept meanwhile."""
    files = [Reference("a/b", f"{number}.gguf") for number in range(20)]
    threads = [
        threading.Thread(target=keep_pin, args=(file, replace(file, revision=COMMIT, size=1)))
        for file in files
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(kept_references()) == set(files)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"org/model/model-Q4.gguf@main": 3}', '{"x": {}, "a/../b@main": {}}'],
)
def test_a_damaged_file_of_pins_is_kept_aside(hub: HubServer, content: str) -> None:
    """Nothing is pinned then; the next pin goes into a new file, the old one is not overwritten."""
    pins_path().parent.mkdir(parents=True)
    pins_path().write_text(content)

    assert pinned(FILE) == FILE
    assert kept_references() == []
    keep_pin(FILE, FOUND)
    assert pinned(FILE) == FOUND
    assert pins_path().with_name("pins.json.damaged-1").read_text() == content


def test_pull_reports_a_damaged_file_of_pins(
    hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr names it, and the new name it is kept under."""
    pins_path().parent.mkdir(parents=True)
    pins_path().write_text("{")
    hub.put(FILE.repository, FILE.file, CONTENT)

    assert main(["pull", str(FILE)]) == 0
    reported = capsys.readouterr().err
    assert f"{pins_path()} is damaged: kept as pins.json.damaged-1" in reported
    assert pins_path().with_name("pins.json.damaged-1").read_text() == "{"


@pytest.mark.usefixtures("hub")
def test_a_pin_that_names_another_place_is_none() -> None:
    """What stands in a file of the user's is checked as what a hub says."""
    keep_pin(FILE, FOUND)
    pins_path().write_text(pins_path().read_text().replace(COMMIT, "../../x"))

    assert pinned(FILE) == FILE
