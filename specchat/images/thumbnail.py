"""Small pictures of images for a screen: decoded once, and the latest ones kept."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from queue import SimpleQueue

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


_one_at_a_time = threading.Lock()
_latest: OrderedDict[tuple[bytes, str], Thumbnail | str] = OrderedDict()
"""What is known of images by digest and name: for one that cannot be decoded, why."""


def thumbnail_of(image: Image) -> Thumbnail:
    """Return the thumbnail of an image; raises what `picture_of` does. From any thread.

    Images are decoded one after another: each takes a core for a moment.
    """
    key = image.digest, image.name
    with _one_at_a_time:
        found = _latest.get(key)
        if found is None:
            found = _latest[key] = _decoded(image)
        _latest.move_to_end(key)
        while len(_latest) > KEPT:
            _latest.popitem(last=False)
    if isinstance(found, str):
        raise InvalidOption(found)
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


def _decoded(image: Image) -> Thumbnail | str:
    try:
        picture = picture_of(image)
    except NotDecodedNow:
        raise
    except InvalidOption as error:
        return str(error)
    return Thumbnail(picture.width, picture.height, _small(picture))


def _small(picture: Picture) -> Picture:
    from PIL import Image as Pillow

    small = Pillow.frombytes("RGB", (picture.width, picture.height), picture.pixels)
    small.thumbnail(LARGEST)
    return Picture(*small.size, small.tobytes())
