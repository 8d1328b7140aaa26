"""The command: what it refuses to start with, and a run from its first line to its end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest

from conftest import ROOT
from server.conftest import LONG

SERVE = (sys.executable, "-m", "specchat", "serve", "--threads", "1", "--pair", "demo")
SECRET = "the swordfish sleeps at noon"
"""A text that must not be in any file, nor on the screen."""


def refused(words: Sequence[str]) -> tuple[int, str]:
    """Return the exit code and the line of a command that does not start."""
    done = subprocess.run([*SERVE, *words], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return done.returncode, line


@contextmanager
def serving(state: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the command and yield it, with what it says once it listens."""
    process = subprocess.Popen(
        [*SERVE, *words], cwd=ROOT, env={**os.environ, "XDG_STATE_HOME": str(state)}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr
    said = ""
    try:
        while " key" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        yield process, said
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str], number: signal.Signals) -> str:
    """Interrupt the command; return what else it has printed, all of it."""
    process.send_signal(number)
    output, errors = process.communicate(timeout=20)
    assert process.returncode in {0, 130}
    assert "Traceback" not in output + errors
    return output + errors


def test_another_host_without_a_key_is_refused(tmp_path: Path) -> None:
    """Whoever reaches the machine could use it; the line says what to add."""
    code, line = refused(["--host", "0.0.0.0", "--port", "0"])  # noqa: S104
    assert code == 2
    assert "--key auto" in line


def test_a_port_in_use_is_one_line() -> None:
    """And exit code 1."""
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        code, line = refused(["--port", str(other.getsockname()[1])])
    assert code == 1
    assert "choose another --port" in line


@pytest.mark.slow
def test_a_given_key_is_not_printed(tmp_path: Path) -> None:
    """What is printed may be a log; clients with the key are answered."""
    with serving(tmp_path, "--port", "0", "--key", SECRET) as (process, said):
        (address,) = re.findall(r"(http://[\d.]+:\d+)/v1", said)
        headers = {"authorization": f"Bearer {SECRET}"}
        assert httpx2.get(f"{address}/v1/models").status_code == 401
        assert httpx2.get(f"{address}/v1/models", headers=headers).status_code == 200
        assert SECRET not in said + ended(process, signal.SIGTERM)


@pytest.mark.slow
def test_a_made_key_is_printed_and_no_prompt_is(tmp_path: Path) -> None:
    """Nor is a prompt in any file of the state folder; open streams end with the server."""
    question = {"messages": [{"role": "user", "content": SECRET}]}
    failing = [
        {**question, "temperature": "hot"},
        {**question, "messages": [{"role": SECRET, "content": SECRET}]},
        {"messages": [{"role": "user", "content": SECRET * 5000}]},
        {**question, "stop": [SECRET], "logit_bias": {SECRET: SECRET}},
    ]
    with serving(tmp_path, "--port", "0", "--key", "auto") as (process, said):
        address, key = re.findall(r"(http://[\d.]+:\d+)/v1.*key (\S+)", said)[0]
        headers = {"authorization": f"Bearer {key}"}
        with httpx2.Client(base_url=address, headers=headers, timeout=60) as client:
            assert client.get("/v1/models", headers={"authorization": ""}).status_code == 401
            chat = "/v1/chat/completions"
            assert client.post(chat, json={**question, "max_tokens": 8}).status_code == 200
            for body in failing:
                assert client.post(chat, json=body).status_code == 400
            assert client.post(chat, content=f'{{"messages": "{SECRET}').status_code == 400
            asked = {**question, **LONG, "stream": True}
            with client.stream("POST", chat, json=asked) as stream:
                lines = stream.iter_lines()
                next(lines)
                process.send_signal(signal.SIGTERM)
                assert "shutting_down" in "".join(lines)
        printed = said + ended(process, signal.SIGTERM)
    assert SECRET not in printed
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this system has no Unix sockets")
def test_a_server_on_a_socket_is_used_through_it(tmp_path: Path) -> None:
    """Under any name, for no page can reach it; the socket goes when the server ends."""
    path = tmp_path / "socket"
    with serving(tmp_path, "--socket", str(path)) as (process, _):
        transport = httpx2.HTTPTransport(uds=str(path))
        with httpx2.Client(transport=transport, base_url="http://localhost") as client:
            assert client.get("/v1/models").status_code == 200
            assert client.get("/health").json()["status"] == "ok"
        ended(process, signal.SIGINT)
    assert not path.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("key", "needs_key"), [("none", False), (SECRET, True)])
def test_a_program_learns_whether_a_key_is_needed(key: str, *, needs_key: bool) -> None:
    """From the first object; a key that was given is not in it."""
    command = [*SERVE, "--json", "--port", "0", "--key", key]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        ready = json.loads(process.stdout.readline())
        process.terminate()
    assert (ready["needs_key"], ready["key"]) == (needs_key, None)
