"""Actions on the port on which other programs use the pair: open, close, set up a client."""

from dataclasses import dataclass

from specchat.errors import InvalidOption
from specchat.safe_text import in_one_line
from specchat.server.client_setups import SETUPS, served_at, setup_text
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView


@dataclass(frozen=True, slots=True)
class ServeActions:
    """Carries out the serve command."""

    view: MainView
    state: ChatState

    def act(self, client: str = "") -> None:
        """Open the port or close it; with a client's name, copy its set-up.

        Raises InvalidOption for a client that is not known.
        """
        if client:
            self._copy_setup(client.lower())
            return
        self.state.serving.toggle()

    def _copy_setup(self, client: str) -> None:
        opened = self.state.serving.open_port
        if client not in SETUPS:
            known = ", ".join(SETUPS)
            raise InvalidOption(f"/serve does not know {in_one_line(client)}: use {known}.")
        if opened is None:
            self.view.notify("Nothing is served now. /serve opens the port.", severity="warning")
        else:
            served = served_at(opened.port.address, opened.port.key, opened.service)
            text = setup_text(client, served)
            self.view.app.copy_to_clipboard(text)
            place = text.partition("\n")[0].lstrip("#/ ")
            self.view.notify(f"Copied the set-up. {place}", timeout=15)
