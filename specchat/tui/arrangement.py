"""The arrangement of the main screen: what lies beside the chat, what over it, and what nowhere."""

from textual.app import App
from textual.geometry import Size
from textual.widgets import Static

from specchat.tui.widgets.panel import Panel
from specchat.tui.widgets.sidebar import Sidebar
from specchat.tui.widgets.strip import Strip
from specchat.tui.widgets.transcript import Transcript

WIDE_FOR_LIST, WIDE_FOR_PANEL = 80, 140
"""Screen widths from which the list of conversations and the panel lie beside the chat; below, they
take its place, and the strip has the most important figures."""
FEW_ROWS = 24
"""Screens with fewer rows have none to spare for an empty one."""
LIST_WIDTH = 32
"""Columns that the list takes, as in the style sheet."""


class Arrangement:
    """Places the list of conversations, the panel, the strip and the status row."""

    def __init__(self, app: App[None], *, wants_panel: bool) -> None:
        """Start before the size of the screen is known."""
        self.wants_panel = wants_panel
        """Whether the panel lies beside the chat where there is room."""
        self.size = Size()
        """The size of the terminal; a resize brings it before the app knows it."""
        self._app = app
        self._opens_panel = False
        """Whether the panel lies over the chat where there is no room beside it."""

    def fit(self, size: Size) -> None:
        """Follow the terminal's size."""
        self.size = size
        self.place_status(self._app.query_one("#status", Static))
        self._app.query_one(Sidebar).set_class(size.width < WIDE_FOR_LIST, "-over")
        self.place()

    def place(self) -> None:
        """Show the panel beside the chat, or else the strip, and the panel over it if opened.

        Without messages there is no strip, and room for all lines of the hint.
        """
        has_room, panel = self._has_room, self._app.query_one(Panel)
        self._opens_panel = self._opens_panel and not has_room
        panel.set_class(not has_room, "-over")
        panel.display = self.wants_panel if has_room else self._opens_panel
        has_messages = self._app.query_one(Transcript).display
        self._app.query_one("#desk").set_class(not has_messages, "-start")
        self._app.query_one(Strip).display = has_messages and not (has_room and self.wants_panel)

    def place_status(self, line: Static) -> None:
        """Leave the status row out where it is empty and rows are few; elsewhere nothing moves."""
        line.display = bool(line.content) or self.size.height >= FEW_ROWS

    def toggle_panel(self) -> None:
        """Show or hide the panel; over the chat it replaces the list of conversations."""
        shows = not self._app.query_one(Panel).display
        if self._has_room:
            self.wants_panel = shows
        else:
            self._opens_panel = shows
            sidebar = self._app.query_one(Sidebar)
            sidebar.display = sidebar.display and not shows
        self.place()

    def toggle_list(self) -> None:
        """Show or hide the list of conversations, which replaces a panel over the chat."""
        sidebar = self._app.query_one(Sidebar)
        sidebar.display = not sidebar.display
        self._opens_panel = False
        self.place()

    @property
    def _has_room(self) -> bool:
        """Whether the panel has room beside the chat."""
        taken = LIST_WIDTH if self._app.query_one(Sidebar).display else 0
        return self.size.width - taken >= WIDE_FOR_PANEL
