"""Small pictures of images for a screen: decoded once, and the latest ones kept."""

import threading
from collections import OrderedDict
from dataclasses import dataclass

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
_latest: OrderedDict[bytes, Thumbnail] = OrderedDict()


def thumbnail_of(image: Image) -> Thumbnail:
    """Return the thumbnail of an image; raises what `picture_of` does. From any thread.

    Images are decoded one after another: each takes a core for a moment.
    """
    with _one_at_a_time:
        found = _latest.get(image.digest)
        if found is None:
            picture = picture_of(image)
            found = Thumbnail(picture.width, picture.height, _small(picture))
            _latest[image.digest] = found
        _latest.move_to_end(image.digest)
        while len(_latest) > KEPT:
            _latest.popitem(last=False)
    return found


def _small(picture: Picture) -> Picture:
    from PIL import Image as Pillow

    small = Pillow.frombytes("RGB", (picture.width, picture.height), picture.pixels)
    small.thumbnail(LARGEST)
    return Picture(*small.size, small.tobytes())
