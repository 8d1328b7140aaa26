"""Pictures by the protocols of terminals, Kitty's and sixel, as textual-image writes them."""

from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal, NoReturn, TypeAlias

from textual.widget import Widget

from specchat.images.picture import Picture

Protocol: TypeAlias = Literal["kitty", "sixel"]
MULTIPLEXERS = ("TMUX", "STY", "ZELLIJ")
"""Variables of programs between us and the terminal, which may not pass its protocol on."""
MARKS = {
    "KITTY_WINDOW_ID": "Kitty",
    "KONSOLE_VERSION": "Konsole",
    "WEZTERM_PANE": "WezTerm",
    "ITERM_SESSION_ID": "iTerm.app",
    "ALACRITTY_WINDOW_ID": "Alacritty",
    "GHOSTTY_RESOURCES_DIR": "ghostty",
    "INSIDE_EMACS": "Emacs",
    "NVIM": "Neovim",
    "TERMINAL_EMULATOR": "JetBrains",
    "VIM_TERMINAL": "Vim",
    "VTE_VERSION": "VTE",
    "WT_SESSION": "Windows Terminal",
    "XTERM_VERSION": "xterm",
}
"""Variables of terminals, some of which are named in TERM_PROGRAM as well. All that is started from
one has them: also the next terminal."""
SIXEL_TERMINALS = frozenset({"WezTerm", "iTerm.app", "Konsole"})


def protocol_of(environment: Mapping[str, str]) -> Protocol | None:
    """Return the protocol that a terminal has; None for most, and where it may be another's.

    Each terminal sets TERM, but most of them as xterm does: such a one is known by its variable if
    no other terminal's is there, of which either may be the older. Asking the terminal would delay
    the first screen, and Textual would take an answer for keys. Others may have a protocol too:
    some only with a setting of theirs, or since a version.
    """
    kind, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if any(environment.get(name) for name in MULTIPLEXERS):
        return None
    if kind == "xterm-kitty" or kind.startswith("foot"):
        return "kitty" if kind == "xterm-kitty" else "sixel"
    found = {name for variable, name in MARKS.items() if environment.get(variable)}
    found |= {program} if program else set()
    if len(found) != 1 or not kind.startswith("xterm"):
        return None
    return "kitty" if found == {"Kitty"} else "sixel" if found <= SIXEL_TERMINALS else None


def is_installed() -> bool:
    """Return whether textual-image is here."""
    return find_spec("textual_image") is not None


def protocol_widget(protocol: Protocol, picture: Picture, columns: int, rows: int) -> Widget:
    """Return a widget that shows a picture in so many cells."""
    from PIL import Image as Pillow

    size = picture.width, picture.height
    widget = protocol_widgets()[protocol](Pillow.frombytes("RGB", size, picture.pixels))
    widget.styles.width, widget.styles.height = columns, rows
    return widget


@cache
def protocol_widgets() -> Mapping[Protocol, Callable[[Any], Widget]]:
    """Return textual-image's widgets, which ask the terminal nothing: Textual reads what it says.

    The size of a cell is the one that the system has, or that textual-image assumes without one.
    """
    from textual_image import _terminal

    def refuse(*_: object, **__: object) -> NoReturn:
        raise _terminal.TerminalError

    _terminal.capture_terminal_response = refuse
    from textual_image.widget import SixelImage, TGPImage

    return {"kitty": TGPImage, "sixel": SixelImage}
