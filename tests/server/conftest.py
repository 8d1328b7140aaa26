"""A server on loopback with the demo pair, in this process: tests talk to it over real sockets."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import Vocabulary, write_projector
from specchat import Engine
from specchat.catalogue.pairs import find_pair
from specchat.engine.api import Loading
from specchat.server.endpoints import make_app
from specchat.server.guard import Access
from specchat.server.running import Server, listen, run
from specchat.server.service import Service
from specchat.sharing.shared_engine import SharedEngine

SECONDS = 60
"""The longest that a test waits for something."""
LONG: dict[str, Any] = {"ignore_eos": True, "max_tokens": 1500, "temperature": 0}
"""Fields of a request whose answer takes seconds."""
Events: TypeAlias = Iterator[dict[str, Any] | None]
"""The events of a stream; None is its end mark."""
StartServer: TypeAlias = Callable[..., "Running"]


@dataclass
class Running:
    """A server that runs: where it is, and what it serves."""

    address: str
    service: Service
    client: httpx2.Client
    server: Server
    thread: threading.Thread

    @contextmanager
    def stream(self, question: str = "What is specchat?", **fields: Any) -> Iterator[Events]:
        """Open a stream and yield its events as they come."""
        messages = [{"role": "user", "content": question}]
        body = {"messages": messages, "stream": True, **fields}
        with self.client.stream("POST", "/v1/chat/completions", json=body) as reply:
            assert reply.status_code == 200
            lines = (line[6:] for line in reply.iter_lines() if line.startswith("data: "))
            yield (json.loads(line) if line != "[DONE]" else None for line in lines)

    def posted(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Post a request that must succeed; return the whole reply."""
        reply = self.client.post(path, json=body)
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found

    def named_events(
        self, path: str, body: dict[str, Any], then: Callable[[], None] | None = None
    ) -> list[dict[str, Any]]:
        """Return the events of a stream, whose names are their types; act at the first text."""
        lines: list[str] = []
        with self.client.stream("POST", path, json={**body, "stream": True}) as reply:
            assert reply.headers["content-type"].startswith("text/event-stream")
            for line in reply.iter_lines():
                lines += [line] if line and not line.startswith(":") else []
                if then is not None and re.match(r"event: .*[._]delta", line):
                    then()
                    then = None
        names = [line.removeprefix("event: ") for line in lines[::2]]
        events = [json.loads(line.removeprefix("data: ")) for line in lines[1::2]]
        assert [each["type"] for each in events] == names
        return events

    def end(self) -> None:
        """End the server and wait for it."""
        self.server.end()
        self.thread.join(60)
        assert not self.thread.is_alive()

    def chat(self, question: str = "What is specchat?", **fields: Any) -> dict[str, Any]:
        """Ask one question and return the whole reply."""
        messages = [{"role": "user", "content": question}]
        reply = self.client.post("/v1/chat/completions", json={"messages": messages, **fields})
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found


@contextmanager
def starting() -> Iterator[StartServer]:
    """Yield a function that starts a server with a pair; all end with the block.

    With a `service`, it serves that one once more, for others; `process` False keeps the engine in
    this process.
    """
    with ExitStack() as stack:

        def load(pair: str, target: Path | None, most_waiting: int, **options: Any) -> Service:
            found = find_pair(pair) if target is None else Loading(target)
            options = {"threads": 1, "process": True, **options}
            engine = SharedEngine(
                lambda report: Engine.load(
                    found.target, found.draft, on_progress=report, **options
                ),
                most_waiting=most_waiting,
            )
            stack.callback(engine.close)
            engine.wait_until_loaded()
            return Service(engine, found.target, pair)

        def start(
            pair: str = "demo",
            access: Access | None = None,
            most_waiting: int = 32,
            target: Path | None = None,
            service: Service | None = None,
            **options: Any,
        ) -> Running:
            service = service or load(pair, target, most_waiting, **options)
            listening = stack.enter_context(listen("127.0.0.1", 0))
            server = Server(make_app(service, access or Access()), service.end)
            thread = threading.Thread(target=run, args=(server, listening), daemon=True)
            thread.start()
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            client = stack.enter_context(httpx2.Client(base_url=address, timeout=60))
            running = Running(address, service, client, server, thread)
            stack.callback(running.end)
            return running

        yield start


@pytest.fixture(scope="session", autouse=True)
def _no_set_up() -> Iterator[None]:
    """Make nothing for images in a clone: its own tests do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specchat.server.prompts.set_up_images", lambda _: "")
        yield


@pytest.fixture(scope="session")
def start_server() -> Iterator[StartServer]:
    """Return a function that starts a server; all end with the session."""
    with starting() as start:
        yield start


@pytest.fixture(scope="module")
def start_here() -> Iterator[StartServer]:
    """Return a function that starts a server whose engine is in this process.

    It ends with the module: an engine measures while it is idle, and would be counted beside those
    of other tests.
    """
    with starting() as start:
        yield partial(start, process=False)


@pytest.fixture(scope="session")
def demo_server(start_server: StartServer) -> Running:
    """Return a server with the demo pair, whose engine is a process of its own."""
    return start_server()


@pytest.fixture(scope="session")
def start_seer(
    image_library: None,
    tiny: WriteModel,
    start_server: StartServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> StartServer:
    """Return a function that starts a server with a tiny model that takes images."""
    del image_library
    projector = write_projector(tmp_path_factory.mktemp("projector") / "mmproj.gguf", "mlp")

    def start(**vocabulary: Any) -> Running:
        target = tiny("llama", vocabulary=Vocabulary(**vocabulary)) if vocabulary else tiny("llama")
        return start_server("seer", target=target, projector=projector, ctx=1024)

    return start


@pytest.fixture(scope="session")
def seer(start_seer: StartServer) -> Running:
    """Return such a server."""
    return start_seer()


def until(holds: Callable[[], object], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not seen: {what}"
        time.sleep(0.002)
