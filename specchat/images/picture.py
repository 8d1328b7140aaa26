"""The pixels of an image, decoded in a process of its own with limits of time and memory.

Anyone may send an image, and decoders of image formats have had many faults.
"""

import json
import os
import subprocess
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from specchat.errors import InvalidOption, NotDecodedNow
from specchat.images.image import Image
from specchat.network.proxies import install_command
from specchat.system.python_child import run_python

MOST_BYTES = 20 * 2**20
SECONDS = 30
READ = "PNG, JPEG, WebP, GIF"
TOO_LARGE = f"is too large: more than {MOST_BYTES >> 20} MiB"
INSTALL_PILLOW = install_command("pillow")


@dataclass(frozen=True, slots=True)
class Picture:
    """Pixels: three bytes each, red, green and blue, row by row from the top."""

    width: int
    height: int
    pixels: bytes = field(repr=False)

    @property
    def num_bytes(self) -> int:
        """The memory that it takes."""
        return len(self.pixels)


def image_in(file: Path, name: str) -> Image:
    """Return the image in a file, of which it reads no more than an image may have.

    Raises InvalidOption if it cannot be read or is too large, without decoding it.
    """
    try:
        with file.open("rb") as opened:
            image = Image(opened.read(MOST_BYTES + 1), name)
    except OSError as error:
        raise InvalidOption(f"{name} cannot be read: {error.strerror}") from None
    if image.num_bytes > MOST_BYTES:
        raise InvalidOption(f"{name} {TOO_LARGE}")
    return image


def why_not_decoded() -> str:
    """Return why no image can be decoded here, "" if some can."""
    return "" if find_spec("PIL") else f"images need Pillow: run `{INSTALL_PILLOW}`"


def picture_of(image: Image) -> Picture:
    """Return an image's pixels, turned as its camera was held, on white, at most 2048 on a side.

    Raises InvalidOption, in one line, for what is not an image or is too large, and NotDecodedNow
    for what another try might decode.
    """
    if image.num_bytes > MOST_BYTES:
        raise InvalidOption(f"{image.name} {TOO_LARGE}")
    if reason := why_not_decoded():
        raise NotDecodedNow(reason)
    try:
        done = run_python("specchat.images.decoder", input=image.data, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise NotDecodedNow(f"{image.name} takes more than {SECONDS} s to decode") from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise NotDecodedNow(f"{image.name} cannot be decoded: {reason}") from None
    head, _, pixels = done.stdout.partition(b"\n")
    try:
        found = json.loads(head)
    except ValueError:
        found = {}
    if reason := found.get("error"):
        raise InvalidOption(f"{image.name} {reason}")
    width, height = found.get("width", 0), found.get("height", 0)
    if done.returncode or not width or len(pixels) != 3 * width * height:
        raise InvalidOption(f"{image.name} is damaged: the decoder of its format failed")
    return Picture(width, height, pixels)
