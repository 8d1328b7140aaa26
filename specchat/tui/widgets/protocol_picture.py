"""Pictures by the protocols of terminals, Kitty's and sixel, as textual-image writes them."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from io import StringIO
from typing import Any, Literal, TypeAlias

from textual.widget import Widget

from specchat.images.picture import Picture

Protocol: TypeAlias = Literal["kitty", "sixel"]
MULTIPLEXERS = ("TMUX", "STY", "ZELLIJ")
"""Variables of programs between us and the terminal, which may not pass its protocol on."""
CELL = 10, 20
"""Pixels of a cell where the terminal does not say, as textual-image assumes."""


def protocol_of(environment: Mapping[str, str]) -> Protocol | None:
    """Return the protocol that a terminal has; None for most, and where something is between.

    Asking the terminal would delay the first screen, and Textual would take an answer for keys.
    Others may have one too: some only with a setting of theirs, or since a version.
    """
    kind, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if any(environment.get(name) for name in MULTIPLEXERS):
        return None
    if kind == "xterm-kitty" or environment.get("KITTY_WINDOW_ID"):
        return "kitty"
    has_sixel = kind.startswith("foot") or program in {"WezTerm", "iTerm.app"}
    return "sixel" if has_sixel or environment.get("KONSOLE_VERSION") else None


def is_installed() -> bool:
    """Return whether textual-image is here."""
    return find_spec("textual_image") is not None


def protocol_widget(protocol: Protocol, picture: Picture, columns: int, rows: int) -> Widget:
    """Return a widget that shows a picture in so many cells."""
    from PIL import Image as Pillow

    size = picture.width, picture.height
    widget = _widgets()[protocol](Pillow.frombytes("RGB", size, picture.pixels))
    widget.styles.width, widget.styles.height = columns, rows
    return widget


@cache
def _widgets() -> Mapping[Protocol, Callable[[Any], Widget]]:
    """Return textual-image's widgets."""
    with _as_without_a_terminal():
        from textual_image.widget import SixelImage, TGPImage
    return {"kitty": TGPImage, "sixel": SixelImage}


@contextmanager
def _as_without_a_terminal() -> Iterator[None]:
    """Have textual-image not ask the terminal anything while it is imported, as Textual reads it.

    Without one it takes the size of a cell from the environment.
    """
    width, height = _cell_pixels()
    size = {"TEXTUAL_CELL_WIDTH": str(width), "TEXTUAL_CELL_HEIGHT": str(height)}
    before, terminal = {name: os.environ.get(name) for name in size}, sys.__stdout__
    os.environ.update(size)
    setattr(sys, "__stdout__", StringIO())  # noqa: B010  # it is declared as final
    try:
        yield
    finally:
        setattr(sys, "__stdout__", terminal)  # noqa: B010  # as above
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({name: value} if value is not None else {})


def _cell_pixels() -> tuple[int, int]:
    """Return the width and the height of a cell in pixels."""
    if sys.platform == "win32" or sys.__stderr__ is None:
        return CELL
    import fcntl
    import struct
    import termios

    with suppress(OSError, ValueError, ZeroDivisionError):
        found = fcntl.ioctl(sys.__stderr__.fileno(), termios.TIOCGWINSZ, bytes(8))
        rows, columns, width, height = struct.unpack("HHHH", found)
        if width >= columns and height >= rows:
            return width // columns, height // rows
    return CELL
