"""Clients of `specchat serve` that ask, edit and leave, and what its processes hold."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Self
from urllib.parse import urlsplit

import psutil

from scripts.support.server_process import ServerProcess

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
SECONDS = 120.0
MOST_LEFT_S = 0.4
"""The longest time after which a client leaves: some have not begun by then, some have ended."""
SETTLE_SECONDS = 20.0
MEBIBYTE = 2**20
QUESTIONS = (
    "What is specchat?",
    "How do I pull a model?",
    "What does acceptance rate mean?",
    "Say it in other words.",
    "Which drafters are there?",
)
DRAFTERS = ("auto", "none", "suffix", "model")


class Failed(Exception):
    """Raised when the server does what it should not."""


@dataclass(frozen=True)
class Outcome:
    """How a request ended: answered, refused, failed (the engine died) or left by its client."""

    kind: str
    text: str = ""


def ask(
    address: str, fields: dict[str, Any], *, path: str = CHAT, leave_after: float | None = None
) -> Outcome:
    """Send a request and read its reply, unless the client leaves before; Failed if it is wrong."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=SECONDS)
    try:
        connection.request("POST", path, json.dumps(fields), {"Content-Type": "application/json"})
        if leave_after is not None:
            _hang_up(connection, leave_after)
            return Outcome("left")
        reply = connection.getresponse()
        return _outcome(reply, reply.read())
    except (OSError, HTTPException) as error:
        raise Failed(f"no whole reply: {error!r}") from None
    finally:
        connection.close()


def _hang_up(connection: HTTPConnection, seconds: float) -> None:
    """Read for some time, and close the connection whatever comes."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        connection.sock.settimeout(left)
        with suppress(TimeoutError):
            if not connection.sock.recv(65536):
                return


def _outcome(reply: HTTPResponse, body: bytes) -> Outcome:
    if reply.headers.get_content_type() == "text/event-stream":
        return _outcome_of_stream(body)
    found = json.loads(body)
    if reply.status == 503 and found["error"]["code"] == "queue_full":
        if not reply.headers["Retry-After"]:
            raise Failed(f"503 without Retry-After: {found}")
        return Outcome("refused")
    if "engine process" in str(found.get("error")):
        return Outcome("failed")
    if reply.status != 200 or found.get("error"):
        raise Failed(f"{reply.status}: {found}")
    text = str(found["choices"][0]["message"]["content"]) if "choices" in found else ""
    return Outcome("answered", text)


def _outcome_of_stream(body: bytes) -> Outcome:
    lines = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
    events = [json.loads(line) for line in lines if line != b"[DONE]"]
    errors = [each for each in events if each.get("error") or each.get("type") == "error"]
    if len(errors) > 1:
        raise Failed(f"several errors in one stream: {errors}")
    if errors and "engine process" in str(errors):
        return Outcome("failed")
    if errors:
        raise Failed(f"an error in a stream: {errors}")
    choices = [choice for each in events for choice in each.get("choices", ())]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    is_whole = lines[-1] == b"[DONE]" or events[-1]["type"] in {
        "message_stop",
        "response.completed",
        "response.incomplete",
    }
    if not is_whole:
        raise Failed(f"a stream without an end: {body[-300:]!r}")
    return Outcome("answered", text)


@dataclass(frozen=True)
class Held:
    """What the server's processes hold."""

    server_mib: float
    engine_mib: float
    files: int
    engine_files: int
    threads: int
    engine_threads: int
    connections: int
    processes: int


def held(server: ServerProcess) -> Held:
    """Return what the server's processes hold, once it has an engine."""
    process = psutil.Process(server.process.pid)
    deadline = time.monotonic() + SETTLE_SECONDS
    while (engine := server.engine) is None:
        if time.monotonic() > deadline:
            raise Failed("no engine")
        time.sleep(0.05)
    return Held(
        process.memory_full_info().uss / MEBIBYTE,
        engine.memory_full_info().uss / MEBIBYTE,
        process.num_fds(),
        engine.num_fds(),
        process.num_threads(),
        engine.num_threads(),
        len(process.net_connections()),
        len(process.children()),
    )


def settled(server: ServerProcess) -> Held:
    """Return what the server holds once nothing runs in it: its counts have come to a rest."""
    before, deadline = held(server), time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        time.sleep(1.0)
        after = held(server)
        if astuple(after)[2:] == astuple(before)[2:]:
            return after
        before = after
    return before


def require_no_gain(before: Held, after: Held) -> None:
    """Raise Failed if there are more files, threads, connections or processes than before."""
    gained = [
        f"{name}: {one} before, {other} now"
        for name, one, other in zip(
            Held.__annotations__, astuple(before), astuple(after), strict=True
        )
        if not name.endswith("mib") and other > one
    ]
    if gained:
        raise Failed("; ".join(gained))


class Listener:
    """A client that hears streams, one after the other, until it is left or the server ends."""

    def __init__(self, address: str) -> None:
        """Begin with the first one."""
        self.longest_pause = 0.0
        """The longest time between two tokens."""
        self.has_heard_why = False
        """Whether the last stream ended with an error."""
        self.faults: list[str] = []
        self._address, self._is_over = urlsplit(address).netloc, False
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._hear)

    def __enter__(self) -> Self:
        """Begin, and wait for the first token."""
        self._thread.start()
        self._has_begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the stream."""
        self._is_over = True
        self._thread.join()

    def _hear(self) -> None:
        while not (self._is_over or self.has_heard_why or self.faults):
            try:
                self._hear_one()
            except (OSError, HTTPException, ValueError) as error:
                self.faults.append(f"a stream broke: {error!r}")
        self._has_begun.set()

    def _hear_one(self) -> None:
        connection = HTTPConnection(self._address, timeout=SECONDS)
        asked = {"role": "user", "content": QUESTIONS[0]}
        fields = {"messages": [asked], "stream": True, "ignore_eos": True, "max_tokens": 1000}
        connection.request("POST", CHAT, json.dumps(fields), {"Content-Type": "application/json"})
        latest = 0.0
        for line in connection.getresponse():
            if self._is_over:
                break
            if not line.startswith(b"data: {"):
                continue
            self.has_heard_why = "error" in json.loads(line[6:])
            if latest:
                self.longest_pause = max(self.longest_pause, time.monotonic() - latest)
                self._has_begun.set()
            latest = time.monotonic()
        connection.close()


Make = Callable[[random.Random], tuple[str, dict[str, Any], float | None]]
"""Makes a request: its path, its fields, and when its client leaves."""


@dataclass
class Crowd:
    """Clients at work, how their requests ended, and what went wrong."""

    is_over: threading.Event = field(default_factory=threading.Event)
    ended: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def require_none_failed(self) -> None:
        """Raise Failed with the first fault."""
        if self.faults:
            raise Failed(self.faults[0])

    def work(self, address: str, draw: random.Random, make: Make) -> None:
        """Send requests one after the other."""
        while not self.is_over.is_set() and not self.faults:
            path, fields, leave_after = make(draw)
            try:
                found = ask(address, fields, path=path, leave_after=leave_after)
            except Failed as fault:
                self.faults.append(f"{path} {str(fields)[:200]}: {fault}")
                return
            self.ended[found.kind] += 1
            if found.kind == "refused":
                time.sleep(0.05)


@contextmanager
def clients(server: ServerProcess, count: int, seed: int, make: Make) -> Iterator[Crowd]:
    """Let clients work until the block ends, then wait for their last replies."""
    crowd = Crowd()
    threads = [
        threading.Thread(
            target=crowd.work, args=(server.address, random.Random(f"{seed} {number}"), make)
        )
        for number in range(count)
    ]
    for each in threads:
        each.start()
    try:
        yield crowd
    finally:
        crowd.is_over.set()
        for each in threads:
            each.join()
    crowd.require_none_failed()


class Talk:
    """A client's conversations, as a chat has them: they grow, and questions are edited."""

    def __init__(self, tokens: int = 48) -> None:
        """Begin with none; answers have at most that many tokens."""
        self.messages: dict[int, list[dict[str, str]]] = {}
        self._tokens = tokens

    def request(self, draw: random.Random) -> tuple[str, dict[str, Any], float | None]:
        """Return the next request, by any API; one of six is left before its reply is whole."""
        known = self.messages.setdefault(draw.randrange(3), [])
        if len(known) > 8 or draw.random() < 0.1:
            known.clear()
        if known and draw.random() < 0.2:
            del known[draw.randrange(0, len(known), 2) :]  # an edited question
        known.append({"role": "user", "content": draw.choice(QUESTIONS)})
        conversation = [*known]
        known.append({"role": "assistant", "content": draw.choice(QUESTIONS)})
        leave_after = draw.random() * MOST_LEFT_S if draw.random() < 1 / 6 else None
        fields: dict[str, Any] = {
            "temperature": draw.choice((0, 0.8)),
            "drafter": draw.choice(DRAFTERS),
            "stream": draw.random() < 0.6,
        }
        path = draw.choice((CHAT, CHAT, RESPONSES, MESSAGES))
        if path == RESPONSES:
            return (
                path,
                {**fields, "input": conversation, "max_output_tokens": max(16, self._tokens)},
                leave_after,
            )
        return path, {**fields, "messages": conversation, "max_tokens": self._tokens}, leave_after
