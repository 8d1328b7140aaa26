"""Names that are out to leave the cache: from a hub's answers, and from files that lie about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catalogue_files import CONTENT, FILE, get
from hub_server import Fault, HubServer
from specchat.catalogue.catalogue_file import load_entries
from specchat.cli import main
from specchat.errors import CatalogueError, DownloadFailed
from specchat.hub.cache import cache_root, find_present, repository_folder
from specchat.hub.client import UNCHECKED
from specchat.hub.pins import kept_references, pinned, pins_path
from specchat.hub.references import Reference
from tables import table

OUTSIDE = [
    "../../../outside",
    "..",
    "/outside",
    "a/../../../../outside",
    "C:\\outside",
    "..\\..\\outside",
    "~/outside",
    "x\x7f",
    "",
]


@pytest.fixture(autouse=True)
def _all_stays_inside(hub: HubServer, tmp_path: Path) -> None:
    """A hub with a file, and nothing else in the test's folder but what a pull may make."""
    hub.put(FILE.repository, FILE.file, CONTENT)


def made_in(folder: Path) -> set[str]:
    """Return what lies in a folder beside the cache and the data."""
    return {path.name for path in folder.iterdir()} - {"hf", "data"}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_commit_that_is_a_path_is_refused(name: str, hub: HubServer, tmp_path: Path) -> None:
    """It becomes the name of a folder, so it must be what it says."""
    hub.has_api = False  # which would give a commit in place of an empty one
    hub.faults.append(Fault("HEAD", headers={"X-Repo-Commit": name, "ETag": name}, times=9))
    with pytest.raises(DownloadFailed):
        get()

    assert made_in(tmp_path) == set()
    assert not [path for path in cache_root().rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_checksum_that_is_a_path_names_nothing(name: str, hub: HubServer, tmp_path: Path) -> None:
    """Mirrors have tags of their own, which are not used as names."""
    hub.has_api = False
    hub.faults.append(Fault("HEAD", headers={"X-Linked-ETag": name, "ETag": name}, times=9))
    get()

    assert made_in(tmp_path) == set()
    blobs = [path.name for path in cache_root().glob("*/blobs/*")]
    assert [blob.startswith(UNCHECKED) for blob in blobs] == [True]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_branch_that_stands_for_a_path_stands_for_nothing(name: str, tmp_path: Path) -> None:
    """The cache may have been written by another program."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / FILE.file).write_bytes(CONTENT)
    ref = repository_folder(FILE.repository) / "refs" / "main"
    ref.parent.mkdir(parents=True)
    ref.write_text(name)

    assert find_present(FILE) is None


@table("name", OUTSIDE)
@table("key", ["revision", "sha256"])
def test_a_pin_that_is_a_path_pins_nothing(key: str, name: str) -> None:
    """The file of pins may come from elsewhere."""
    kept = {"revision": "0" * 40, "bytes": 1, "sha256": "0" * 64, key: name}
    pins_path().parent.mkdir(parents=True, exist_ok=True)
    pins_path().write_text(json.dumps({f"{FILE}@main": kept, f"{name}/b/c.gguf@{name}": kept}))

    assert pinned(FILE) == FILE
    assert kept_references() == [FILE]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("key", ["repository", "file", "revision", "sha256"])
def test_a_catalogue_cannot_name_a_path_as_a_file_of_the_hub(
    key: str, name: str, tmp_path: Path
) -> None:
    """A pair from someone else is checked like any other."""
    message = {"repository": "a/b", "file": "c.gguf", key: name}
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in message.items())
    (tmp_path / "models.toml").write_text(f"[file.x]\n{lines}\n")
    with pytest.raises(CatalogueError):
        load_entries(tmp_path / "models.toml")


def test_a_split_file_stays_in_its_folder() -> None:
    """Its parts have its name, whatever number they say."""
    parts = Reference("a/b", "x/m-00001-of-99999.gguf").parts

    assert len(parts) == 999
    assert {part.file.rpartition("/")[0] for part in parts} == {"x"}


def test_names_a_hub_proposes_are_shown_harmlessly(
    hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A list of files in an error is text, and no word to a terminal."""
    hub.put(FILE.repository, "model-\x1b]0;owned\x07.gguf", CONTENT)
    assert main(["pull", f"{FILE.repository}/model.gguf"]) == 1
    message = capsys.readouterr().err

    assert message.count("\n") == 1
    assert "\x1b" not in message
    assert "\x07" not in message
