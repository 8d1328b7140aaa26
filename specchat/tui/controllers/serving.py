"""Serving the loaded pair to other programs while the chat goes on; no Textual here."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specchat.engine.api import Engine
from specchat.options.declarations import AUTO_THINK, ServerOptions
from specchat.requests.progress import ProgressCallback
from specchat.server.packages import require_packages
from specchat.sharing.queued_engine import QueuedEngine
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.pair_controller import PairController
from specchat.tui.controllers.session import Exchange, Post, Session
from specchat.tui.setup import PairChoice

if TYPE_CHECKING:
    from specchat.server.port import Port
    from specchat.server.service import Service

CLIENT = "the chat"
"""What the chat is called among the clients that take turns."""
USUAL_HOST = "127.0.0.1"
"""Goes without saying in the header."""
POLL_SECONDS = 0.5
"""How often the number of requests in progress is looked at."""


@dataclass(slots=True)
class OpenPort:
    """A port on which the pair is served."""

    port: "Port"
    service: "Service"
    engine: QueuedEngine
    is_closing: bool = False


@dataclass(slots=True)
class Serving:
    """Opens a port on the loaded pair, and closes it when the pair goes or the user says so.

    Meanwhile a shared engine answers the chat and the clients in turn.
    """

    view: ChatView
    pair_controller: PairController
    post: Post
    options: ServerOptions
    open_port: OpenPort | None = None
    _opening_in: Session | None = None
    """The session that was asked to open the port, and has not answered yet."""
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
        if self.open_port is not None:
            self._close(self.open_port)
            return
        require_packages()
        session = pair.require_session()
        if self._opening_in is not session:
            self._opening_in = session
            session.exchange(Exchange(self._opening(pair.pair), self._opened))
        if pair.facts is None:
            self.view.notify("The port opens once the model is loaded.")

    def _opening(self, pair: PairChoice) -> Callable[[Engine], Engine]:
        """Return what opens the port, on the session's thread, where imports may take long."""

        def make(engine: Engine) -> Engine:
            from specchat.server.port import Port
            from specchat.server.service import Service

            def load(report: ProgressCallback) -> Engine:
                return self.pair_controller.load(
                    pair.loading, lambda stage, share: report(stage, share) is not False
                )

            port = Port(self.options)
            queued = QueuedEngine(
                engine,
                load,
                client=CLIENT,
                before_end=lambda: self._before_end(port),
            )
            defaults = dict(pair.options)
            if not engine.facts.takes_think(defaults.get("think", AUTO_THINK)):
                defaults["think"] = AUTO_THINK
            service = Service(queued.shared, pair.name, defaults)
            port.start(service)
            self.post(self._show, OpenPort(port, service, queued))
            return queued

        return make

    def _show(self, opened: OpenPort) -> None:
        """Show the open port."""
        self.open_port = opened
        port = opened.port
        key = f"The key is {port.key}" if port.key else "No key is needed"
        address = port.address if port.address.startswith("unix:") else f"{port.address}/v1"
        words = f"Serving {opened.service.name} at {address}. {key}. /serve closes it."
        self.view.notify(words, timeout=15)
        self._watch()

    def _opened(self, reason: str) -> None:
        self._opening_in = None
        if reason:
            self.view.report(reason)

    def _watch(self) -> None:
        """Show the number of requests in progress while the port is open."""
        if self.summary() != self._shown:
            self._shown = self.summary()
            self.view.show_state()
        if self.is_open:
            self.view.later(POLL_SECONDS, self._watch)

    def _close(self, opened: OpenPort) -> None:
        """Close the port; the session gets its engine back after the questions before that."""
        session = self.pair_controller.session
        if opened.is_closing or session is None:
            return
        opened.is_closing = True
        opened.port.end()
        session.exchange(Exchange(lambda _: opened.engine.release(), self._closed))

    def _closed(self, reason: str) -> None:
        if reason:
            self.view.report(reason)

    def _before_end(self, port: "Port") -> None:
        """Close a port before its engine goes, on the session's thread."""
        port.close()
        self.post(self._show_closed, port)

    def _show_closed(self, port: "Port") -> None:
        if self.open_port is not None and self.open_port.port is port:
            self.open_port = None
            self.view.notify(f"{port.address} is closed.")
            self._watch()
