"""Small pictures of images for a screen: decoded once, and the latest ones kept."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import inf
from queue import SimpleQueue
from time import monotonic

from specchat.errors import InvalidOption, NotDecodedNow
from specchat.images.image import Image
from specchat.images.picture import Picture, picture_of

LARGEST = 640, 480
"""Pixels of a small picture: more than most terminals have for one."""
KEPT = 32


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """The size of an image in pixels, as a model reads it, and a small picture of it."""

    width: int
    height: int
    picture: Picture


@dataclass(frozen=True, slots=True)
class NoThumbnail:
    """Why an image cannot be decoded; only those who asked `until` then are refused for it."""

    error: InvalidOption
    until: float


_one_at_a_time = threading.Lock()
_latest: OrderedDict[tuple[bytes, str], Thumbnail | NoThumbnail] = OrderedDict()
"""What is known of images by digest and name."""


def thumbnail_of(image: Image) -> Thumbnail:
    """Return the thumbnail of an image; raises what `picture_of` does. From any thread.

    Images are decoded one after another: each takes a core for a moment.
    """
    key, asked = (image.digest, image.name), monotonic()
    with _one_at_a_time:
        found = _latest.get(key)
        if found is None or (isinstance(found, NoThumbnail) and asked > found.until):
            found = _latest[key] = _decoded(image)
        _latest.move_to_end(key)
        while len(_latest) > KEPT:
            _latest.popitem(last=False)
    if isinstance(found, NoThumbnail):
        raise type(found.error)(str(found.error))
    return found


def act_beside(act: Callable[[], object]) -> None:
    """Do something, which raises nothing, in the thread of those who show many images.

    A process ends without waiting for it.
    """
    _acts().put(act)


@cache
def _acts() -> "SimpleQueue[Callable[[], object]]":
    acts: SimpleQueue[Callable[[], object]] = SimpleQueue()

    def run() -> None:
        while True:
            acts.get()()

    threading.Thread(target=run, daemon=True, name="thumbnails").start()
    return acts


def _decoded(image: Image) -> Thumbnail | NoThumbnail:
    try:
        picture = picture_of(image)
    except NotDecodedNow as error:
        return NoThumbnail(error, monotonic())
    except InvalidOption as error:
        return NoThumbnail(error, inf)
    return Thumbnail(picture.width, picture.height, _small(picture))


def _small(picture: Picture) -> Picture:
    from PIL import Image as Pillow

    small = Pillow.frombytes("RGB", (picture.width, picture.height), picture.pixels)
    small.thumbnail(LARGEST)
    return Picture(*small.size, small.tobytes())
