"""Images as the memory of a text reads them: where they stand, and the passes over their cells."""

from collections.abc import Sequence
from time import perf_counter

from specchat.errors import InvalidOption
from specchat.llama.batch import Batch
from specchat.llama.hidden_states import HiddenStates
from specchat.llama.image_cells import ImageCells, cells_left, image_at, text_length, without_part
from specchat.llama.native_context import NativeContext
from specchat.llama.token_positions import Positions

STAND_IN = 0
"""The token that a head's batch has for a cell of an image, whose states say what it is."""


class ImageReading:
    """What the memory of a text needs to read images.

    A context beside a target has the target's states of their cells, and reads these as text.
    Encoding has taken `seconds` so far.
    """

    def __init__(self, native: NativeContext, sequence: int) -> None:
        """Prepare for the images of a sequence; the batch for them is made with the first one."""
        self.seconds = 0.0
        self._native, self._sequence = native, sequence
        self._index, self._is_own = native.model.images, native.reads_images
        self._batch: Batch | None = None
        self._is_placing = False

    def has(self, token: int) -> bool:
        """Return True for a cell of an image that this context reads itself."""
        return token < 0 and self._is_own

    def text_length(self, tokens: Sequence[int], start: int, most: int) -> int:
        """Return how many tokens from `start` on can be read together, up to `most`."""
        if not self._is_own:
            return min(most, len(tokens) - start)
        return text_length(tokens, start, most)

    def pass_length(self, tokens: Sequence[int], start: int, most: int) -> int:
        """Return the same for a place where an image, or the rest of one, may stand."""
        if self.has(tokens[start]):
            return min(most, cells_left(self._index, tokens, start))
        return self.text_length(tokens, start, most)

    def whole(self, tokens: Sequence[int], length: int) -> int:
        """Return how many of the first `length` tokens end with a whole image, or with text."""
        return without_part(self._index, tokens, length) if self._is_own else length

    def show(
        self, batch: Batch, tokens: Sequence[int], start: int, positions: Positions
    ) -> Sequence[int]:
        """Return text as a batch has it, and give it the positions that images before it leave."""
        if not self._is_own:
            return [token if token >= 0 else STAND_IN for token in tokens]
        if positions:
            batch.place(positions.at(start), len(tokens))
        elif self._is_placing:
            batch.leave_places()
        self._is_placing = bool(positions)
        return tokens

    def encoded(self, tokens: Sequence[int], place: int) -> tuple[ImageCells, HiddenStates]:
        """Return the image at a place of a text, and the states of its cells.

        Raises InvalidOption for an image that is unknown or too large, Cancelled when aborted.
        """
        cells, most = image_at(self._index, tokens, place), self._native.chunk
        if not cells.is_causal and len(cells.ids) > most:  # llama.cpp would end the process
            count = len(cells.ids)
            raise InvalidOption(f"the image takes {count} tokens at once: try --batch {count}")
        self._native.require_wanted()
        began = perf_counter()
        try:
            states = cells.encode()
        finally:
            self.seconds += perf_counter() - began
        self._native.require_wanted()  # on a GPU the pass over the image would not notice
        return cells, states

    def part(self, cells: ImageCells, states: HiddenStates, first: int, position: int) -> Batch:
        """Return the pass over the cells of an image from the first on, as many as one takes.

        The image begins at this position.
        """
        if self._batch is None:
            self._batch = self._native.new_image_batch(self._sequence)
        batch, count = self._batch, min(self._native.chunk, len(cells.ids) - first)
        batch.inputs[:count] = states[first : first + count]
        batch.fill([STAND_IN] * count, 0)
        batch.place_each(cells.placed(position, first, count))
        return batch
