"""Serving the loaded pair to other programs while the chat goes on."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import threading
import tomllib
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from textual.pilot import Pilot

import scripted_chat
from scripted_chat import Script
from specchat.catalogue.pairs import find_pair
from specchat.engine.api import Loading
from specchat.options.declarations import ServerOptions
from specchat.server import packages
from specchat.server.port import Port
from specchat.tui.app import ChatApp
from specchat.tui.setup import Offer, PairChoice
from tui.driving import header_text, say, until
from tui.test_failing import demo_chat

chat = partial(scripted_chat.chat, target=find_pair("demo").target)

pytestmark = pytest.mark.anyio
SIZE = (120, 36)
ANY_PORT = ServerOptions(port=0)
ADDRESS = re.compile(r"serving (:\d+)")


def serving_demo() -> ChatApp:
    """Return the chat with the demo pair, which would be served on any port."""
    setup = demo_chat().setup
    return ChatApp(replace(setup, server=ANY_PORT))


async def loaded(pilot: Pilot[None], app: ChatApp) -> None:
    """Wait until the pair is loaded."""
    await until(pilot, lambda: app.pair_controller.facts is not None)


async def opened(pilot: Pilot[None], app: ChatApp) -> str:
    """Open the port; return its address as the header has it."""
    await loaded(pilot, app)
    await say(pilot, "/serve", wait=False)
    await until(pilot, lambda: bool(ADDRESS.search(header_text(app))))
    found = ADDRESS.search(header_text(app))
    assert found is not None
    return f"http://127.0.0.1{found[1]}"


def notices(app: ChatApp) -> str:
    """Return the notices that are shown."""
    return "\n".join(each.message for each in app.notices.latest)


async def asked(address: str, question: str, **fields: Any) -> dict[str, Any]:
    """Ask as another program does."""
    body = {"messages": [{"role": "user", "content": question}], **fields}
    async with httpx2.AsyncClient(base_url=address, timeout=60) as client:
        reply = await client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def is_refused(address: str) -> bool:
    """Return True if nothing listens at an address."""
    host, _, port = address.removeprefix("http://").partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


async def test_the_port_opens_on_the_loaded_pair_and_closes_again() -> None:
    """The chat's engine answers the clients meanwhile, and is the chat's alone afterwards."""
    script = Script(["one", "two", "three"])
    app = chat(script, server=ANY_PORT)
    async with app.run_test(size=SIZE) as pilot:
        address = await opened(pilot, app)
        assert f"Serving scripted at {address}/v1. No key is needed." in notices(app)
        reply = await asked(address, "From outside")
        assert reply["choices"][0]["message"]["content"] == "one"
        assert reply["model"] == "scripted"
        await say(pilot, "From inside")
        assert app.conversations.branch[-1].text == "two"
        await say(pilot, "/serve", wait=False)
        await until(pilot, lambda: "serving" not in header_text(app))
        await until(pilot, lambda: is_refused(address))
        assert f"{address} is closed." in notices(app)
        await say(pilot, "Alone again")
        assert app.conversations.branch[-1].text == "three"
    assert (script.num_loads, script.num_closed) == (1, 1)


@pytest.mark.slow
async def test_a_port_that_is_wanted_early_opens_once_the_pair_is_loaded() -> None:
    """Asking twice meanwhile opens one port."""
    script = Script(["one"], load_hold=threading.Event())
    app = chat(script, server=ANY_PORT)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "/serve", wait=False)
        await say(pilot, "/serve", wait=False)
        await until(pilot, lambda: "once the model is loaded" in notices(app))
        assert script.load_hold is not None
        script.load_hold.set()
        await until(pilot, lambda: app.state.serving.is_open)


@pytest.mark.slow
async def test_a_clients_set_up_is_copied() -> None:
    """With the real address; the notice says where it goes."""
    app = chat(Script(["one"]), server=ANY_PORT)
    async with app.run_test(size=SIZE) as pilot:
        await loaded(pilot, app)
        await say(pilot, "/serve codex", wait=False)
        await until(pilot, lambda: "Nothing is served now." in notices(app))
        address = await opened(pilot, app)
        await say(pilot, "/serve codex", wait=False)
        await until(pilot, lambda: "Copied the set-up. Codex: at the top of" in notices(app))
        config = tomllib.loads(app.clipboard)
        assert config["model_providers"]["specchat"]["base_url"] == f"{address}/v1"
        await say(pilot, "/serve nobody", wait=False)
        await until(pilot, lambda: "/serve does not know nobody" in notices(app))
        assert app.state.serving.is_open


async def test_a_port_can_be_opened_during_an_answer() -> None:
    """The answer is not disturbed."""
    script = Script(["one two three four"], hold=threading.Event())
    app = chat(script, server=ANY_PORT)
    async with app.run_test(size=SIZE) as pilot:
        await loaded(pilot, app)
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: bool(script.asked))
        await say(pilot, "/serve", wait=False)
        await until(pilot, lambda: app.state.serving.is_open)
        assert app.answers.current is not None
        assert script.hold is not None
        script.hold.set()
        await until(pilot, lambda: app.answers.current is None)
        assert app.conversations.branch[-1].text == "one two three four"


async def test_requests_in_progress_are_counted_in_the_header() -> None:
    """They are there while they are answered; a chat's question waits for its turn."""
    script = Script(["one two three four", "five"], hold=threading.Event())
    app = chat(script, server=ANY_PORT)
    async with app.run_test(size=SIZE) as pilot:
        address = await opened(pilot, app)
        reply = asyncio.create_task(asked(address, "From outside"))
        await until(pilot, lambda: "1 live" in header_text(app))
        await say(pilot, "From inside", wait=False)
        await until(pilot, lambda: app.answers.current is not None)
        assert len(script.asked) == 1
        assert script.hold is not None
        script.hold.set()
        await until(pilot, lambda: app.answers.current is None)
        assert (await reply)["choices"][0]["message"]["content"] == "one two three four"
        assert app.conversations.branch[-1].text == "five"
        await until(pilot, lambda: "live" not in header_text(app))


@pytest.mark.slow
async def test_a_stopped_answer_of_the_chat_leaves_the_others_alone() -> None:
    """Esc stops the chat's own answer before its turn has come."""
    script = Script(["one two three four", "never"], hold=threading.Event())
    app = chat(script, server=ANY_PORT)
    async with app.run_test(size=SIZE) as pilot:
        address = await opened(pilot, app)
        reply = asyncio.create_task(asked(address, "From outside"))
        await until(pilot, lambda: "1 live" in header_text(app))
        await say(pilot, "From inside", wait=False)
        await until(pilot, lambda: app.answers.current is not None)
        await pilot.press("escape")
        assert script.hold is not None
        script.hold.set()
        await until(pilot, lambda: app.answers.current is None)
        assert (await reply)["choices"][0]["message"]["content"] == "one two three four"
        assert app.conversations.branch[-1].finish == "cancelled"
        assert len(script.asked) == 1


@pytest.mark.slow
@pytest.mark.parametrize("way", ["/unload", "/models other"])
async def test_the_port_goes_with_the_pair(way: str) -> None:
    """A notice says so; nothing listens there any more, and the engine has ended."""
    other = PairChoice("other", "another", Loading(Path("other.gguf")))
    offers = [Offer("other", "another", choose=lambda: other)]
    script = Script(["one"])
    app = chat(script, server=ANY_PORT, offers=lambda: offers)
    async with app.run_test(size=SIZE) as pilot:
        address = await opened(pilot, app)
        await say(pilot, way, wait=False)
        await until(pilot, lambda: "serving" not in header_text(app))
        assert f"{address} is closed." in notices(app)
        assert is_refused(address)
        await until(pilot, lambda: script.num_closed == 1)
        assert await opened(pilot, app) if way != "/unload" else True


@pytest.mark.slow
async def test_leaving_the_chat_closes_the_port() -> None:
    """The engine ends too."""
    script = Script(["one"])
    app = chat(script, server=ANY_PORT)
    async with app.run_test(size=SIZE) as pilot:
        address = await opened(pilot, app)
    assert is_refused(address)
    assert script.num_closed == 1


@pytest.mark.slow
async def test_a_port_in_use_is_a_notice() -> None:
    """The chat goes on, and the port can be opened later."""
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        app = chat(Script(["one"]), server=ServerOptions(port=port))
        async with app.run_test(size=SIZE) as pilot:
            await loaded(pilot, app)
            await say(pilot, "/serve", wait=False)
            await until(pilot, lambda: f"cannot listen on 127.0.0.1:{port}" in notices(app))
            await say(pilot, "Still there?")
            assert app.conversations.branch[-1].text == "one"
            other.close()
            assert await opened(pilot, app) == f"http://127.0.0.1:{port}"


async def test_another_host_needs_a_key() -> None:
    """As on the command line."""
    app = chat(Script(), server=ServerOptions(host="0.0.0.0", port=0))  # noqa: S104
    async with app.run_test(size=SIZE) as pilot:
        await loaded(pilot, app)
        await say(pilot, "/serve", wait=False)
        await until(pilot, lambda: "lets other machines in" in notices(app))
        assert not app.state.serving.is_open


@pytest.mark.slow
async def test_a_server_that_is_not_installed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install."""
    monkeypatch.setattr(packages, "NEEDED", ("no_such_package",))
    app = chat(Script(), server=ANY_PORT)
    async with app.run_test(size=SIZE) as pilot:
        await loaded(pilot, app)
        await say(pilot, "/serve", wait=False)
        await until(pilot, lambda: "pip install 'specchat[serve]'" in notices(app))


@pytest.mark.slow
async def test_a_client_and_the_chat_are_answered_by_one_demo_pair() -> None:
    """Both take turns with one engine, and each gets what it would get alone."""
    app = serving_demo()
    async with app.run_test(size=SIZE) as pilot:
        address = await opened(pilot, app)
        question, fields = "What is specchat?", {"temperature": 0, "max_tokens": 200}
        alone = await asked(address, question, ignore_eos=True, **fields)
        beside = asyncio.create_task(asked(address, question, ignore_eos=True, **fields))
        await until(pilot, lambda: "1 live" in header_text(app))
        await say(pilot, "Count to three.")
        assert app.conversations.branch[-1].finish == "stop"
        assert app.conversations.branch[-1].text
        assert (await beside)["choices"] == alone["choices"]


@pytest.mark.slow
async def test_an_engine_that_dies_is_loaded_again_with_the_port_open() -> None:
    """The answer fails and says so; the next one, of either side, works."""
    app = serving_demo()
    async with app.run_test(size=SIZE) as pilot:
        address = await opened(pilot, app)
        session = app.pair_controller.session
        assert session is not None
        engine = session.engine
        os.kill(engine._owned._engine._process.pid, signal.SIGKILL)  # type: ignore[union-attr]
        await until(pilot, lambda: engine.num_restarts == 1)
        await say(pilot, "Hello?")
        assert app.conversations.branch[-1].finish in {"stop", "length"}
        assert (await asked(address, "Hello?", max_tokens=5))["usage"]["completion_tokens"] == 5


async def test_a_port_that_cannot_be_served_is_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever went wrong, another program can take it."""
    addresses: list[str] = []

    def fail(port: Port, _: object) -> None:
        addresses.append(port.address)
        raise RuntimeError("a bug")

    monkeypatch.setattr(Port, "start", fail)
    app = chat(Script(["one"]), server=ANY_PORT)
    async with app.run_test(size=SIZE) as pilot:
        await loaded(pilot, app)
        await say(pilot, "/serve", wait=False)
        await until(pilot, lambda: "internal error" in notices(app))
        assert is_refused(addresses[0])
