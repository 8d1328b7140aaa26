"""Serving the loaded pair to other programs while the chat goes on; no Textual here."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

from specchat.errors import Cancelled, SpecchatError
from specchat.options.declarations import AUTO_THINK, ServerOptions
from specchat.server.packages import require_packages
from specchat.sharing.shared_engine import SharedEngine
from specchat.system.logs import log_internal_error
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.pair_controller import PairController
from specchat.tui.controllers.session import LOG, Post, Session
from specchat.tui.setup import PairChoice

if TYPE_CHECKING:
    from specchat.server.port import Port
    from specchat.server.service import Service

USUAL_HOST = "127.0.0.1"
"""Goes without saying in the header."""
POLL_SECONDS = 0.5
"""How often the number of requests in progress is looked at."""


@dataclass(slots=True)
class OpenPort:
    """A port on which the pair is served."""

    port: "Port"
    service: "Service"


@dataclass(slots=True)
class Serving:
    """Opens a port on the loaded pair, and closes it when the pair goes or the user says so.

    Programs that use the port are clients of the engine like the chat; the engine answers all in
    turn, and is loaded again if it ends by itself.
    """

    view: ChatView
    pair_controller: PairController
    post: Post
    options: ServerOptions
    open_port: OpenPort | None = None
    _opening_in: Session | None = None
    """The session on whose engine a port is being opened."""
    _shown: str = field(default="", init=False)

    @property
    def is_open(self) -> bool:
        """Whether a port is open."""
        return self.open_port is not None

    def summary(self) -> str:
        """Return where the pair is served and how many requests are in progress; "" if nowhere."""
        if self.open_port is None:
            return ""
        address = self.open_port.port.address.removeprefix("http://").removeprefix(USUAL_HOST)
        live = len(self.open_port.service.activity.live())
        return f"serving {address}" + (f", {live} live" if live else "")

    def toggle(self) -> None:
        """Open the port, or close it. Raises ServerMissing."""
        pair = self.pair_controller
        if (server := pair.pair.server) is not None:
            self.view.notify(f"{server.shown} runs the model: other programs can use it there.")
            return
        if (opened := self.open_port) is not None:
            opened.service.engine.reloads = False
            opened.service.engine.before_end = lambda: None
            Thread(target=self._close, args=(opened.port,), daemon=True).start()
            return
        require_packages()
        session = pair.require_session()
        if self._opening_in is not session:
            self._opening_in = session
            opening = Thread(target=self._open, args=(session, pair.pair), daemon=True)
            opening.start()  # the model may still be loading, and imports take long
        if pair.facts is None:
            self.view.notify("The port opens once the model is loaded.")

    def _open(self, session: Session, pair: PairChoice) -> None:
        """Open the port, on a thread of its own."""
        engine = session.engine
        try:
            opened = self._start(engine, pair)
        except Cancelled:  # the pair was switched meanwhile
            self.post(self._failed, session, "")
        except SpecchatError as error:
            self.post(self._failed, session, str(error))
        except Exception as error:  # noqa: BLE001  # a thread that ends silently is worse
            self.post(self._failed, session, log_internal_error(error, LOG))
        else:
            engine.before_end = partial(self._close, opened.port)
            engine.reloads = True
            self.post(self._show, session, opened)
            if engine.has_ended():  # perhaps before it knew of the port
                self._close(opened.port)
            opened.service.image_setup.run(partial(self.post, self.view.notify))

    def _start(self, engine: SharedEngine, pair: PairChoice) -> OpenPort:
        """Wait until the pair is loaded, and serve it; free the port if that fails."""
        from specchat.server.port import Port
        from specchat.server.service import Service

        facts = engine.wait_until_loaded()
        with ExitStack() as stack:
            port = Port(self.options)
            stack.callback(port.close)
            defaults = dict(pair.options)
            if not facts.takes_think(defaults.get("think", AUTO_THINK)):
                defaults["think"] = AUTO_THINK
            target, is_strict = pair.loading.target, self.options.strict_model
            service = Service(engine, target, pair.name, defaults, is_strict=is_strict)
            port.start(service)
            stack.pop_all()
        return OpenPort(port, service)

    def _failed(self, session: Session, reason: str) -> None:
        if self._opening_in is session:
            self._opening_in = None
            if reason:
                self.view.report(reason)

    def _show(self, session: Session, opened: OpenPort) -> None:
        """Show the open port."""
        if self._opening_in is session:
            self._opening_in = None
        self.open_port = opened
        port = opened.port
        key = "It needs your key" if port.key else "No key is needed"
        key = f"The key is {port.made_key}" if port.made_key else key
        address = port.address if port.address.startswith("unix:") else f"{port.address}/v1"
        words = f"Serving {opened.service.name} at {address}. {key}. /serve closes it."
        self.view.notify(words, timeout=15)
        self._watch()

    def _watch(self) -> None:
        """Show the number of requests in progress while the port is open."""
        if self.summary() != self._shown:
            self._shown = self.summary()
            self.view.show_state()
        if self.is_open:
            self.view.later(POLL_SECONDS, self._watch)

    def _close(self, port: "Port") -> None:
        """Close a port, on the engine's thread before the engine goes, or on one of its own."""
        port.close()
        self.post(self._show_closed, port)

    def _show_closed(self, port: "Port") -> None:
        if self.open_port is not None and self.open_port.port is port:
            self.open_port = None
            self.view.notify(f"{port.address} is closed.")
            self._watch()
