"""The keys at the bottom of a screen."""

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding
from textual.widget import Widget
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

from specchat.tui.commands import CANCEL_EDIT, FOOTER

KEY_GAP = 2
"""Cells of padding in and after each key."""


class KeyFooter(Footer):
    """A compact footer that does not change while a dialog covers its screen.

    Textual recomposes a footer when its screen is covered, but lays out only the front screen, so
    the keys behind the dialog would disappear.
    """

    def __init__(self) -> None:
        super().__init__(compact=True, show_command_palette=False)
        self._keys: list[tuple[Binding, bool]] = []

    def compose(self) -> ComposeResult:
        """Yield the keys of what has the focus, then those of commands in their order."""
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
        """Hide keys if not all fit, rather than cutting one off: those of the focus first."""
        room = self.size.width
        for key in sorted(self.query(FooterKey), key=lambda key: _place(key) < 0):
            room -= cell_len(key.key_display) + cell_len(key.description) + KEY_GAP
            key.display = room >= 0


def _place(key: Widget) -> int:
    """Return the place of a key among others."""
    action = key.action if isinstance(key, FooterKey) else ""
    action = "stop" if action == CANCEL_EDIT else action
    return FOOTER.index(action) if action in FOOTER else -1
