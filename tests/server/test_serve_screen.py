"""The live screen and the logs of `specchat serve`, with a real server and terminal."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from unittest.mock import patch

import httpx2
import pytest

from server.conftest import Running
from specchat.cli.serve_log import JsonLog, PlainLog
from specchat.cli.serve_picture import Line
from specchat.cli.serve_screen import CLEAR, ServeScreen, can_draw
from terminal_picture import TerminalPicture

ROOT = Path(__file__).resolve().parents[2]
HEADER = [Line("specchat serve   demo"), Line("http://127.0.0.1:8642/v1   no key needed")]
SETUPS = {"openai": lambda: "# openai\nimport it\n", "codex": lambda: "# codex\nmodel = 1\n"}
SECRET = "Xyzzy"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[TerminalPicture]:
    """Return a terminal of 90 columns."""
    picture = TerminalPicture()
    resize(picture, 90, 24)
    monkeypatch.setenv("TERM", "xterm-256color")
    yield picture
    picture.close()


@contextmanager
def attached(picture: TerminalPicture) -> Iterator[None]:
    """Make a terminal this process's standard error and input."""
    with (
        os.fdopen(os.dup(picture.follower), "w", encoding="utf-8") as errors,
        os.fdopen(os.dup(picture.follower), encoding="utf-8") as keys,
        patch.object(sys, "stderr", errors),
        patch.object(sys, "stdin", keys),
    ):
        yield


@contextmanager
def drawn(
    picture: TerminalPicture,
    server: Running,
    setups: Mapping[str, Callable[[], str]] = SETUPS,
    end: Callable[[], object] = bool,
    setup: str = "",
) -> Iterator[None]:
    """Draw a server's screen on a terminal."""
    with attached(picture), ServeScreen(server.service, HEADER, setup, setups, end):
        yield


def resize(picture: TerminalPicture, columns: int, rows: int) -> None:
    """Give a terminal another size."""
    fcntl.ioctl(picture.follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@pytest.mark.slow
def test_the_screen_shows_requests_and_totals_in_place(
    demo_server: Running, terminal: TerminalPicture
) -> None:
    """Each request has one row, whatever number of times it is drawn; the last line is the keys."""
    before = demo_server.service.activity.totals().num_requests
    with drawn(terminal, demo_server, {}):
        terminal.wait_for("q end")
        for _ in range(2):
            demo_server.chat(max_tokens=30, temperature=0)
        count = before + 2
        terminal.wait_for(rf"^{count} requests ")
    lines = terminal.wait_until(lambda lines: "q end" not in lines)  # not drawn at the end
    assert lines[:2] == ["specchat serve   demo", "http://127.0.0.1:8642/v1   no key needed"]
    rows = [line for line in lines if re.match(r"  +\d+  python-h", line)]
    assert len(rows) == 2
    assert all("> 30 " in row for row in rows)
    assert sum("accepted  per step" in line for line in lines) == 1
    assert lines[-2].startswith(f"{count} requests ")


def test_a_request_in_progress_is_live(demo_server: Running, terminal: TerminalPicture) -> None:
    """It is marked and counts its tokens, and q asks again before it ends the server."""
    ended = Event()
    body = {
        "messages": [{"role": "user", "content": "What is specchat?"}],
        "stream": True, "ignore_eos": True, "max_tokens": 1500,
    }  # fmt: skip
    client, address = demo_server.client, "/v1/chat/completions"
    with drawn(terminal, demo_server, {}, ended.set):
        with client.stream("POST", address, json=body) as reply:
            lines = reply.iter_lines()
            assert next(lines)
            assert terminal.wait_for(r"^>").split()[2] == "python-h…"
            terminal.press("q")
            terminal.wait_for("q again ends 1 request in progress")
            assert not ended.is_set()
            terminal.press("q")
            assert ended.wait(60)
        terminal.wait_for(r"^x")


def test_set_ups_are_shown_by_key(demo_server: Running, terminal: TerminalPicture) -> None:
    """The text stays above the table; any other key leaves the choice."""
    ended = Event()
    with drawn(terminal, demo_server, SETUPS, ended.set, "# claude\n"):
        terminal.wait_for("# claude")
        terminal.press("c")
        terminal.wait_for("set up: 1 openai  2 codex")
        terminal.press("9")
        terminal.wait_for("c set up a client")
        terminal.press("c")
        terminal.wait_for("set up: ")
        terminal.press("2")
        terminal.wait_for("model = 1")
        terminal.wait_for("c set up a client")
        assert "# openai" not in terminal.raw
        terminal.press("q")
        assert ended.wait(60)


def test_notices_stay_above_the_table(demo_server: Running, terminal: TerminalPicture) -> None:
    """They come from other threads, while it is drawn."""
    with attached(terminal), ServeScreen(demo_server.service, HEADER, "", {}, Event().set) as it:
        terminal.wait_for("q end")
        it.notice("images cannot be read: \x1b[2Jno compiler")
        terminal.wait_for("no compiler")
        demo_server.chat(max_tokens=2)
        terminal.wait_for("per step")
    assert terminal.raw.count("images cannot be read") == 1
    assert "\x1b[2Jno compiler" not in terminal.raw


def test_another_size_is_drawn_anew(demo_server: Running, terminal: TerminalPicture) -> None:
    """All lines fit the terminal from then on."""
    with drawn(terminal, demo_server):
        demo_server.chat(max_tokens=2)
        terminal.wait_for("per step")
        resize(terminal, 60, 20)
        terminal.wait_until(lambda _: CLEAR in terminal.raw and "q end" in after(terminal, CLEAR))
        demo_server.chat(max_tokens=2)
    terminal.wait_until(lambda lines: "q end" not in lines)
    lines = re.sub(r"\x1b\[[?\d]*\w", "", after(terminal, CLEAR)).splitlines()
    assert "specchat serve   demo" in lines[0]
    assert max(map(len, lines)) < 60


def after(terminal: TerminalPicture, mark: str) -> str:
    """Return what was printed after the last mark."""
    return terminal.raw.rpartition(mark)[2]


def test_colours_follow_no_color(
    demo_server: Running, terminal: TerminalPicture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The screen is drawn all the same."""
    monkeypatch.setenv("NO_COLOR", "1")
    with drawn(terminal, demo_server):
        terminal.wait_for("q end")
    assert not re.search(r"\x1b\[[\d;]+m", terminal.raw)


@pytest.mark.parametrize("kind", ["dumb", ""])
def test_a_terminal_that_only_prints_gets_lines(
    terminal: TerminalPicture, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """So does a pipe."""
    with attached(terminal):
        assert can_draw()
        monkeypatch.setenv("TERM", kind)
        assert not can_draw()
    assert not can_draw()


def test_the_plain_log_has_a_line_for_each_request(
    demo_server: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is served, the requests, the totals; only a client's set-up goes to stdout."""
    with PlainLog(demo_server.service, HEADER, "# set-up\n"):
        demo_server.chat(f"{SECRET}?", max_tokens=7)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "# set-up\n"
    assert lines[:2] == [line.text for line in HEADER]
    assert re.fullmatch(r"\d+ python-httpx2 chat: \d+ > 7 tokens, .*, length", lines[2])
    assert " requests   " in lines[3]
    assert SECRET not in err


def test_the_json_log_has_an_object_for_each_request(
    demo_server: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has the figures of the reply, and neither question nor answer, nor an error's words."""
    with JsonLog(demo_server.service, {"key": "k"}, lambda: None):
        reply = demo_server.chat(f"{SECRET}?", max_tokens=9, model=SECRET)
        assert SECRET in str(reply["specchat"]["notices"])
        body = {"messages": [{"role": "user", "content": f"{SECRET} " * 3000}]}
        assert demo_server.client.post("/v1/chat/completions", json=body).status_code == 400
    out = capsys.readouterr().out
    ready, answered, failed = map(json.loads, out.splitlines())
    assert ready == {"event": "ready", "key": "k"}
    assert answered["timings"] == reply["timings"]
    assert answered["usage"] == reply["usage"]
    assert (answered["client"], answered["finish"]) == ("python-httpx2", "length")
    assert failed["finish"] == "failed"
    assert SECRET not in out
    assert reply["choices"][0]["message"]["content"] not in out


def test_a_closed_reader_of_the_json_log_ends_the_server(
    demo_server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is there to serve any more, and the answer in progress is not disturbed."""
    ended = Event()
    with JsonLog(demo_server.service, {}, ended.set):
        monkeypatch.setattr(sys, "stdout", Closed())
        demo_server.chat(max_tokens=2)
    assert ended.is_set()


class Closed:
    """A stream whose reader has gone."""

    def write(self, text: str) -> int:
        """Fail as a pipe does."""
        raise BrokenPipeError

    def flush(self) -> None:
        """Do nothing."""


@pytest.mark.slow
def test_the_command_serves_until_it_is_interrupted() -> None:
    """It prints its address, answers there, and ends cleanly at Ctrl+C."""
    command = [sys.executable, "-m", "specchat", "serve", "--pair", "demo", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--json", "--threads", "1", "--key", "auto", "--for", "codex"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert f'base_url = "{ready["base_url"]}"' in ready["setup"]
    with httpx2.Client(base_url=ready["address"], timeout=60) as client:
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}
        url = "/v1/chat/completions"
        assert client.post(url, json=body).status_code == 401
        given = {"authorization": f"Bearer {ready['key']}"}
        reply = client.post(url, json=body, headers=given).json()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    (record,) = map(json.loads, out.splitlines())
    assert record["timings"] == reply["timings"]
    assert (process.returncode, err) == (0, "")


@pytest.mark.slow
def test_the_command_draws_in_a_terminal_and_ends_at_q(terminal: TerminalPicture) -> None:
    """It leaves the terminal as it was."""
    before = termios.tcgetattr(terminal.follower)
    command = [sys.executable, "-m", "specchat", "serve", "--pair", "demo", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--threads", "1", "--for", "llm"], cwd=ROOT,
        stdin=terminal.follower, stdout=terminal.follower, stderr=terminal.follower,
    )  # fmt: skip
    terminal.wait_for("q end")
    assert termios.tcgetattr(terminal.follower) != before
    lines = terminal.wait_until(lambda lines: any("- model_id: specchat" in each for each in lines))
    address = next(line.split()[0] for line in lines if line.startswith("http://127.0.0.1:"))
    assert f'  api_base: "{address}"' in lines
    terminal.press("q")
    assert process.wait(timeout=30) == 0
    assert termios.tcgetattr(terminal.follower) == before
