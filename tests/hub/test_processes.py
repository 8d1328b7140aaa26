"""Downloads in processes of their own: interrupted, killed, on a full disk, and two at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from catalogue_files import CONTENT, FILE, SHA256, blobs, get, parts
from hub_server import Fault, HubServer
from specchat.hub.cache import part_path

ROOT = Path(__file__).parents[2]
PULL = "import sys\nfrom specchat.cli import main\nsys.exit(main(['pull', sys.argv[1]]))"
SLOW = 0.04
"""Seconds for a fiftieth of the file."""
NEVER_WHOLE = threading.Event()
"""Holds up the second half of a file."""


@contextmanager
def pulling(script: str = PULL) -> Iterator[subprocess.Popen[str]]:
    """Run a pull in a process that does not outlive the test."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(FILE)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_a_part() -> None:
    """Return when some bytes have arrived."""
    part = part_path(FILE, SHA256)
    for _ in range(6000):
        if part.exists() and part.stat().st_size > 10_000:
            return
        time.sleep(0.01)
    pytest.fail("nothing arrived")


@pytest.fixture(autouse=True)
def _one_file(hub: HubServer) -> None:
    """Every hub here has the one file."""
    hub.put(FILE.repository, FILE.file, CONTENT)


def test_ctrl_c_keeps_what_is_here(hub: HubServer) -> None:
    """Ctrl+C exits with 130 and one line; the next run resumes at the next byte."""
    hub.faults = [Fault("storage", seconds_per_piece=SLOW, gate=NEVER_WHOLE)]
    with pulling() as process:
        wait_for_a_part()
        process.send_signal(signal.SIGINT)
        out, message = process.communicate(timeout=20)

    assert (process.returncode, out) == (130, "")
    assert message.splitlines()[-1] == f"stopped: `specchat pull {FILE}` downloads the rest"
    assert "Traceback" not in message
    kept = parts()[0].stat().st_size
    assert get()[0].read_bytes() == CONTENT
    assert [seen.range for seen in hub.seen][-1] == f"bytes={kept}-"


def test_a_killed_pull_goes_on(hub: HubServer) -> None:
    """There was no time to clean up, and nothing is lost or wrong."""
    hub.faults = [Fault("storage", seconds_per_piece=SLOW, gate=NEVER_WHOLE)]
    with pulling() as process:
        wait_for_a_part()
        process.kill()
        process.wait()
    kept = parts()[0].stat().st_size

    assert blobs() == []
    assert parts()[0].read_bytes() == CONTENT[:kept]
    assert get()[0].read_bytes() == CONTENT
    assert [seen.range for seen in hub.seen][-1] == f"bytes={kept}-"


@pytest.mark.slow
def test_two_pulls_at_once_share_one_download(hub: HubServer) -> None:
    """One waits for the other; both end well, and the bytes came once."""
    gate = threading.Event()
    hub.faults = [Fault("storage", seconds_per_piece=SLOW, gate=gate)]
    with pulling() as first:
        wait_for_a_part()
        with pulling() as second:
            assert second.stderr is not None
            waiting = next(line for line in second.stderr if "waiting" in line)
            gate.set()
            done = [process.communicate(timeout=30) for process in (first, second)]

    assert (first.returncode, second.returncode) == (0, 0)
    assert done[0][0] == done[1][0]
    assert "waiting for another download" in waiting
    assert Path(done[0][0].strip()).read_bytes() == CONTENT
    assert hub.num_sent == len(CONTENT)


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on files there")
def test_a_full_disk_is_reported_and_leaves_a_usable_part(hub: HubServer) -> None:
    """A limit on the size of files stands in for it; with more room it goes on."""
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (70_001, 70_001))\n"
    with pulling(limit + PULL) as process:
        out, message = process.communicate(timeout=20)

    assert (process.returncode, out) == (1, "")
    assert message.splitlines()[-1].startswith("specchat: the disk is full (")
    assert (blobs(), parts()[0].read_bytes()) == ([], CONTENT[:70_001])
    assert get()[0].read_bytes() == CONTENT


def test_a_proxy_is_used(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As HTTP_PROXY says, for an address that only it can reach; NO_PROXY is left alone."""
    monkeypatch.setenv("HTTP_PROXY", hub.address)
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    with pulling() as process:
        out, message = process.communicate(timeout=20)

    assert (process.returncode, message.count("Traceback")) == (0, 0)
    assert Path(out.strip()).read_bytes() == CONTENT
    by_proxy = [seen.path.startswith("http://hub.invalid/org/model/resolve/") for seen in hub.seen]
    assert by_proxy == [True, True, False]  # the storage is at 127.0.0.1


@pytest.mark.slow
def test_offline_is_respected(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """HF_HUB_OFFLINE allows no request, and what is here needs none."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pulling() as process:
        _, message = process.communicate(timeout=20)
    assert (process.returncode, hub.seen) == (1, [])
    assert "offline, and org/model/" in message
    assert message.count("\n") == 1
    monkeypatch.delenv("HF_HUB_OFFLINE")
    get()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pulling() as process:
        out, message = process.communicate(timeout=20)
    assert (process.returncode, Path(out.strip()).name) == (0, FILE.file)


def test_nothing_but_the_file_is_asked_for(hub: HubServer) -> None:
    """huggingface_hub alone would send facts about this machine."""
    with pulling() as process:
        process.communicate(timeout=20)

    assert [seen.method for seen in hub.seen] == ["HEAD", "GET", "GET"]
    assert all("/resolve/" in seen.path for seen in hub.seen)
