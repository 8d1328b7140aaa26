"""Images as files have them, for tests that show some to a model."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image as Pillow

from specchat.images.image import Image


def picture(seed: int = 0, size: tuple[int, int] = (64, 64)) -> Any:
    """Return a picture of random dots, in Pillow's form."""
    width, height = size
    dots = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return Pillow.fromarray(dots)


def encoded(picture: Any, kind: str = "PNG", **options: Any) -> bytes:
    """Return the bytes of a file of a kind."""
    file = BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def image(seed: int = 0, size: tuple[int, int] = (64, 64)) -> Image:
    """Return an image of random dots, as a request has it."""
    return Image(encoded(picture(seed, size)), f"{seed}.png")
