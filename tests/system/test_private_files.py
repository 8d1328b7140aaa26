"""Tests of private files: readable by the user alone, replaced whole or not at all."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from specchat.system import private_files
from specchat.system.private_files import (
    make_private,
    read_json,
    set_aside,
    updating,
    write_json,
    write_private,
)


@dataclass(frozen=True)
class Point:
    """A value with types to check."""

    x: int
    name: str = ""


def test_every_folder_that_is_made_is_private(tmp_path: Path) -> None:
    """Its new parents too; a folder that exists keeps its mode."""
    tmp_path.chmod(0o755)
    folder = tmp_path / "state" / "specchat" / "log"
    make_private(folder)
    make_private(folder)
    made = [folder, folder.parent, folder.parent.parent]
    assert [each.stat().st_mode & 0o777 for each in made] == [0o700] * 3
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_written_file_is_private_and_a_link_stays_one(tmp_path: Path) -> None:
    """The file's earlier mode does not matter."""
    place, link = tmp_path / "place", tmp_path / "link"
    place.write_bytes(b"old")
    place.chmod(0o644)
    link.symlink_to(place)
    write_private(link, b"new")

    assert link.is_symlink()
    assert place.read_bytes() == b"new"
    assert place.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    """On a full disk or an interrupt: the old content, and no temporary file."""
    path = tmp_path / "file.json"
    write_json(path, [1])

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Path if call == "replace" else os, call, fail)
    with pytest.raises(type(error)):
        write_json(path, [2])

    assert [each.name for each in tmp_path.iterdir()] == ["file.json"]
    assert read_json(path, list[int], None) == [1]


def test_what_was_written_is_read_again_with_its_type(tmp_path: Path) -> None:
    """Paths that are not UTF-8 included; a file that does not exist is None."""
    path = tmp_path / "points.json"
    points = {"a": Point(1), "b": Point(2, os.fsdecode(b"/x/\xff.gguf"))}
    assert read_json(path, dict[str, Point], None) is None
    write_json(path, points)
    assert read_json(path, dict[str, Point], None) == points


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"7", b"\xff", b'{"a": 3}', b'{"a": {"x": "1"}}', b"[" * 99_999, b" " * 2000],
    ids=range(8),
)
def test_a_damaged_file_is_the_default_and_can_be_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """Broken JSON, other types, too deep or too large."""
    monkeypatch.setattr(private_files, "LARGEST_FILE", 100_000 if b"[" in content else 1000)
    path = tmp_path / "points.json"
    path.write_bytes(content)

    assert read_json(path, dict[str, Point], "default") == "default"
    aside = set_aside(path, dict[str, Point])
    assert aside == tmp_path / "points.json.damaged-1"
    assert aside.read_bytes() == content
    assert not path.exists()


def test_updates_at_once_lose_nothing(tmp_path: Path) -> None:
    """Each thread sees what the others wrote before it."""
    path = tmp_path / "points.json"

    def add(number: int) -> None:
        with updating(path, dict[str, Point]) as points:
            points[str(number)] = Point(number)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(read_json(path, dict[str, Point], {})) == 20


def test_an_update_sets_a_damaged_file_aside(tmp_path: Path) -> None:
    """Every damaged file is kept, under a name of its own."""
    path = tmp_path / "points.json"
    for content in ("{1", "{2"):
        path.write_text(content)
        with updating(path, dict[str, Point]) as points:
            points["a"] = Point(1)

    assert read_json(path, dict[str, Point], None) == {"a": Point(1)}
    assert (tmp_path / "points.json.damaged-1").read_text() == "{1"
    assert (tmp_path / "points.json.damaged-2").read_text() == "{2"
    assert set_aside(path, dict[str, Point]) is None


def test_an_update_that_changes_nothing_or_fails_writes_nothing(tmp_path: Path) -> None:
    """The file is the very same one afterwards."""
    path = tmp_path / "points.json"
    write_json(path, {"a": Point(1)})
    before = path.stat().st_ino, path.stat().st_mtime_ns
    with updating(path, dict[str, Point]):
        pass
    with pytest.raises(ZeroDivisionError), updating(path, dict[str, Point]) as points:
        points["b"] = Point(1 // 0)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == before
