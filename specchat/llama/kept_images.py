"""What was made of images, kept for the next prompts: their pixels, and what models read of them.

The models of an engine share it, so that an image that two of them read is decoded once.
"""

import threading
from collections import OrderedDict
from typing import Protocol

from specchat.images.image import Image
from specchat.images.picture import Picture, picture_of

KEPT_BYTES = 256 * 2**20
LEAST_BYTES = 2**14
"""What each counts beside its own, so that tiny ones do not become too many."""


class Sized(Protocol):
    """Something that takes memory."""

    @property
    def num_bytes(self) -> int:
        """The memory that it takes."""


class KeptImages:
    """The latest of what was made of images, up to a number of bytes. For any thread."""

    def __init__(self) -> None:
        self._latest: OrderedDict[object, Sized] = OrderedDict()
        self._lock = threading.Lock()

    def picture(self, image: Image) -> Picture:
        """Return the pixels of an image, decoded unless they are kept. Raises InvalidOption."""
        kept = self.get(image.digest)
        if isinstance(kept, Picture):
            return kept
        picture = picture_of(image)
        self.put(image.digest, picture)
        return picture

    def get(self, key: object) -> Sized | None:
        """Return what is kept by a key, None if it is not, or not any more."""
        with self._lock:
            return self._latest.get(key)

    def put(self, key: object, made: Sized) -> None:
        """Keep something, or use it again, or know its size anew; what is oldest gives way."""
        with self._lock:
            self._latest[key] = made
            self._latest.move_to_end(key)
            while self._num_bytes > KEPT_BYTES:
                self._latest.popitem(last=False)

    @property
    def _num_bytes(self) -> int:
        return sum(LEAST_BYTES + each.num_bytes for each in self._latest.values())

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._latest.clear()
