"""Nothing leaves the machine unasked; and the trap that shows it does see attempts."""

from __future__ import annotations

import os
import re
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

from conftest import NetworkTrap
from tables import table

ROOT = Path(__file__).parents[1]
BEYOND = "192.0.2.1"
"""An address reserved for examples."""

IN_A_CHILD = """
import multiprocessing, socket
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=socket.{function}, args={arguments})
    child.start()
    child.join()
"""
STYLE = re.compile("\x1b\\[[0-9;?=>]*[A-Za-z]")
TIMEOUT = 60.0
"""Seconds to wait, on a machine that may be busy."""
FEW = ("--max-tokens", "4", "--threads", "1")


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, demo_state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what `tune` saves away from other tests."""
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    shutil.copytree(demo_state, os.environ["XDG_STATE_HOME"])


def run(*words: str, wrapper: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run specchat without any variable that would keep it off the network."""
    offline = {"HF_HUB_OFFLINE", "HF_ENDPOINT", "TRANSFORMERS_OFFLINE"}
    return subprocess.run(
        [*wrapper, sys.executable, "-m", "specchat", *words],
        capture_output=True, text=True, check=False, cwd=ROOT, stdin=subprocess.DEVNULL,
        env={name: text for name, text in os.environ.items() if name not in offline},
    )  # fmt: skip


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    "words",
    [
        ["ask", "hi", *FEW],
        ["list"],
        ["bench", "--rounds", "1", "--task", "chat", "--temperature", "0", *FEW],
        ["history", "list", "--json"],
        ["doctor", "--offline"],
    ],
    ids=" ".join,
)
def test_a_command_that_has_what_it_needs_makes_no_request(
    words: list[str], network_trap: NetworkTrap
) -> None:
    """The command neither waits nor warns; the trap covers the processes it starts, too."""
    done = run(*words)

    assert network_trap.take() == []
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals of this kind")
def test_the_chat_connects_to_no_host(network_trap: NetworkTrap) -> None:
    """The trap covers its whole run and its engine process."""
    with Chat() as chat:
        chat.read_until("Ask anything")
        chat.type("What is speculative decoding?\r")
        chat.read_until("token limit reached")
        chat.type("\x11")
        assert chat.end() == 0

    assert network_trap.take() == []


WITHOUT_NETWORK = ("unshare", "--map-root-user", "--net")
HAS_NAMESPACES = (
    shutil.which("unshare") is not None
    and not subprocess.run([*WITHOUT_NETWORK, "true"], capture_output=True, check=False).returncode
)


@pytest.mark.slow(keep=1)
@pytest.mark.skipif(not HAS_NAMESPACES, reason="unshare cannot make a network of its own here")
@pytest.mark.parametrize(
    "words",
    [
        ["ask", "hi", *FEW],
        ["list"],
    ],
    ids=" ".join,
)
def test_a_command_works_where_there_is_no_network_at_all(words: list[str]) -> None:
    """Without even loopback, which also covers native code that the trap does not see."""
    done = run(*words, wrapper=WITHOUT_NETWORK)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


class Chat:
    """The chat in a pseudo-terminal of 120 x 40."""

    def __enter__(self) -> Self:
        """Start the chat."""
        import pty
        import tty

        self._ours, theirs = pty.openpty()
        tty.setraw(theirs)
        words = ["chat", "--no-history", "--temperature", "0", "--max-tokens", "20"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "specchat", *words, "--threads", "1"],
            stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"},
        )  # fmt: skip
        os.close(theirs)
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the chat if it still runs."""
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._ours, text.encode())

    def read_until(self, words: str) -> None:
        """Read what the chat draws until it contains a text."""
        drawn = ""
        while words not in STYLE.sub("", drawn):
            if not select.select([self._ours], [], [], TIMEOUT)[0]:
                pytest.fail(f"it never showed {words!r}: {STYLE.sub('', drawn)[-2000:]!r}")
            drawn += os.read(self._ours, 65536).decode("utf-8", "replace")

    def end(self) -> int:
        """Read the rest and return the exit code."""
        deadline = time.monotonic() + TIMEOUT
        os.set_blocking(self._ours, False)
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                os.read(self._ours, 65536)
            except OSError:
                time.sleep(0.01)
        return self._process.wait(1)


@pytest.mark.slow
def test_the_doctor_asks_the_hub_unless_it_must_not(
    network_trap: NetworkTrap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`doctor` does connect, which the trap sees; refused, it reports the hub as unreachable.

    There is no llama.cpp, as decoding with it takes a while.
    """
    (tmp_path / "llama_cpp.py").write_text("raise ImportError('left out')", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    done = run("doctor")

    assert "cannot be reached" in done.stdout
    assert any("getaddrinfo" in tried for tried in network_trap.take())


@pytest.mark.slow
@table(
    ("function", "arguments", "host"),
    [
        ("create_connection", ((BEYOND, 80), 0.1), BEYOND),
        ("create_connection", (("2001:db8::1", 80), 0.1), "2001:db8::1"),
        ("getaddrinfo", ("hub.invalid", 80), "hub.invalid"),
        ("gethostbyname", ("hub.invalid",), "hub.invalid"),
    ],
)
def test_the_trap_catches_a_child_of_a_child(
    function: str, arguments: tuple[object, ...], host: str, network_trap: NetworkTrap
) -> None:
    """A process started like the engine's inherits the trap, which records its attempts."""
    code = IN_A_CHILD.format(function=function, arguments=arguments)
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    assert host in "".join(network_trap.take())


def test_the_trap_catches_this_process(network_trap: NetworkTrap) -> None:
    """Datagrams are trapped too; loopback stays open."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        with pytest.raises(ConnectionRefusedError, match="trap"):
            sender.sendto(b"x", (BEYOND, 9))
        sender.sendto(b"x", ("127.0.0.1", 9))

    assert [BEYOND in tried for tried in network_trap.take()] == [True]
