"""Cells of images as tokens, and the positions of the text around them."""

from __future__ import annotations

from weakref import WeakValueDictionary

import numpy as np
import pytest

from specchat.errors import InvalidOption
from specchat.llama.image_cells import (
    ImageCells,
    ImageIndex,
    ImageTokens,
    cells_left,
    ids_of,
    image_at,
    text_length,
    without_part,
)
from specchat.llama.token_positions import Positions
from specchat.llama.vision import ReadImage


def cells(identity: bytes, count: int, num_positions: int) -> ImageCells:
    """Return an image of some cells that lie in one row."""
    return ImageCells(
        ids=ids_of(identity, count),
        num_positions=num_positions,
        places=np.stack([np.zeros(count), np.zeros(count), np.arange(count), np.zeros(count)])
        .astype(np.int32),
        moved=np.array([1, 1, 1, 0], np.int32),
        is_causal=True,
        encode=lambda: np.zeros((count, 4), np.float32),
    )  # fmt: skip


@pytest.fixture
def images() -> list[ImageCells]:
    """Return two images."""
    return [cells(b"first", 6, 3), cells(b"second", 4, 2)]


@pytest.fixture
def index(images: list[ImageCells]) -> ImageIndex:
    """Return both by their first ids."""
    return WeakValueDictionary({each.ids[0]: each for each in images})


def test_ids_are_below_minus_one_and_fit_in_32_bits() -> None:
    """The same identity gives the same ids, and another one others."""
    found = ids_of(b"x", 1000)
    assert max(found) < -1
    assert min(found) >= -(2**31)
    assert found == ids_of(b"x", 1000)
    assert found[:4] == ids_of(b"x", 4)
    assert set(found).isdisjoint(ids_of(b"y", 1000))


def test_an_image_is_never_cut(images: list[ImageCells], index: ImageIndex) -> None:
    """Neither where texts part, nor where a pass ends; two in a row are two."""
    first, second = images
    text = [5, 6, *first.ids, *second.ids, 7]
    ends = [without_part(index, text, length) for length in range(len(text) + 1)]
    assert ends == [0, 1, 2, *[2] * 5, 8, *[8] * 3, 12, 13]
    assert [text_length(text, start, 9) for start in (0, 1, 2, 12)] == [2, 1, 0, 1]
    assert [cells_left(index, text, place) for place in (2, 7, 8, 11)] == [6, 1, 4, 1]
    assert image_at(index, text, 2) is first
    assert image_at(index, text, 8) is second
    for place, part in ((3, text), (2, text[:5])):
        with pytest.raises(InvalidOption, match="a part of an image"):
            image_at(index, part, place)


def test_an_unknown_image_is_not_counted(index: ImageIndex) -> None:
    """A text from disk may have one that no prompt has shown: all of it is read again."""
    unknown = list(ids_of(b"unknown", 5))
    assert without_part(index, [5, *unknown, 6], 4) == 1


def test_positions_follow_what_images_take() -> None:
    """They are the places in the text until an image saves some; cutting forgets it."""
    positions = Positions()
    positions.note(8, 3)
    positions.note(13, 2)
    again = Positions()
    again.begin_with(positions.gaps)
    assert again.at(14) == 9
    assert [positions.at(length) for length in (0, 2, 8, 9, 13, 14)] == [0, 2, 5, 6, 8, 9]
    positions.cut(9)
    assert positions.at(14) == 11
    positions.cut(2)
    assert not positions


def test_an_image_is_gone_with_the_prompt_that_has_it() -> None:
    """Nothing but prompts and the cache of the encoder keeps it."""
    shown: list[ImageCells] = [cells(b"third", 3, 3)]
    found: ImageIndex = WeakValueDictionary({shown[0].ids[0]: shown[0]})
    assert found
    shown.clear()
    assert not found


def test_what_is_read_of_an_image_counts_its_file() -> None:
    """Its parts are encoded from it, and a file of few pixels may be large."""
    assert ReadImage(ImageTokens([1, 2], ()), 20 << 20).num_bytes > 20 << 20
