"""The card of a race as PNG and GIF, drawn by Pillow, which only this module loads.

Pillow's own font is proportional and has Latin letters alone, so the system's monospaced font is
used where there is one. Every character stands in its cell, whatever font it comes from.
"""

import importlib.util
import io
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING
from unicodedata import bidirectional

from rich.cells import cell_len

from specchat.bench.race_scene import EDGE, EM, PAGE, Answer, Group, Part, Scene, Words
from specchat.errors import InvalidOption
from specchat.images.picture import INSTALL_PILLOW

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

STILL_SCALE, LOOP_SCALE = 2, 1
MAX_FRAMES = 240
COLOURS = 64
MARGIN = 4
"""How far chips may reach beyond an answer's sides."""

MONOSPACED = (
    ("DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf"),
    ("LiberationMono-Regular.ttf", "LiberationMono-Bold.ttf"),
    ("NotoSansMono-Regular.ttf", "NotoSansMono-Bold.ttf"),
    ("UbuntuMono-R.ttf", "UbuntuMono-B.ttf"),
    ("Menlo.ttc", "Menlo.ttc"),
    ("consola.ttf", "consolab.ttf"),
)
"""Fonts for all text, regular and bold; the first one that is installed is used."""
MORE = (
    "NotoSansCJK-Regular.ttc", "wqy-microhei.ttc", "Hiragino Sans GB.ttc", "msyh.ttc",
    "NotoSansArabic-Regular.ttf", "NotoSansHebrew-Regular.ttf", "NotoSansDevanagari-Regular.ttf",
    "DejaVuSans.ttf", "Arial Unicode.ttf", "arial.ttf", "seguisym.ttf",
)  # fmt: skip
"""Fonts for characters that it lacks."""
ABSENT = "\U0010fffe"
"""A character that no font has."""


def require_pillow(ending: str) -> None:
    """Raise InvalidOption unless Pillow is installed, which files with this ending need."""
    if importlib.util.find_spec("PIL") is None:
        raise InvalidOption(f"{ending} needs Pillow: run `{INSTALL_PILLOW}`, or name a .svg file")


def as_png(scene: Scene) -> bytes:
    """Return the end of a race as PNG."""
    image = _Painter(scene, STILL_SCALE).at(inf)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def as_gif(scene: Scene, interval: float, rest: float) -> bytes:
    """Return a race as a GIF that plays it at its own speed, a frame each `interval` or longer.

    The loop shows the result for `rest` seconds.
    """
    number = min(MAX_FRAMES, max(1, int(scene.seconds / interval)))
    times = [scene.seconds * place / number for place in range(number + 1)]
    # a GIF counts hundredths of a second
    ticks = [round(100 * time) for time in (*times, scene.seconds + rest)]
    durations = [10 * (after - before) for before, after in pairwise(ticks)]
    from PIL.Image import Dither

    palette = _Painter(scene, LOOP_SCALE).at(inf).quantize(COLOURS)
    painter = _Painter(scene, LOOP_SCALE)
    frames: Iterator[Image] = (
        painter.at(time).quantize(palette=palette, dither=Dither.NONE)
        for time in [*times[:-1], inf]
    )
    file = io.BytesIO()
    next(frames).save(file, "GIF", save_all=True, append_images=frames, duration=durations, loop=0)
    return file.getvalue()


class _Painter:
    """Paints a scene at moments that follow each other, so each chip is painted only once."""

    def __init__(self, scene: Scene, scale: int) -> None:
        """Paint what is shown from start to end."""
        self._scene, self._scale = scene, scale
        self._page, draw = self.sheet(scene.width, scene.height)
        draw.rectangle((0, 0, self._page.width - 1, self._page.height - 1), outline=EDGE)
        self._timed = list[Group]()
        for group in scene.groups:
            if group.start or group.end < inf:
                self._timed.append(group)
            else:
                self.paint(draw, group.parts)
        self._columns = [_Column(self, answer) for answer in scene.answers]

    def at(self, seconds: float) -> "Image":
        """Return the scene at a moment, none of which may precede an earlier one."""
        from PIL import ImageDraw

        image = self._page.copy()
        draw = ImageDraw.Draw(image)
        for group in self._timed:
            if group.start <= seconds < group.end or seconds == group.end == inf:
                self.paint(draw, group.parts)
        for bar in self._scene.bars:
            width = [width for time, width in bar.widths if time <= seconds][-1]
            if width:
                self.paint(draw, [bar.box._replace(width=width)])
        for column in self._columns:
            x, y = column.answer.x - MARGIN, column.answer.y
            image.paste(column.at(seconds), (self.pixels(x), self.pixels(y)))
        return image

    def pixels(self, length: float) -> int:
        """Return a length in the pixels of the picture."""
        return round(length * self._scale)

    def sheet(self, width: float, height: float) -> "tuple[Image, ImageDraw]":
        """Return an empty page."""
        from PIL import Image, ImageDraw

        image = Image.new("RGB", (self.pixels(width), self.pixels(height)), PAGE)
        return image, ImageDraw.Draw(image)

    def paint(
        self, draw: "ImageDraw", parts: Sequence[Part], shift: tuple[float, float] = (0.0, 0.0)
    ) -> None:
        """Paint parts, moved by `shift`."""
        for part in parts:
            x, y = ((at + by) * self._scale for at, by in zip(part[:2], shift, strict=True))
            if isinstance(part, Words):
                self._write(draw, part, x, y)
                continue
            width, height, radius = (
                self._scale * each for each in (part.width, part.height, part.radius)
            )
            corners = x, y, x + max(0, width - 1), y + max(0, height - 1)
            draw.rounded_rectangle(corners, radius, fill=part.fill)

    def _write(self, draw: "ImageDraw", words: Words, x: float, y: float) -> None:
        """Write a line of text, each character in the middle of its cells."""
        size = words.size * self._scale
        cell = EM * size
        x -= words.width * self._scale * words.is_right
        for piece in _pieces(words.text):
            width = cell_len(piece) * cell
            font = _font_of(piece[0], size, is_bold=words.is_bold)
            left = x + (width - font.getlength(piece)) / 2
            draw.text((left, y), piece, fill=words.fill, font=font, anchor="ls")
            x += width


class _Column:
    """An answer's visible lines, which scroll as they are written."""

    def __init__(self, painter: _Painter, answer: Answer) -> None:
        """Begin without a chip."""
        self.answer = answer
        self._painter = painter
        self._image, self._draw = painter.sheet(answer.width + 2 * MARGIN, answer.height)
        self._groups, self._scrolls = deque(answer.groups), deque(answer.scrolls)
        self._scrolled = 0.0

    def at(self, seconds: float) -> "Image":
        """Return the lines at a moment, none of which may precede an earlier one."""
        while self._groups and self._groups[0].start <= seconds:
            group = self._groups.popleft()
            while self._scrolls and self._scrolls[0][0] <= group.start:
                self._scroll(self._scrolls.popleft()[1])
            self._painter.paint(self._draw, group.parts, (MARGIN, -self._scrolled))
        return self._image

    def _scroll(self, scrolled: float) -> None:
        """Move what is painted up."""
        before, by = self._image, scrolled - self._scrolled
        self._image, self._draw = self._painter.sheet(
            self.answer.width + 2 * MARGIN, self.answer.height
        )
        self._image.paste(before, (0, -self._painter.pixels(by)))
        self._scrolled = scrolled


def _pieces(text: str) -> Iterator[str]:
    """Yield what is written as one: a character with its marks, or a run from right to left."""
    piece = ""
    for character in text:
        goes_on = cell_len(character) == 0 or (_is_reversed(piece[-1:]) and _is_reversed(character))
        if piece and not goes_on:
            yield piece
            piece = ""
        piece += character
    if piece:
        yield piece


def _is_reversed(character: str) -> bool:
    return bool(character) and bidirectional(character) in {"R", "AL", "NSM"}


@lru_cache(maxsize=4096)
def _font_of(character: str, size: float, *, is_bold: bool) -> "FreeTypeFont":
    """Return the first font that has a character."""
    fonts = _fonts(size, is_bold=is_bold)
    return next((font for font in fonts if _has(font, character)), fonts[0])


@lru_cache(maxsize=16)
def _fonts(size: float, *, is_bold: bool) -> "tuple[FreeTypeFont, ...]":
    """Return the fonts of this system, the monospaced one first, and Pillow's own."""
    from PIL import ImageFont

    found = [_opened(pair[is_bold], size) for pair in MONOSPACED]
    chosen = [font for font in found if font][:1]
    others = [font for name in MORE if (font := _opened(name, size))]
    own = ImageFont.load_default(size)
    return *chosen, *others, *([own] if isinstance(own, ImageFont.FreeTypeFont) else [])


def _opened(name: str, size: float) -> "FreeTypeFont | None":
    from PIL import ImageFont

    try:
        return ImageFont.truetype(name, size)
    except OSError:
        return None


def _has(font: "FreeTypeFont", character: str) -> bool:
    """Return whether a font has a character: what it lacks looks like what no font has."""
    drawn, absent = (font.getmask(each) for each in (character, ABSENT))
    return drawn.size != absent.size or list(drawn) != list(absent)
