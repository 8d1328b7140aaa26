"""Pictures in a terminal: in half blocks of colour, or by its own protocol with textual-image."""

from collections.abc import Mapping
from typing import Literal, TypeAlias, cast, get_args

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from specchat.images.picture import Picture
from specchat.tui.widgets.protocol_picture import (
    Protocol,
    is_installed,
    protocol_of,
    protocol_widget,
    protocol_widgets,
)

Way: TypeAlias = Literal["kitty", "sixel", "blocks", "off"]
BLOCKS: Way = "blocks"
NONE: Way = "off"
AUTO = "auto"
MOST_COLUMNS, MOST_ROWS = 48, 16
"""The cells of a picture: a cell is about twice as high as wide."""


def way_of(chosen: str, environment: Mapping[str, str], *, has_colours: bool) -> Way:
    """Return how a terminal of these variables shows pictures, unless the user chose a way."""
    if chosen == NONE or (chosen == AUTO and not has_colours):
        return NONE
    wanted = protocol_of(environment) if chosen == AUTO else chosen
    for protocol in get_args(Protocol):
        if wanted == protocol and is_installed():
            return cast(Way, protocol)
    return BLOCKS


def prepared(way: Way) -> Way:
    """Import what shows pictures in this way, which takes a moment; in a thread.

    Returns blocks in its place if textual-image is not the version that it is written for.
    """
    if way not in {BLOCKS, NONE}:
        try:
            protocol_widgets()
        except (ImportError, AttributeError):  # it has no other way to be kept from asking
            return BLOCKS
    return way


def picture_widget(picture: Picture, way: Way, room: int) -> Widget:
    """Return a widget that shows a picture where there is room for so many columns."""
    if way in {BLOCKS, NONE}:
        return BlockPicture(picture)
    return protocol_widget(cast(Protocol, way), picture, *cells_of(picture, room or MOST_COLUMNS))


def cells_of(picture: Picture, room: int) -> tuple[int, int]:
    """Return the columns and rows of a picture where there is room for so many columns.

    A small one has a column for each of its pixels.
    """
    columns = max(1, min(room, MOST_COLUMNS, picture.width))
    scale = min(columns / picture.width, 2 * MOST_ROWS / picture.height)
    return max(1, round(scale * picture.width)), max(1, round(scale * picture.height / 2))


class BlockPicture(Widget):
    """A picture of two pixels in each cell."""

    def __init__(self, picture: Picture) -> None:
        super().__init__()
        self._picture = picture
        self._drawn = Size(0, 0), list[Strip]()

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """Return the columns that it takes."""
        del viewport
        return cells_of(self._picture, container.width)[0]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the rows that it takes."""
        del container, viewport
        return cells_of(self._picture, width)[1]

    def render_line(self, y: int) -> Strip:
        """Return a row of cells."""
        size, strips = self._drawn
        if size != self.size:
            strips = block_strips(self._picture, self.size)
            self._drawn = self.size, strips
        return strips[y] if y < len(strips) else Strip.blank(self.size.width)


def block_strips(picture: Picture, size: Size) -> list[Strip]:
    """Return the rows of a picture of this size: the upper pixel of a cell is its foreground."""
    from PIL import Image as Pillow

    whole = Pillow.frombytes("RGB", (picture.width, picture.height), picture.pixels)
    pixels = whole.resize((size.width, 2 * size.height)).tobytes()
    row = 3 * size.width
    return [
        Strip([_cell(pixels, upper + place, row) for place in range(0, row, 3)], size.width)
        for upper in range(0, len(pixels), 2 * row)
    ]


def _cell(pixels: bytes, upper: int, row: int) -> Segment:
    above, below = (Color.from_rgb(*pixels[at : at + 3]) for at in (upper, upper + row))
    return Segment("▀", Style(color=above, bgcolor=below))
