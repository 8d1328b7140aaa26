"""Images of questions in words; no widgets here."""

from pathlib import Path

from specchat.images.image import Image
from specchat.safe_text import in_one_line
from specchat.wording import size_text

GLYPH = "▣"


def shown_text(image: Image, width: int = 0, height: int = 0) -> str:
    """Return the name and the size of an image in a question, in pixels if that is known."""
    pixels = [pixels_text(width, height)] if width else []
    return " · ".join([name_of(image), *pixels, size_text(image.num_bytes)])


def pixels_text(width: int, height: int) -> str:
    """Return a size in pixels."""
    return f"{width} by {height} pixels"


def name_of(image: Image) -> str:
    """Return an image's name without its folder, on one line."""
    return in_one_line(Path(image.name).name or image.name)
