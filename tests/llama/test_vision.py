"""Images give the logits that llama.cpp's own way of reading them gives, whatever their sort."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import WriteModel
from image_files import image
from scripts.support.tiny_gguf import Vocabulary, write_projector
from scripts.support.tiny_gguf.projectors import MARKERS
from specchat.errors import Cancelled, InvalidOption
from specchat.gguf.projector import kind_of_projector
from specchat.gguf.reader import read_header
from specchat.images.image import Image
from specchat.images.picture import picture_of
from specchat.llama import mtmd_library
from specchat.llama.context import Context
from specchat.llama.kept_images import KeptImages
from specchat.llama.library import AbortFlag, api
from specchat.llama.model import Model
from specchat.llama.vision import Vision
from specchat.planning.context_shape import ModelOptions
from undefined_memory import NAN, ZEROS, fill_undefined

pytestmark = pytest.mark.usefixtures("image_library")
OPTIONS: dict[str, Any] = {
    "ctx": 512,
    "threads": 1,
    "gpu_layers": 0,
    "flash_attention": "off",
    "cache_type": "f32",
}
BEGIN, BETWEEN, END = "what ", " and then ", " is this?"
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma4 E2B": ("gemma4", {"width": 1536}),
    "llama with markers": ("llama", {"vocabulary": Vocabulary(markers=MARKERS)}),
}
"""Families whose models have sizes or tokens of their own."""
SORTS = [
    ("llama", "mlp", (64, 64), 512),
    ("llama", "mlp", (64, 64), 24),
    ("gemma3", "gemma3", (64, 64), 512),
    ("qwen2vl", "qwen2vl_merger", (96, 160), 512),
    ("qwen2vl", "qwen2vl_merger", (160, 96), 24),
    ("qwen35", "qwen2vl_merger", (96, 160), 512),
    ("qwen35", "qwen2vl_merger", (96, 160), 24),
    ("qwen3vl", "qwen3vl_merger", (96, 160), 512),
    ("qwen3vl", "qwen3vl_merger", (96, 160), 24),
    ("gemma4", "gemma4v", (64, 64), 512),
    ("gemma4 E2B", "gemma4v", (64, 64), 512),
    ("llama with markers", "idefics3", (64, 64), 512),
    ("llama with markers", "idefics3", (160, 96), 24),
    ("qwen3", "internvl", (160, 96), 512),
    ("mamba", "pixtral", (160, 96), 512),
    ("lfm2", "pixtral", (96, 160), 24),
]
"""The text model, its projector, the size of the image, and the most tokens of a pass."""


@pytest.fixture(params=SORTS, ids=str)
def read(
    request: pytest.FixtureRequest,
    tiny: WriteModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[Context, Vision, list[Image]]]:
    """Return a context, the encoder of its model, and two images.

    llama.cpp's own helper depends on memory that nothing has written: it is zero here.
    """
    fill_undefined(monkeypatch, ZEROS)
    family, kind, size, batch = request.param
    options, abort = ModelOptions(**OPTIONS, batch=batch, rollback_length=4), AbortFlag()
    architecture, own = FAMILIES.get(family, (family, {}))
    sizes = {"text_width": own.get("width", 64), "is_deep": family == "qwen3vl"}
    projector = read_header(write_projector(tmp_path / "mmproj.gguf", kind, **sizes))
    with (
        Model(tiny(architecture, num_layers=2, **own), options) as model,
        Vision(projector, model, abort, KeptImages(), threads=1, is_on_gpu=False) as vision,
        Context(model, options, abort) as context,
    ):
        yield context, vision, [image(1, size), image(2, size)]


def text_of(context: Context, vision: Vision, images: list[Image]) -> tuple[list[int], Any]:
    """Return a text with two images as tokens, and what keeps these known."""
    vocabulary = context.model.vocabulary
    begin, between, end = (
        vocabulary.tokenize(part, add_special=False, parse_special=True)
        for part in (BEGIN, BETWEEN, END)
    )
    first, second = map(vision.tokens_of, images)
    return [*begin, *first.tokens, *between, *second.tokens, *end], (first, second)


def expected_row(context: Context, vision: Vision, images: list[Image]) -> Any:
    """Return the last row of logits as llama.cpp's helper computes it, in an empty context."""
    mtmd: Any = mtmd_library.load()
    marker = mtmd.mtmd_default_marker()
    text = marker.join(part.encode() for part in (BEGIN, BETWEEN, END))
    bitmaps = (ctypes.c_void_p * 2)()
    for place, picture in enumerate(map(picture_of, images)):
        pixels = (ctypes.c_uint8 * picture.num_bytes).from_buffer_copy(picture.pixels)
        bitmaps[place] = mtmd.mtmd_bitmap_init(picture.width, picture.height, pixels)
    chunks, given = (
        mtmd.mtmd_input_chunks_init(),
        mtmd.mtmd_input_text(text, len(text), False, True),
    )
    assert mtmd.mtmd_tokenize(vision._context, chunks, ctypes.byref(given), bitmaps, 2) == 0
    end = api.llama_pos(0)
    done = mtmd.mtmd_helper_eval_chunks(
        vision._context, context.handle, chunks, 0, 0, context.native.chunk, True, ctypes.byref(end)
    )
    assert done == 0
    size = context.model.vocabulary.size
    return np.ctypeslib.as_array(api.llama_get_logits_ith(context.handle, -1), (size,)).copy()


def test_images_are_read_as_llama_cpp_reads_them(
    read: tuple[Context, Vision, list[Image]],
) -> None:
    """At once, after a rollback behind them, and after one to before them."""
    context, vision, images = read
    expected = expected_row(context, vision, images)
    context.rollback_kind.empty()
    tokens, _kept = text_of(context, vision, images)
    context.prefill(tokens[:-1])
    rows = [context.evaluate(tokens[-1:], 1)[0].copy()]
    context.mark()
    context.evaluate([9, 99], 2)
    context.rollback(len(tokens))
    context.rollback(len(tokens) - 1)
    rows.append(context.evaluate(tokens[-1:], 1)[0].copy())
    context.rollback(2)
    context.prefill(tokens[:-1])
    rows.append(context.evaluate(tokens[-1:], 1)[0].copy())
    for row in rows:
        assert np.abs(row - expected).max() < 1e-3


def test_a_copy_of_a_text_knows_its_positions_itself(
    read: tuple[Context, Vision, list[Image]],
) -> None:
    """Also if no prompt has shown its images since, as after a restart."""
    context, vision, images = read
    tokens, kept = text_of(context, vision, images)
    context.prefill(tokens)
    expected = context.evaluate([9], 1)[0].copy()
    context.prefill(tokens)
    copied = context.snapshot()
    context.prefill([])
    context.model.images.clear()
    context.restore(copied)
    context.mark()
    context.evaluate([99, 9], 2)
    context.rollback(len(tokens))
    assert np.abs(context.evaluate([9], 1)[0] - expected).max() < 1e-3
    del kept


def test_an_image_is_read_after_all_of_the_text_before_it(
    read: tuple[Context, Vision, list[Image]],
) -> None:
    """A failed pass of several texts may have returned a hybrid's memory to an earlier state."""
    context, vision, images = read
    tokens, _kept = text_of(context, vision, images)
    context.prefill(tokens)
    expected = context.evaluate([9], 1)[0].copy()
    for num_passes in (1, 2):
        context.prefill([])
        reading = context.reading(tokens, None, lambda: False)
        for _ in range(num_passes):
            next(reading)
        context.undo(0)  # as JointPasses does with the texts that were not in the pass
        for _ in reading:
            pass
        assert np.abs(context.evaluate([9], 1)[0] - expected).max() < 1e-3


@pytest.mark.parametrize(("family", "is_causal"), [("gemma4", False), ("gemma4 E2B", True)])
def test_small_models_of_gemma_4_read_images_as_text(
    family: str, is_causal: bool, tiny: WriteModel, tmp_path: Path
) -> None:
    """Cell by cell: llama.cpp's helper knows them by their width."""
    architecture, own = FAMILIES.get(family, (family, {}))
    width = own.get("width", 64)
    projector = read_header(write_projector(tmp_path / "a.gguf", "gemma4v", text_width=width))
    options = ModelOptions(**OPTIONS)
    with (
        Model(tiny(architecture, num_layers=2, **own), options) as model,
        Vision(projector, model, AbortFlag(), KeptImages(), threads=1, is_on_gpu=False) as vision,
    ):
        assert [cells.is_causal for cells in vision.tokens_of(image()).cells] == [is_causal]


def test_an_encoding_stops_in_the_middle(
    read: tuple[Context, Vision, list[Image]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is kept of the image; the text before it stays, and the next time all is read."""
    context, vision, images = read
    tokens, _kept = text_of(context, vision, images)
    before = next(place for place, token in enumerate(tokens) if token < 0)
    num_looks = 0

    def is_set() -> bool:
        nonlocal num_looks
        num_looks += 1
        return num_looks > 3

    monkeypatch.setattr("specchat.llama.encoder_stop.NODES_AT_ONCE", 8)
    with monkeypatch.context() as patch:
        patch.setattr(vision._stop._abort, "is_set", is_set)
        with pytest.raises(Cancelled):
            context.prefill(tokens)
    assert num_looks == 4  # it stopped at once
    assert context.tokens == tokens[:before]
    kept = [each for each in map(vision._read, images) if each]
    assert kept
    assert not any(each.states for each in kept)
    row = read_plainly(context, vision, images)
    context.prefill([])
    assert np.abs(row - read_plainly(context, vision, images)).max() < 1e-3


def read_plainly(context: Context, vision: Vision, images: list[Image]) -> Any:
    """Return the row of logits after a text that is read from what the memory has of it."""
    tokens, _kept = text_of(context, vision, images)
    context.prefill(tokens[:-1])
    return context.evaluate(tokens[-1:], 1)[0].copy()


def test_an_answer_that_was_stopped_encodes_no_image(
    read: tuple[Context, Vision, list[Image]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between images, and before the first one, the flag is looked at."""
    context, vision, images = read
    expected = expected_row(context, vision, images)
    context.rollback_kind.empty()
    tokens, _kept = text_of(context, vision, images)
    encoded: list[Any] = []
    encode = vision._encoded

    def counted(chunk: Any) -> Any:
        encoded.append(chunk)
        return encode(chunk)

    monkeypatch.setattr(vision, "_encoded", counted)
    reading = context.reading(tokens, None, lambda: False)
    while not encoded:
        next(reading)
    vision._stop._abort.set()
    with pytest.raises(Cancelled):
        for _ in reading:
            pass
    assert len(encoded) == 1
    vision._stop._abort.clear()
    assert np.abs(read_plainly(context, vision, images) - expected).max() < 1e-3


def test_what_memory_held_before_an_image_does_not_matter(
    read: tuple[Context, Vision, list[Image]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp multiplies it by zero for Pixtral's kind, which for NaN gives NaN."""
    context, vision, images = read
    expected = read_plainly(context, vision, images)
    context.prefill([])
    sizes = fill_undefined(monkeypatch, NAN)
    with Vision(
        vision._header, context.model, AbortFlag(), KeptImages(), threads=1, is_on_gpu=False
    ) as other:
        assert np.abs(read_plainly(context, other, images) - expected).max() < 1e-6
    assert bool(sizes) is (kind_of_projector(vision._header) == "pixtral")


@pytest.mark.parametrize("read", [SORTS[0], SORTS[-1]], indirect=True, ids=str)
@pytest.mark.parametrize(
    ("is_on_gpu", "num_times", "leaves"), [(True, 1, True), (True, 2, False), (False, 1, False)]
)
def test_states_that_are_not_numbers_are_refused(
    read: tuple[Context, Vision, list[Image]],
    monkeypatch: pytest.MonkeyPatch,
    is_on_gpu: bool,
    num_times: int,
    leaves: bool,
) -> None:
    """On a GPU they are encoded once more, on the CPU; no memory ever reads them.

    Where that gives none either, it is the image's fault, and the next one is encoded on the GPU.
    """
    context, vision, images = read
    expected = read_plainly(context, vision, images)
    context.prefill([])
    mtmd, num_bad = mtmd_library.load(), [num_times]
    given = mtmd.mtmd_get_output_embd

    def spoiled(handle: Any) -> Any:
        values = given(handle)
        if num_bad[0]:
            num_bad[0] -= 1
            values[0] = math.nan
        return values

    monkeypatch.setattr(mtmd, "mtmd_get_output_embd", spoiled)
    with Vision(
        vision._header, context.model, AbortFlag(), KeptImages(), threads=1, is_on_gpu=is_on_gpu
    ) as other:
        if not leaves:
            with pytest.raises(InvalidOption, match="failed to encode an image: it gave NaN"):
                read_plainly(context, other, images)
            assert min(context.tokens) >= 0
        assert np.abs(read_plainly(context, other, images) - expected).max() < 1e-3
        notice = other.tokens_of(images[0]).notice
        assert notice.endswith("the GPU failed (it gave NaN or infinities)") is leaves
        assert other._is_on_gpu is (is_on_gpu and not leaves)


@pytest.mark.parametrize("function", ["mtmd_init_from_file", "mtmd_encode_chunk"])
def test_an_encoder_that_the_gpu_has_no_room_for_is_on_the_cpu(
    read: tuple[Context, Vision, list[Image]], monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """Other programs may have taken the memory that was planned with; a notice says so."""
    context, vision, images = read
    expected = read_plainly(context, vision, images)
    context.prefill([])
    mtmd, opened = mtmd_library.load(), list[bool]()
    given, call = mtmd.mtmd_init_from_file, getattr(mtmd, function)

    def open_file(path: bytes, model: Any, parameters: Any) -> Any:
        opened.append(parameters.use_gpu)
        is_refused = parameters.use_gpu and call is given
        return None if is_refused else given(path, model, parameters)

    def encode(*arguments: Any) -> int:
        return 1 if opened[-1] else call(*arguments)

    monkeypatch.setattr(mtmd, "mtmd_init_from_file", open_file)
    if call is not given:
        monkeypatch.setattr(mtmd, function, encode)
    with Vision(
        vision._header, context.model, AbortFlag(), KeptImages(), threads=1, is_on_gpu=True
    ) as other:
        row = read_plainly(context, other, images)
        notice = other.tokens_of(images[0]).notice
        assert notice.startswith("images are encoded on the CPU: the GPU failed (")
    assert opened == [True, False]
    assert np.abs(row - expected).max() < 1e-3
