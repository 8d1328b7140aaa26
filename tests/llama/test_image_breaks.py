"""States between the rows of an image are mended if nothing else can have been lost."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from scripts.support.tiny_gguf import write_projector
from specchat.gguf.reader import read_header
from specchat.llama.hidden_states import HiddenStates
from specchat.llama.image_breaks import mend_breaks

ROWS, LENGTH, WIDTH = 4, 3, 64
BREAKS = range(LENGTH, ROWS * (LENGTH + 1) - 1, LENGTH + 1)


@pytest.mark.parametrize(
    ("kind", "lost", "is_mended"),
    [
        ("pixtral", BREAKS, True),
        ("pixtral", BREAKS[1:2], True),
        ("pixtral", [*BREAKS, 4], False),
        ("pixtral", range(ROWS * (LENGTH + 1) - 1), False),
        ("mlp", BREAKS, False),
    ],
)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_may_be_undefined_is_mended(
    kind: str, lost: range, is_mended: bool, value: float, tmp_path: Path
) -> None:
    """Those that are left have their value already; an encoder that fails is not covered up."""
    projector = read_header(write_projector(tmp_path / "a.gguf", kind, text_width=WIDTH))
    values = np.random.default_rng(0).normal(size=(ROWS * (LENGTH + 1) - 1, WIDTH))
    good: HiddenStates = values.astype(np.float32)
    for tensor in gguf.GGUFReader(projector.path).tensors:
        if tensor.name == "v.token_embd.img_break":
            good[BREAKS] = tensor.data
    states = good.copy()
    states[list(lost), 5] = value
    before = states.copy()
    mend_breaks(states, projector)
    assert np.array_equal(states, good if is_mended else before, equal_nan=True)
