"""`specchat serve`: serve a pair to other programs over HTTP."""

import argparse
import importlib.util
import secrets
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from specchat.cli.model_arguments import (
    chosen_pair,
    generate_options,
    loading_of,
    show_loading,
    with_known_think,
)
from specchat.cli.terminal import DONE, say
from specchat.engine.api import ProgressCallback
from specchat.engine.remote_engine import RemoteEngine
from specchat.engine.shared_engine import SharedEngine
from specchat.errors import InvalidOption, SpecchatError
from specchat.options.declarations import ServerOptions

if TYPE_CHECKING:
    from specchat.server.guard import Access

NEEDED = ("starlette", "uvicorn", "prometheus_client")
NO_KEY, MAKE_KEY = "none", "auto"
KEY_BYTES = 24


class ServerMissing(SpecchatError):
    """Raised when the packages of the server are not installed."""


def run(arguments: argparse.Namespace) -> int:
    """Load the pair and serve it until Ctrl+C."""
    _require_packages()
    options = ServerOptions(**arguments.settings.values(ServerOptions))
    access, key = _access(options)
    pair = chosen_pair(arguments)
    loading = loading_of(arguments, pair, arguments.drafter)
    from specchat.server.endpoints import make_app
    from specchat.server.running import Server, listen, listening_on_file
    from specchat.server.running import run as run_server
    from specchat.server.service import Service

    with ExitStack() as stack:
        if options.socket is not None:
            listening = stack.enter_context(listening_on_file(options.socket.expanduser()))
            address = f"unix:{options.socket}"
        else:
            listening = listen(options.host, options.port)
            stack.callback(listening.close)
            host = f"[{options.host}]" if ":" in options.host else options.host
            address = f"http://{host}:{listening.getsockname()[1]}"

        def load(on_progress: ProgressCallback) -> RemoteEngine:
            return RemoteEngine(loading, on_progress)

        engine = SharedEngine(load, most_waiting=options.queue, on_progress=show_loading)
        stack.callback(engine.close)
        for notice in engine.facts.notices:
            say(notice)
        defaults = with_known_think(generate_options(arguments, pair), engine.facts, arguments)
        service = Service(engine, pair.name, defaults)
        server = Server(make_app(service, access), service.end)
        say(f"{address}/v1   {f'key {key}' if key else 'no key needed'}")
        run_server(server, listening)
    return DONE


def _require_packages() -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ServerMissing("the server is not installed: pip install 'specchat[serve]'")


def _access(options: ServerOptions) -> "tuple[Access, str]":
    """Return who may use the server, and its key; another host without a key is refused."""
    from specchat.server.guard import Access, is_loopback

    key = {NO_KEY: None, MAKE_KEY: secrets.token_urlsafe(KEY_BYTES)}.get(options.key, options.key)
    is_here = options.socket is not None or is_loopback(options.host)
    if not is_here and key is None:
        raise InvalidOption(
            f"--host {options.host} lets other machines in: add --key auto, which makes a key"
        )
    hosts: Any = frozenset({"", "localhost"}) if is_here else None
    return Access(hosts, frozenset(options.origin), key), key or ""
