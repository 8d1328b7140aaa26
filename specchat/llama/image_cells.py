"""Images in a text: each of their cells is a token below zero, made from what the image is.

So texts with images are compared, parked and kept on disk as texts are. What a context needs to
read an image is found by its first token, for as long as a prompt has it.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from specchat.errors import InvalidOption
from specchat.llama.hidden_states import HiddenStates

HIGHEST, BITS = -2, 30
"""The ids of cells: -1 is llama.cpp's id of no token, and all fit in 32 bits."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ImageCells:
    """The cells of an image, or of a part that the projector cuts a large one into.

    There is one of `ids` for each. `places` are their positions in a text that has none before
    them, shape (4, cells), for a model that has them in height and width; `moved` says which of the
    four rows grow with the text before. Unless it `is_causal`, each cell attends to all of them.
    """

    ids: tuple[int, ...]
    num_positions: int
    places: NDArray[np.int32] | None
    moved: NDArray[np.int32]
    is_causal: bool
    encode: Callable[[], HiddenStates]
    """Returns what a context reads in place of tokens, (cells, width); it takes long."""

    def placed(self, first: int, start: int, count: int) -> list[int]:
        """Return the positions of `count` cells from `start` on, by rows, after `first` others."""
        if self.places is None:
            return list(range(first + start, first + start + count))
        rows = self.places[:, start : start + count] + first * self.moved[:, np.newaxis]
        cells: list[int] = rows.ravel().tolist()
        return cells


@dataclass(frozen=True, slots=True)
class ImageTokens:
    """An image in a prompt: tokens around it, and its cells, which contexts find while this lives.

    A large one may be cut into parts, with tokens between them. A draft model's own of the same
    image are `beside` them, and live as long. A `notice` says what the user should know.
    """

    tokens: list[int]
    cells: tuple[ImageCells, ...]
    beside: "ImageTokens | None" = None
    notice: str = ""


ImageIndex: TypeAlias = "WeakValueDictionary[int, ImageCells]"
"""The images that the prompts of a model have, by the first ids of their cells."""


def ids_of(identity: bytes, count: int) -> tuple[int, ...]:
    """Return the ids of an image's cells, made from all that it depends on."""
    words = np.frombuffer(hashlib.shake_256(identity).digest(4 * count), "<u4").astype(np.int64)
    return tuple((HIGHEST - (words & ((1 << BITS) - 1))).tolist())


def image_at(images: ImageIndex, tokens: Sequence[int], place: int) -> ImageCells:
    """Return the image that begins at a place of a text.

    Raises InvalidOption if it is unknown, or if the text has a part of it alone.
    """
    cells = images.get(tokens[place])
    if cells is None or tuple(tokens[place : place + len(cells.ids)]) != cells.ids:
        raise InvalidOption("the text has a part of an image, or one that is not known any more")
    return cells


def text_length(tokens: Sequence[int], start: int, most: int) -> int:
    """Return how many tokens from `start` on are text, up to `most`."""
    part = tokens[start : start + most]
    if not part or min(part) >= 0:
        return len(part)
    return next(index for index, token in enumerate(part) if token < 0)


def without_part(images: ImageIndex, tokens: Sequence[int], length: int) -> int:
    """Return how many of the first `length` tokens end with a whole image, or with text."""
    if not 0 < length < len(tokens) or tokens[length - 1] >= 0 or tokens[length] >= 0:
        return length
    place = length - 1
    while place >= 0 and tokens[place] < 0:
        if cells := images.get(tokens[place]):
            return length if place + len(cells.ids) <= length else place
        place -= 1
    return place + 1


def cells_left(images: ImageIndex, tokens: Sequence[int], place: int) -> int:
    """Return how many cells from a place on belong to the image there, 1 for an unknown one."""
    first = place
    while first >= 0 and tokens[first] < 0:
        if cells := images.get(tokens[first]):
            return max(1, first + len(cells.ids) - place)
        first -= 1
    return 1
