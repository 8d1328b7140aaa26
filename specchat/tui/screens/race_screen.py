"""A race replayed at its original speed: both answers side by side, token by token."""

from collections.abc import Callable
from time import monotonic
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from specchat.bench.race_frame import ANSI_SHADES, frame, frame_height
from specchat.bench.race_picture import ENDINGS, INTERVAL, card_path
from specchat.bench.race_record import Race
from specchat.safe_text import harmless
from specchat.system.current_folder import current_folder
from specchat.tui.screens.dialogs import CLOSING, Dialog, LineScreen

ROWS_AROUND = 6
"""Rows of the screen that the race does not use."""
FILE_NAME = "race.svg"


class RaceScreen(Dialog[str | None]):
    """Plays a race; its result is "again" if the user requests that, else None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *CLOSING,
        Binding("space,home", "play", "Replay"),
        Binding("end", "finish", "Skip"),
        Binding("n", "dismiss('again')", "Race again"),
        Binding("ctrl+e", "save", "Save"),
    ]

    def __init__(self, race: Race, save: Callable[[str], object]) -> None:
        """Store the race; `save` is called with the name of a file to save it to."""
        super().__init__("Race")
        self._race, self._save = race, save
        self._began = monotonic()

    def content(self) -> ComposeResult:
        """Yield one widget for the whole race."""
        yield Static(id="race", markup=False)

    def on_mount(self) -> None:
        """Play the race; if animations are off, show its end."""
        self.set_interval(INTERVAL, self._draw)
        self.action_finish() if self.app.animation_level == "none" else self.action_play()

    def on_resize(self) -> None:
        """Fit the new size."""
        self.call_after_refresh(self._draw)

    def action_play(self) -> None:
        """Play the race from the start."""
        self._began = monotonic()

    def action_finish(self) -> None:
        """Skip to the end."""
        self._began = monotonic() - self._race.seconds

    def action_save(self) -> None:
        """Ask for the name of a file, whose ending says what is written."""
        endings = ", ".join(ENDINGS)
        title = f"Save this race as\nA path, from {current_folder()}; {endings}"
        screen = LineScreen(harmless(title), FILE_NAME, card_path)
        self.app.push_screen(screen, self._save_as)

    def _save_as(self, name: str | None) -> None:
        if name:
            self._save(name)

    def _draw(self) -> None:
        field = self.query_one("#race", Static)
        width = field.size.width
        if not width:  # not laid out yet
            return
        seconds = min(monotonic() - self._began, self._race.seconds)
        height = min(frame_height(self._race, width), self.app.size.height - ROWS_AROUND)
        colours = ANSI_SHADES if self.app.theme.startswith("ansi") else None
        drawn = Text("\n").join(frame(self._race, seconds, width, height, colours))
        if drawn != field.content:
            field.update(drawn)
