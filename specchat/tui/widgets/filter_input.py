"""The line above a list in which the user types what to list; the list needs no focus."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input


def _names_enter(binding: BindingType) -> bool:
    return isinstance(binding, Binding) and binding.key == "enter"


class FilterInput(Input, inherit_bindings=False):
    """Sends Enter and the keys that move in a list to the screen, which has these actions."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.choose", "Choose"),  # first, as the footer keeps the order
        Binding("down", "screen.list('cursor_down')", show=False),
        Binding("up", "screen.list('cursor_up')", show=False),
        Binding("pagedown", "screen.list('page_down')", show=False),
        Binding("pageup", "screen.list('page_up')", show=False),
        *(each for each in Input.BINDINGS if not _names_enter(each)),
    ]

    def __init__(self, value: str = "", placeholder: str = "Type to search") -> None:
        super().__init__(value, placeholder=placeholder, compact=True, select_on_focus=False)


class SettingsLine(FilterInput):
    """The line above the settings, which Enter changes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "screen.choose", "Change")]
