"""Images as a model reads them: the projector's encoder, by llama.cpp's libmtmd.

The library makes the tokens around an image and the states of its cells; contexts evaluate both
themselves. It is opened with the first image.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from specchat.errors import EngineFailed, InvalidOption, ModelWontLoad
from specchat.gguf.header import Header
from specchat.gguf.projector import fingerprint, most_cells
from specchat.images.image import Image
from specchat.llama import mtmd_library
from specchat.llama.encoder_stop import EncoderStop
from specchat.llama.hidden_states import HiddenStates
from specchat.llama.image_breaks import mend_breaks
from specchat.llama.image_cells import ImageCells, ImageTokens, ids_of
from specchat.llama.kept_images import KeptImages
from specchat.llama.library import AbortFlag, api, last_errors
from specchat.llama.model import Model

TEXT_CHUNK, IMAGE_CHUNK = 0, 1
ADDED = 1
TOKEN_BYTES = 64


class ImageReader(Protocol):
    """Makes tokens of images."""

    def tokens_of(self, image: Image) -> ImageTokens:
        """Return an image as tokens."""

    def close(self) -> None:
        """Free what it has; closing twice does nothing."""


@dataclass(frozen=True, slots=True)
class ReadImage:
    """What a model reads of an image: tokens, and the states of its parts that were encoded."""

    tokens: ImageTokens
    file_bytes: int
    """The size of the image's file, which its parts are encoded from."""
    states: dict[int, HiddenStates] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        """About the memory that it takes."""
        states = sum(each.nbytes for each in self.states.values())
        return self.file_bytes + TOKEN_BYTES * len(self.tokens.tokens) + states


class Vision(AbstractContextManager["Vision"]):
    """The encoder of a model's images.

    Any thread may ask for their tokens, also while another one encodes: one after the other, and
    the first one waits until the projector is loaded.
    """

    def __init__(
        self,
        header: Header,
        model: Model,
        abort: AbortFlag,
        images: KeptImages,
        *,
        threads: int,
        is_on_gpu: bool,
        has_flash_attention: bool = True,
    ) -> None:
        """Prepare for images of a model with the projector of this header; nothing is loaded.

        If the encoder cannot be on a GPU after all, it goes to the CPU. Flash attention may be left
        out for the drivers of GPUs: on a CPU it only saves memory.
        """
        self._header, self._model = header, model
        self._threads, self._is_on_gpu = threads, is_on_gpu
        self._has_flash_attention = has_flash_attention
        self._notice = ""
        self._stop = EncoderStop(abort)
        self._images = images
        self._is_open = self._is_closed = False
        self._lock = threading.Lock()

    def tokens_of(self, image: Image) -> ImageTokens:
        """Return an image as tokens. Its cells are encoded when a context reads them.

        Raises InvalidOption for bytes that are no image, and what opening the projector raises.
        """
        if self._read(image) is None:
            self._images.picture(image)  # others go on meanwhile
        with self._lock:
            if self._is_closed:
                raise EngineFailed("the engine is closed: load it again")
            read = self._read(image) or ReadImage(self._tokenized(image), image.num_bytes)
            self._images.put((self, image.digest), read)
            for cells in read.tokens.cells:
                self._model.images[cells.ids[0]] = cells
        return replace(read.tokens, notice=self._notice)

    def close(self) -> None:
        """Free the encoder; closing twice does nothing."""
        with self._lock:
            self._is_closed = True
            self._images.clear()
            if self._is_open:
                self._is_open = False
                self._mtmd.mtmd_free(self._context)

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def _mtmd(self) -> Any:
        return mtmd_library.load()

    @cached_property
    def _key(self) -> bytes:
        return fingerprint(self._header)

    @cached_property
    def _context(self) -> Any:
        """The library's handle of the projector. Raises ModelWontLoad if it cannot be used."""
        last_errors()
        handle = self._opened()
        if not handle and self._is_on_gpu:
            self._leave_gpu(_reason())
            handle = self._opened()
        if not handle:
            raise ModelWontLoad(
                f"{self._header.path.name} cannot be the projector of {self._model.header.name}:"
                f" {_reason()}; choose the mmproj file that comes with the model"
            )
        self._is_open = True
        return handle

    def _opened(self) -> Any:
        parameters = self._mtmd.mtmd_context_params_default()
        parameters.use_gpu, parameters.n_threads = self._is_on_gpu, self._threads
        parameters.print_timings = parameters.warmup = False
        parameters.cb_eval = self._stop.callback
        parameters.image_max_tokens = most_cells(self._header)
        if self._is_on_gpu and not self._has_flash_attention:
            parameters.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_DISABLED
        path = os.fsencode(self._header.path)
        return self._mtmd.mtmd_init_from_file(path, self._model.handle, parameters)

    def _open_again(self, change: Callable[[], None]) -> None:
        """Open the projector again, after a change of where it is."""
        with self._lock:  # others make tokens with it
            self._mtmd.mtmd_free(self._context)
            self._is_open = False
            del self._context
            change()
            _ = self._context

    def _return_to_gpu(self) -> None:
        self._is_on_gpu, self._notice = True, ""

    def _leave_gpu(self, reason: str) -> None:
        """Go on without the GPU, whose memory may be taken since the model was loaded."""
        self._is_on_gpu = False
        self._notice = f"images are encoded on the CPU: the GPU failed ({reason})"

    def _read(self, image: Image) -> ReadImage | None:
        """Return what is kept of an image for this model."""
        read = self._images.get((self, image.digest))
        return read if isinstance(read, ReadImage) else None

    def _tokenized(self, image: Image) -> ImageTokens:
        tokens, cells = list[int](), list[ImageCells]()
        with self._chunks(image) as chunks:
            for number, chunk in enumerate(chunks):
                if self._mtmd.mtmd_input_chunk_get_type(chunk) == TEXT_CHUNK:
                    tokens += self._text_of(chunk)
                    continue
                part = self._cells_of(chunk, image, number)
                cells.append(part)
                tokens += part.ids
        return ImageTokens(tokens, tuple(cells))

    @contextmanager
    def _chunks(self, image: Image) -> Iterator[list[Any]]:
        """Give libmtmd's chunks of an image by itself: it would take names in a text for tokens."""
        mtmd, context = self._mtmd, self._context
        picture = self._images.picture(image)
        pixels = (ctypes.c_uint8 * len(picture.pixels)).from_buffer_copy(picture.pixels)
        bitmap = mtmd.mtmd_bitmap_init(picture.width, picture.height, pixels)
        chunks = mtmd.mtmd_input_chunks_init()
        try:
            marker = mtmd.mtmd_default_marker()
            text = mtmd.mtmd_input_text(marker, len(marker), False, True)
            bitmaps = (ctypes.c_void_p * 1)(bitmap)
            last_errors()
            if mtmd.mtmd_tokenize(context, chunks, ctypes.byref(text), bitmaps, 1):
                raise InvalidOption(f"the projector refuses an image: {_reason()}")
            count = mtmd.mtmd_input_chunks_size(chunks)
            yield [mtmd.mtmd_input_chunks_get(chunks, number) for number in range(count)]
        finally:
            mtmd.mtmd_input_chunks_free(chunks)
            mtmd.mtmd_bitmap_free(bitmap)

    def _text_of(self, chunk: Any) -> list[int]:
        """Return the tokens beside an image. Raises ModelWontLoad if the model has no such ones."""
        count = ctypes.c_size_t()
        tokens = self._mtmd.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(count))
        found = list(tokens[: count.value])
        if not all(0 <= token < self._model.vocabulary.size for token in found):
            raise ModelWontLoad(
                f"{self._header.path.name} is the projector of another model:"
                f" {self._model.header.name} lacks the tokens that stand around its images"
            )
        return found

    def _cells_of(self, chunk: Any, image: Image, number: int) -> ImageCells:
        mtmd, count = self._mtmd, self._mtmd.mtmd_input_chunk_get_n_tokens(chunk)
        if mtmd.mtmd_input_chunk_get_type(chunk) != IMAGE_CHUNK or not count:
            raise InvalidOption(f"the projector gives no tokens for {image.name}: choose another")
        here, later = self._places(chunk, count, 0), self._places(chunk, count, ADDED)
        has_places = bool(mtmd.mtmd_decode_use_mrope(self._context))
        num_positions = int(mtmd.mtmd_input_chunk_get_n_pos(chunk))
        layout = here.tobytes() + b"%d %d %d" % (number, num_positions, has_places)
        return ImageCells(
            ids=ids_of(self._key + image.digest + layout, count),
            num_positions=num_positions,
            places=here if has_places else None,
            moved=(later - here).max(axis=1),
            is_causal=not mtmd.mtmd_decode_use_non_causal(self._context, chunk),
            encode=partial(self._states_of, image, number),
        )

    def _places(self, chunk: Any, count: int, first: int) -> NDArray[np.int32]:
        """Return the positions of cells in time, height and width, and a fourth, after `first`."""
        image = self._mtmd.mtmd_input_chunk_get_tokens_image(chunk)
        place_at = self._mtmd.mtmd_image_tokens_get_decoder_pos
        each = [place_at(image, first, index) for index in range(count)]
        rows = [[at.t for at in each], [at.y for at in each], [at.x for at in each]]
        return np.array([*rows, [at.z for at in each]], np.int64).astype(np.int32)

    def _states_of(self, image: Image, number: int) -> HiddenStates:
        """Return the states of a part of an image, encoded anew unless they were kept."""
        read = self._read(image)
        if read and number in read.states:
            return read.states[number]
        with self._chunks(image) as chunks:
            states = self._encoded(chunks[number])
        if read:
            more = replace(read, states={**read.states, number: states})  # others add sizes up
            self._images.put((self, image.digest), more)
        return states

    def _encoded(self, chunk: Any) -> HiddenStates:
        states, failure = self._tried(chunk)
        if failure and self._is_on_gpu:
            self._open_again(partial(self._leave_gpu, failure))
            states, failure = self._tried(chunk)
            if failure:  # it is the image
                self._open_again(self._return_to_gpu)
        if failure:
            raise InvalidOption(f"the projector failed to encode an image: {failure}")
        return states

    def _tried(self, chunk: Any) -> tuple[HiddenStates, str]:
        """Return the states of an image's cells, and why they are of no use, "" if they are."""
        last_errors()
        count, width = self._mtmd.mtmd_input_chunk_get_n_tokens(chunk), self._model.input_width
        if self._stop.run(lambda: int(self._mtmd.mtmd_encode_chunk(self._context, chunk))):
            return np.empty((0, width), np.float32), _reason()
        values = self._mtmd.mtmd_get_output_embd(self._context)
        states: HiddenStates = np.ctypeslib.as_array(values, (count, width)).copy()
        mend_breaks(states, self._header)
        # no memory may read others: what it gives after them, too, may be NaN
        return states, "" if np.isfinite(states).all() else "it gave NaN or infinities"


def _reason() -> str:
    return " ".join(last_errors()[-2:]) or "llama.cpp gave no reason"
