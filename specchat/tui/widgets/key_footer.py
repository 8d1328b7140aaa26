"""The keys at the bottom of a screen."""

import re

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding
from textual.widget import Widget
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

from specchat.tui.commands import COMMANDS

KEY_GAP = 2
"""Cells of padding in and after each key."""


QUIT = "quit"
PLACES = {command.id: place for place, command in enumerate(COMMANDS)}


class KeyFooter(Footer):
    """A compact footer that does not change while a dialog covers its screen.

    Textual recomposes a footer when its screen is covered, but lays out only the front screen, so
    the keys behind the dialog would disappear.
    """

    def __init__(self, *, has_palette: bool = False) -> None:
        super().__init__(compact=True, show_command_palette=has_palette)
        self._keys: list[tuple[Binding, bool]] = []

    def compose(self) -> ComposeResult:
        """Yield the keys of the screen, then those of commands: F1 to F9, the others, and quit."""
        yield from sorted(super().compose(), key=_place)

    async def recompose(self) -> None:
        """Show the active keys, if they have changed and the screen is in front."""
        if not self.is_attached or self.screen is not self.app.screen:
            return
        active = self.screen.active_bindings.values()
        keys = [(each.binding, each.enabled) for each in active if each.binding.show]
        if keys != self._keys:
            self._keys = keys
            await super().recompose()
            self.mutate_reactive(KeyFooter.compact)  # releases the references to the removed keys
            self.call_after_refresh(self.on_resize)

    def on_resize(self) -> None:
        """Hide the least important keys if not all fit, rather than cutting one off."""
        palette = self.query(".-command-palette")
        room = self.size.width - sum(key.outer_size.width for key in palette)
        for key in sorted(self.query(FooterKey).exclude(".-command-palette"), key=_rank):
            room -= cell_len(key.key_display) + cell_len(key.description) + KEY_GAP
            key.display = room >= 0


def _place(key: Widget) -> tuple[int, int]:
    """Return the place of a key among others; the palette's is at the right end."""
    if not isinstance(key, FooterKey) or key.has_class("-command-palette"):
        return len(PLACES), 0
    place = PLACES.get(key.action, -1)
    function = re.fullmatch(r"f(\d+)", key.key)
    return (place, 0) if place < 0 or not function else (0, int(function[1]))


def _rank(key: FooterKey) -> int:
    """Return a key's rank by importance, the most important first: as in the table of commands.

    The key that quits stands last, but is left out last.
    """
    return -2 if key.action == QUIT else PLACES.get(key.action, -1)
