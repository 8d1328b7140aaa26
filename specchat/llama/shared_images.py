"""Images that a target and its draft model both read, each with a projector of its own."""

from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from specchat.errors import ModelWontLoad, SpecchatError
from specchat.images.image import Image
from specchat.llama.image_cells import ImageCells, ImageTokens
from specchat.llama.vision import ImageReader


class SharedImages:
    """The images of a target, and for its draft model the cells that stand for the same ones.

    An image that the draft model cannot read is left out of its text. If its projector cannot be
    used at all, no image is read with it any more, and each has a notice that says so.
    """

    def __init__(self, target: ImageReader, draft: ImageReader, most_at_once: int) -> None:
        """Join both; the draft model's passes take up to `most_at_once` tokens."""
        self._target, self._draft, self._most_at_once = target, draft, most_at_once
        self._shown: WeakValueDictionary[int, ImageCells] = WeakValueDictionary()
        self._failure = ""

    def tokens_of(self, image: Image) -> ImageTokens:
        """Return an image as the target's tokens. Raises as the target's reader does."""
        tokens = self._target.tokens_of(image)
        try:
            own = None if self._failure else self._draft.tokens_of(image)
        except ModelWontLoad as error:  # opening it again, with each image, would fail again
            own, self._failure = None, f"the draft model reads no images: {error}"
        except SpecchatError:  # this image alone
            own = None
        notices = (tokens.notice, self._failure, own.notice if own else "")
        tokens = replace(tokens, notice="; ".join(dict.fromkeys(filter(None, notices))))
        if own is None:
            return tokens
        if len(own.cells) == len(tokens.cells) and all(map(self._fits, own.cells)):
            for cells, others in zip(tokens.cells, own.cells, strict=True):
                self._shown[cells.ids[0]] = others
            return replace(tokens, beside=own)
        return tokens

    def draft_cells(self, token: int) -> Sequence[int]:
        """Return the draft model's cells for the part of an image that begins with a token."""
        cells = self._shown.get(token)
        return cells.ids if cells else ()

    def close(self) -> None:
        """Free the target's reader; the draft model frees its own."""
        self._target.close()

    def _fits(self, cells: ImageCells) -> bool:
        return cells.is_causal or len(cells.ids) <= self._most_at_once
