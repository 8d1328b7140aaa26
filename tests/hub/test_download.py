"""Downloads against a hub on this machine: what lies where, and what is asked of the hub."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from urllib.request import Request, urlopen

import pytest
from filelock import FileLock

from catalogue_files import CONTENT, DRAFT, DRAFT_CONTENT, FILE, SHA256, get, gets
from hub_server import Fault, HubServer
from specchat import __version__
from specchat.errors import Cancelled, DownloadFailed
from specchat.hub.cache import cache_root, find_present, lock_path, part_path
from specchat.hub.download import download
from specchat.hub.references import Reference
from specchat.hub.transfer import DownloadProgress
from tables import table

ROOT = Path(__file__).parents[2]


@pytest.fixture
def commit(hub: HubServer) -> str:
    """The commit of a hub that has the one file."""
    return hub.put(FILE.repository, FILE.file, CONTENT)


def test_a_file_lies_in_the_shared_cache_in_its_layout(hub: HubServer, commit: str) -> None:
    """Blob, snapshot and ref are where huggingface_hub and other programs look for them."""
    from huggingface_hub import scan_cache_dir, try_to_load_from_cache

    (path,) = get()
    repository = cache_root() / "models--org--model"

    assert path == repository / "snapshots" / commit / FILE.file
    assert path.read_bytes() == CONTENT
    assert path.resolve() == (repository / "blobs" / SHA256).resolve()
    assert (repository / "refs" / "main").read_text() == commit
    assert [entry.name for entry in (repository / "blobs").iterdir()] == [SHA256]
    assert try_to_load_from_cache(FILE.repository, FILE.file, cache_root()) == str(path)
    info = scan_cache_dir(cache_root())
    assert (info.warnings, len(info.repos)) == ([], 1)


@table(
    "variables",
    [
        {},
        {"HF_HOME": "~/models"},
        {"HF_HOME": "/models", "XDG_CACHE_HOME": "/cache"},
        {"XDG_CACHE_HOME": "/cache"},
        {"HUGGINGFACE_HUB_CACHE": "/old"},
        {"HF_HUB_CACHE": "$HOME/new", "HUGGINGFACE_HUB_CACHE": "/old", "HF_HOME": "/models"},
    ],
    ids=str,
)
def test_the_cache_is_where_huggingface_hub_has_it(variables: dict[str, str]) -> None:
    """The folder is the same for every environment variable that moves it."""
    script = (
        "from huggingface_hub.constants import HF_HUB_CACHE\n"
        "from specchat.hub.cache import cache_root\n"
        "assert cache_root().samefile(HF_HUB_CACHE) if cache_root().exists() else"
        " str(cache_root()) == HF_HUB_CACHE, (cache_root(), HF_HUB_CACHE)"
    )
    known = ("HOME", "PATH", "PYTHONPATH")
    environment = {name: os.environ[name] for name in known if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**environment, **variables}, cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr


def test_what_huggingface_hub_fetched_is_used(hub: HubServer, commit: str) -> None:
    """The cache is shared in both directions: a ref and a snapshot are enough."""
    repository = cache_root() / "models--org--model"
    (repository / "snapshots" / commit).mkdir(parents=True)
    (repository / "snapshots" / commit / FILE.file).write_bytes(CONTENT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)

    assert get() == [repository / "snapshots" / commit / FILE.file]
    assert hub.seen == []


def test_two_files_come_at_once_with_one_progress(hub: HubServer, commit: str) -> None:
    """Each file's progress goes from its first byte to its last, never backwards."""
    hub.put(DRAFT.repository, DRAFT.file, DRAFT_CONTENT)
    message: list[DownloadProgress] = []
    paths = download([FILE, DRAFT], message.append)

    assert [path.read_bytes() for path in paths] == [CONTENT, DRAFT_CONTENT]
    for name, size in ((FILE.file, len(CONTENT)), (DRAFT.file, len(DRAFT_CONTENT))):
        steps = [each for each in message if each.reference.file == name]
        assert [each.done for each in steps] == sorted(each.done for each in steps)
        assert (steps[0].done, steps[-1].done, steps[-1].fetched) == (0, size, size)
        assert {each.total for each in steps} == {size}


def test_what_is_here_is_used_without_a_request(hub: HubServer, commit: str) -> None:
    """Pinned by the caller or by the first download: there is no further request."""
    pinned = replace(FILE, revision=commit, size=len(CONTENT), sha256=SHA256)
    first = get()
    hub.seen.clear()

    assert get() == get(pinned) == first
    assert hub.seen == []


def test_a_shared_draft_is_fetched_once(hub: HubServer, commit: str) -> None:
    """A second pair with the same draft model asks for its target alone."""
    hub.put(DRAFT.repository, DRAFT.file, DRAFT_CONTENT)
    hub.put("org/other", "other.gguf", CONTENT[:70_000])
    get(FILE, DRAFT)
    hub.seen.clear()
    get(Reference("org/other", "other.gguf"), DRAFT)

    assert {seen.path.split("/")[2] for seen in hub.seen} == {"other"}
    assert hub.num_sent == len(CONTENT) + len(DRAFT_CONTENT) + 70_000


def test_the_same_file_twice_is_fetched_once(hub: HubServer, commit: str) -> None:
    """A pair whose draft is its target is one download."""
    assert len(set(get(FILE, FILE))) == 1
    assert hub.num_sent == len(CONTENT)


def test_bytes_that_another_commit_brought_are_linked(hub: HubServer, commit: str) -> None:
    """A pin whose bytes are here under another commit needs no request at all."""
    get()
    hub.seen.clear()
    newer = Reference(FILE.repository, FILE.file, "1" * 40, len(CONTENT), SHA256)
    (path,) = get(newer)

    assert path.read_bytes() == CONTENT
    assert hub.seen == []


def test_a_split_file_comes_whole(hub: HubServer) -> None:
    """All parts lie beside each other, and the path is that of the first, whichever is named."""
    for number in (1, 2, 3):
        hub.put("org/split", f"big-{number:05}-of-00003.gguf", CONTENT[: 1000 * number], "5" * 40)
    (path,) = get(Reference("org/split", "big-00002-of-00003.gguf"))

    assert path.name == "big-00001-of-00003.gguf"
    sizes = [path.with_name(f"big-{n:05}-of-00003.gguf").stat().st_size for n in (1, 2, 3)]
    assert sizes == [1000, 2000, 3000]


def test_a_split_file_comes_from_one_commit(hub: HubServer) -> None:
    """Where the repository moves on in the middle, later parts are still of the first's commit."""
    for commit in ("5" * 40, "6" * 40):
        for number in (1, 2):
            name = f"big-{number:05}-of-00002.gguf"
            hub.put("org/split", name, CONTENT[: 1000 * number + int(commit[0])], commit)
    hub.branches["org/split"] = "5" * 40
    hub.faults = [Fault("HEAD", times=1), Fault("HEAD", status=500, times=9)]
    split = Reference("org/split", "big-00001-of-00002.gguf")
    with pytest.raises(DownloadFailed, match="server error"):
        get(split)
    hub.branches["org/split"], hub.faults = "6" * 40, []
    (path,) = get(split)

    assert path.parent.name == "5" * 40
    assert path.with_name("big-00002-of-00002.gguf").stat().st_size == 2005


def test_a_split_file_with_a_part_missing_is_not_here(hub: HubServer) -> None:
    """Half a model cannot be loaded."""
    for number in (1, 2):
        hub.put("org/split", f"big-{number:05}-of-00002.gguf", CONTENT[:1000], "5" * 40)
    split = Reference("org/split", "big-00001-of-00002.gguf")
    (path,) = get(split)
    path.with_name("big-00002-of-00002.gguf").unlink()

    assert find_present(split) is None


def test_a_small_file_is_checked_as_git_does(hub: HubServer, commit: str) -> None:
    """What the hub keeps in git has git's checksum, right or wrong."""
    hub.small = {FILE.file}
    (path,) = get()

    assert path.read_bytes() == CONTENT
    assert len(path.resolve().name) == 40


def test_where_links_cannot_be_the_file_itself_lies_there(
    hub: HubServer, commit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows without its developer mode, where huggingface_hub does the same."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_SYMLINKS", True)
    (path,) = get()

    assert not path.is_symlink()
    assert path.read_bytes() == CONTENT
    hub.seen.clear()
    assert get() == [path]
    assert hub.seen == []


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_pinned_file_is_found_whatever_letters_its_name_has(
    hub: HubServer, is_whole: bool
) -> None:
    """Its sha256 says that it is the one; afterwards it is here without a request."""
    commit = hub.put(FILE.repository, "MODEL-q4.gguf", CONTENT)
    asked = replace(FILE, sha256=SHA256, revision=commit if is_whole else FILE.revision)
    (path,) = get(asked)

    assert (path.name, path.read_bytes()) == ("MODEL-q4.gguf", CONTENT)
    hub.seen.clear()
    assert get(asked) == [path]
    assert find_present(asked) == path
    assert hub.seen == []


def test_a_name_in_other_letters_is_not_enough(hub: HubServer) -> None:
    """Two such names leave open which is meant, and other bytes are another file."""
    hub.put(FILE.repository, "MODEL-q4.gguf", CONTENT)
    with pytest.raises(DownloadFailed, match="is not the pinned file"):
        get(replace(FILE, sha256="0" * 64))
    commit = hub.branches[FILE.repository]
    hub.put(FILE.repository, "MODEL-Q4.gguf", CONTENT, commit)
    with pytest.raises(DownloadFailed, match=r"it has MODEL-.4.gguf"):
        get(replace(FILE, sha256=SHA256))


def test_the_hub_learns_who_asks_and_nothing_more(hub: HubServer, commit: str) -> None:
    """The program and its version."""
    get()

    agents = {seen.agent for seen in hub.seen}
    assert all(agent and agent.startswith(f"specchat/{__version__};") for agent in agents)


def test_a_waiting_download_reports_the_progress_of_the_other(hub: HubServer, commit: str) -> None:
    """Each time it looks for the lock in vain."""
    lock, part = lock_path(FILE, SHA256), part_path(FILE, SHA256)
    lock.parent.mkdir(parents=True)
    part.parent.mkdir(parents=True)
    other = FileLock(lock, thread_local=False)
    other.acquire()
    waiting: list[int] = []

    def on_progress(progress: DownloadProgress) -> None:
        if progress.note:
            waiting.append(progress.done)
            part.write_bytes(CONTENT[:1000])  # the other one goes on
            if progress.done:
                other.release()

    download([FILE], on_progress)
    assert sorted(set(waiting)) == [0, 1000]


def test_the_hub_of_the_tests_knows_ranges_with_an_end(hub: HubServer, commit: str) -> None:
    """As the real one's storage does, for programs that fetch a file in pieces."""
    address = f"{hub.storage}/{FILE.repository}/resolve/{commit}/{FILE.file}"
    request = Request(address, headers={"Range": "bytes=5-9"})  # noqa: S310  # on this machine
    with urlopen(request) as answer:  # noqa: S310
        assert answer.headers["Content-Range"] == f"bytes 5-9/{len(CONTENT)}"
        assert answer.read() == CONTENT[5:10]


def test_a_token_goes_to_the_hub_alone(
    hub: HubServer, commit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage is another machine, which must not learn it."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    get()

    message = {(seen.path.endswith("signed=1"), seen.authorization) for seen in hub.seen}
    assert message == {(False, "Bearer hf_secret"), (True, None)}


def test_who_cancels_keeps_what_is_here(hub: HubServer, commit: str) -> None:
    """Cancelled is raised, and the next run goes on."""
    hub.faults = [Fault("storage", seconds_per_piece=0.02, gate=threading.Event())]
    message: list[DownloadProgress] = []
    with pytest.raises(Cancelled):
        download([FILE], message.append, lambda: bool(message and message[-1].fetched))
    before = hub.num_sent
    (path,) = get()

    assert path.read_bytes() == CONTENT
    assert before < len(CONTENT) + hub.num_sent - before
    assert [seen.range for seen in hub.seen][-1] is not None


def test_a_stalled_download_is_reported_again(
    hub: HubServer, commit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeated reports show that the rate is falling."""
    monkeypatch.setattr("specchat.hub.download.REPEAT_SECONDS", 0.05)
    hub.faults = [Fault("storage", seconds_per_piece=60.0)]
    message: list[DownloadProgress] = []
    with pytest.raises(Cancelled):
        download([FILE], message.append, lambda: len(message) > 8)

    assert len(set(message)) < 5


def test_a_full_disk_is_reported_before_the_download(
    hub: HubServer, commit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is needed, what is free, and where."""
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=64_100_000))
    with pytest.raises(DownloadFailed, match=r"disk space .* 200 kB .* 64.1 MB free.*HF_HOME"):
        get()

    assert gets(hub) == 0
