"""What all screens over the chat share: a box that a click beside it closes, and its keys."""

from typing import TypeVar

from textual.binding import Binding, BindingType
from textual.events import Click
from textual.screen import ModalScreen
from textual.widgets import Footer

CLOSING: list[BindingType] = [Binding("escape,q", "dismiss", "Close")]

Result = TypeVar("Result")


class Dialog(ModalScreen[Result]):
    """A screen over the chat; its content is in a container of the class "dialog"."""

    def on_click(self, event: Click) -> None:
        """Close it with a click beside the box."""
        is_inside = self.query_one(".dialog").region.contains(event.screen_x, event.screen_y)
        if self.is_current and not is_inside:
            self.dismiss()


def keys_line() -> Footer:
    """Return a line with the keys of a screen, which can be clicked."""
    return Footer(compact=True, show_command_palette=False)
