"""`specchat serve`: serve a pair to other programs over HTTP."""

import argparse
from contextlib import ExitStack
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

from specchat import drafter_registry
from specchat.cli.model_arguments import (
    chosen_pair,
    generate_options,
    loading_of,
    show_loading,
    with_known_think,
)
from specchat.cli.serve_log import JsonLog, PlainLog
from specchat.cli.serve_picture import Line, Style
from specchat.cli.serve_screen import ServeScreen, can_draw
from specchat.cli.terminal import DONE, say
from specchat.hub.offline import is_offline
from specchat.options.declarations import ServerOptions
from specchat.server.client_setups import SETUPS, Served, served_at, setup_text
from specchat.server.packages import require_packages
from specchat.sharing.process_engine import ProcessEngine
from specchat.sharing.shared_engine import SharedEngine

if TYPE_CHECKING:
    from specchat.server.port import Port
    from specchat.server.service import Service

NO_TURNS = (
    "answers are given one after the other: the texts of this model cannot be set aside here"
    " (a sliding window, or --cache-ram 0)"
)


def run(arguments: argparse.Namespace) -> int:
    """Load the pair and serve it until Ctrl+C."""
    require_packages()
    options = ServerOptions(**arguments.settings.values(ServerOptions))
    pair = chosen_pair(arguments)
    loading = loading_of(arguments, pair, arguments.drafter)
    from specchat.server.port import Port
    from specchat.server.service import Service

    with ExitStack() as stack:
        port = stack.enter_context(Port(options))
        if arguments.client:  # before the pair is loaded for nothing
            setup_text(arguments.client, Served(port.address, port.key, pair.name, 0))
        loaded = ProcessEngine(loading, show_loading)  # here, where Ctrl+C ends it
        engine = SharedEngine(partial(ProcessEngine, loading), engine=loaded)
        stack.callback(engine.close)
        defaults = with_known_think(generate_options(arguments, pair), engine.facts, arguments)
        service = Service(
            engine, loading.target, pair.name, defaults, is_strict=options.strict_model
        )
        for notice in engine.facts.notices:
            say(notice)
        if not engine.facts.takes_turns:
            say(NO_TURNS)
        reporter = _reporter(arguments, service, port)
        stack.enter_context(reporter)
        # who sends texts does not wait for it
        Thread(target=service.image_setup.run, args=[reporter.notice], daemon=True).start()
        port.serve(service)
    return DONE


def _reporter(
    arguments: argparse.Namespace, service: "Service", port: "Port"
) -> JsonLog | PlainLog | ServeScreen:
    """Return the reporter that announces the ready server and then reports its requests."""
    served = served_at(port.address, port.key, service)
    setup = setup_text(arguments.client, served) if arguments.client else ""
    if arguments.json:
        return JsonLog(service, _ready(served, service, setup, port.made_key), port.end)
    header = _header(served, service, port.made_key)
    if not can_draw():
        return PlainLog(service, header, setup)

    def text_of(client: str) -> str:  # whether images are read may not have been known before
        return setup_text(client, served_at(port.address, port.key, service))

    setups = {client: partial(text_of, client) for client in SETUPS if not served.is_socket}
    return ServeScreen(service, header, setup, setups, port.end)


def _ready(served: Served, service: "Service", setup: str, made_key: str) -> dict[str, Any]:
    """Return what a program that started the server must know."""
    facts = service.facts
    return {
        "address": served.address,
        "base_url": served.base_url,
        "needs_key": bool(served.key),
        "key": made_key or None,
        "models": list(service.model_names()),
        "target": facts.target,
        "draft": facts.draft,
        "context": facts.context,
        "speculation_off_reason": facts.speculation_off_reason,
        **({"setup": setup} if setup else {}),
    }


def _header(served: Served, service: "Service", made_key: str) -> list[Line]:
    """Return what is served and where; a key that was given is not shown, as this may be a log."""
    facts = service.facts
    context = f"context {facts.context:,}"
    parts = [
        served.model,
        _drafts(service),
        context,
        facts.gpu or "CPU",
        *["offline"] * is_offline(),
    ]
    short = [served.model, context]
    key = f"key {made_key}" if made_key else "with the given key"
    key = key if served.key else "no key needed"
    address = served.address if served.is_socket else served.base_url
    return [
        Line(
            "   ".join(["specchat serve", *parts]),
            Style.BOLD,
            ["   ".join(parts), "   ".join(short)],
        ),
        Line(f"{address}   {key}", shorter=[address]),
    ]


def _drafts(service: "Service") -> str:
    """Return the target's drafter in words."""
    facts, drafter = service.facts, service.defaults.get("drafter", drafter_registry.AUTO)
    if drafter == drafter_registry.PLAIN or facts.speculation_off_reason:
        return "plain decoding"
    loaded = "" if facts.draft_off_reason else facts.draft_kind
    if drafter == drafter_registry.AUTO:
        drafter = drafter_registry.automatic(loaded)
    return " + ".join(origin.label for origin in drafter_registry.DRAFTERS[drafter].origins)
