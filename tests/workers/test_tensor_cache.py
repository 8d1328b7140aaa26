"""The tensor cache: bounded, never wrong, private, and no reason for a worker to end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from scripts.support.worker_process import (
    SMALL_FILES,
    TensorSender,
    WorkerProcess,
    cache_folder_of,
    free_ports,
    tensor_hash,
)
from specchat.cli import main
from specchat.errors import InvalidOption, SpecchatError
from specchat.llama.rpc_library import find_rpc
from specchat.options.worker_address import WorkerAddress
from specchat.workers import tensor_cache
from specchat.workers.health import ask_for_report
from specchat.workers.tensor_cache import TensorCache, cache_folder, clear_caches

KIB = 1 << 10
SIZE = 64 * KIB
needs_rpc = pytest.mark.skipif(
    find_rpc() is None, reason="this llama.cpp was built without its RPC backend"
)


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait for something that another thread or process does."""
    deadline = time.monotonic() + 10
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def name_of(number: int) -> str:
    """Return a name as ggml gives one."""
    return f"{number:016x}"


def write(cache: TensorCache, number: int, size: int = SIZE, written: int | None = None) -> Path:
    """Write a file as ggml's server does, and log it."""
    path = cache.folder / name_of(number)
    cache.follow(b"[set_tensor] buffer: 0x1, data: 0x2, offset: 0, size: %d\n" % size)
    path.write_bytes(bytes(size if written is None else written))
    cache.follow(b"[set_tensor] saved to '%s'\n" % str(path).encode())
    return path


def finished(cache: TensorCache) -> list[str]:
    """Return the names of the files that ggml would read."""
    return sorted(each.name for each in cache.folder.iterdir() if len(each.name) == 16)


@pytest.fixture
def said() -> list[str]:
    """What a cache says."""
    return []


@pytest.fixture
def cache(tmp_path: Path, said: list[str]) -> TensorCache:
    """A cache for three files."""
    return TensorCache(tmp_path / "tensors", 3 * SIZE, said.append)


def test_a_file_is_read_only_once_it_is_complete(cache: TensorCache, said: list[str]) -> None:
    """Its folder is private, and its size is what was received."""
    path = write(cache, 1)
    wait_until(path.exists)
    assert path.stat().st_mode & 0o777 == 0o400
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert cache.num_bytes == SIZE
    assert said == []


def test_a_file_cut_short_is_never_read(cache: TensorCache, said: list[str]) -> None:
    """As on a full disk, where ggml writes what it can and goes on."""
    path = write(cache, 1, written=SIZE - 1)
    assert not path.exists()
    wait_until(lambda: bool(said))
    wait_until(lambda: not list(cache.folder.glob("*.part")))
    assert not path.exists()
    write(cache, 2, written=0)
    wait_until(lambda: not cache.num_bytes)
    assert len(said) == 1
    assert "keeps no more weights (no space was left): free space in" in said[0]


def test_the_files_used_longest_ago_go_first(cache: TensorCache) -> None:
    """Reading one makes it the newest; one that is too large alone is not kept."""
    for number in (1, 2, 3):
        path = write(cache, number)
        wait_until(path.exists)
        os.utime(path, (number, number))
    cache.follow(b"[set_tensor_hash] buffer: 0x1, data: 0x2, offset: 0, size: 9, hash: 1\n")
    wait_until(write(cache, 4).exists)
    assert finished(cache) == [name_of(1), name_of(3), name_of(4)]
    write(cache, 5, 4 * SIZE)
    assert finished(cache) == [name_of(1), name_of(3), name_of(4)]
    assert cache.num_bytes == cache.limit


def ended(cache: TensorCache, *numbers: int) -> Path:
    """Let a cache receive files and end; return its folder."""
    for number in numbers:
        path = write(cache, number)
        wait_until(path.exists)
        os.utime(path, (number, number))
    cache.close()
    return cache.folder


def test_what_was_not_finished_is_deleted_at_the_next_start(cache: TensorCache) -> None:
    """A worker may be killed at any moment; a smaller limit holds at once."""
    folder = ended(cache, 1, 2)
    for name, mode in ((name_of(3), 0o600), (f"{name_of(4)}.part", 0o400)):
        (folder / name).write_bytes(bytes(SIZE))
        (folder / name).chmod(mode)
    with closing(TensorCache(folder, 3 * SIZE, print)) as again:
        assert finished(again) == [name_of(1), name_of(2)]
    with closing(TensorCache(folder, SIZE, print)) as again:
        assert finished(again) == [name_of(2)]
        assert not list(folder.glob("*.part"))


def test_what_was_damaged_since_is_deleted_at_the_next_start(
    cache: TensorCache, said: list[str]
) -> None:
    """Cut short, changed in place, put there by another program, or missing from the list."""
    folder = ended(cache, 1, 2, 3)
    os.truncate(make_writable(folder / name_of(1)), SIZE // 2)
    with make_writable(folder / name_of(2)).open("r+b") as file:
        file.seek(SIZE // 2)
        file.write(b"x")
    (folder / name_of(4)).write_bytes(bytes(SIZE))
    (folder / name_of(5)).symlink_to(folder / name_of(3))
    for number in range(1, 5):
        (folder / name_of(number)).chmod(0o400)
    with closing(TensorCache(folder, 9 * SIZE, said.append)) as again:
        assert finished(again) == [name_of(3)]
    assert said == ["deleted 3 damaged files of the tensor cache"]
    with (folder / "checksums").open("r+b") as file:
        file.write(b"\xff\n")
    with closing(TensorCache(folder, 9 * SIZE, said.append)) as again:
        assert finished(again) == []


def make_writable(path: Path) -> Path:
    """Let a file be written to, and return it."""
    path.chmod(0o600)
    return path


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """Whatever is in its place or in it; what a link leads to is left as it was."""
    other = tmp_path / "other"
    other.mkdir(0o755)
    (tmp_path / "link").symlink_to(other)
    (tmp_path / "file").write_text("")
    entry = tmp_path / "folder" / name_of(1)
    entry.mkdir(parents=True)
    for folder, place in (("link", "link"), ("file", "file"), ("folder", f"folder/{entry.name}")):
        with pytest.raises(SpecchatError) as raised:
            TensorCache(tmp_path / folder, SIZE, print)
        said = str(raised.value)
        assert said.startswith(f"the tensor cache {tmp_path / place} cannot be used (")
        assert said.endswith("): move that away, or leave out --cache")
    assert other.stat().st_mode & 0o777 == 0o755


def test_clearing_deletes_tensors_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing behind a link, nothing of a running worker, and no file of anyone else's."""
    monkeypatch.setattr(tensor_cache, "cache_folder", lambda port: tmp_path / "all" / str(port))
    all_ = tmp_path / "all"
    big = tmp_path / "big"
    big.mkdir()
    (big / name_of(7)).write_text("a thesis")
    ended(TensorCache(all_ / "1", SIZE, print), 1)
    running = TensorCache(all_ / "1", SIZE, print)
    mixed = ended(TensorCache(all_ / "2", SIZE, print), 2)
    (mixed / "notes").write_text("mine")
    (all_ / "3").symlink_to(big)
    (all_ / "other").mkdir()
    (all_ / "other" / name_of(8)).write_text("mine")
    assert main(["worker", "--clear-cache"]) == 0
    assert capsys.readouterr().err.strip().split("; ") == [
        "deleted 65.5 kB of cached tensors",
        "the worker on port 1 is running and uses its cache",
        f"{mixed} also has other files",
        f"{all_ / '3'} is not a folder of specchat's",
    ]
    assert finished(running) == [name_of(1)]
    assert sorted(each.name for each in mixed.iterdir()) == ["lock", "notes"]
    assert (big / name_of(7)).read_text() == (all_ / "3" / name_of(7)).read_text() == "a thesis"
    assert (all_ / "other" / name_of(8)).exists()
    running.close()


def test_a_folder_belongs_to_one_worker(cache: TensorCache) -> None:
    """Another one could delete what ggml is about to read."""
    with pytest.raises(InvalidOption, match="in use by another worker: choose another --port"):
        TensorCache(cache.folder, SIZE, print)


@needs_rpc
def test_a_worker_keeps_what_it_has_received(capsys: pytest.CaptureFixture[str]) -> None:
    """The native server and its log are as this module expects; `--clear-cache` deletes it."""
    tensors = [bytes([number]) * SIZE for number in range(1, 5)]
    clear_caches()  # other tests have some, too
    with WorkerProcess(("--cache", "200KB")) as worker:
        folder = cache_folder_of(worker.address)
        sender = TensorSender(worker.address, SIZE)
        for tensor in tensors:
            sender.send(tensor)
            wait_until((folder / f"{tensor_hash(tensor):016x}").exists)
        assert not sender.is_there(tensor_hash(tensors[0]), SIZE)
        assert sender.is_there(tensor_hash(tensors[1]), SIZE)
        assert sender.read(SIZE) == tensors[1]
        report = ask_for_report(worker.address, 5)
        assert (report.cache_bytes, report.cache_limit) == (3 * SIZE, 200_000)
        sender.close()
    assert cache_folder(worker.address.port) == folder
    assert main(["worker", "--clear-cache"]) == 0
    assert "deleted 197 kB of cached tensors" in capsys.readouterr().err
    assert [each.name for each in folder.iterdir()] == ["lock"]


@needs_rpc
def test_a_full_disk_neither_ends_a_worker_nor_changes_weights() -> None:
    """It goes on without keeping anything more, and says so once."""
    large, small = b"\1" * (2 << 20), b"\2" * SIZE
    with WorkerProcess(("--cache", "1G"), before=SMALL_FILES) as worker:
        folder = cache_folder_of(worker.address)
        sender = TensorSender(worker.address, len(large))
        for tensor in (large, small, large):
            sender.send(tensor)
            assert sender.read(len(tensor)) == tensor
        wait_until((folder / f"{tensor_hash(small):016x}").exists)
        wait_until(lambda: not list(folder.glob("*.part")))
        assert not sender.is_there(tensor_hash(large), len(large))
        assert sender.is_there(tensor_hash(small), SIZE)
        sender.close()
        assert sum("keeps no more weights" in line for line in worker.printed) == 1
        assert worker.process.poll() is None


@needs_rpc
def test_a_half_written_file_of_a_killed_worker_is_not_used() -> None:
    """It would be taken for the whole tensor."""
    address, tensor = WorkerAddress("127.0.0.1", free_ports()), b"\3" * SIZE
    path = cache_folder_of(address) / f"{tensor_hash(tensor):016x}"
    path.parent.mkdir(parents=True)
    path.write_bytes(tensor[: SIZE // 2])
    with WorkerProcess(("--cache", "1G"), port=address.port) as worker:
        sender = TensorSender(worker.address, SIZE)
        assert not sender.is_there(tensor_hash(tensor), SIZE)
        sender.close()
