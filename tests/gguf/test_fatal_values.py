"""Files with values for which llama.cpp would end the process are refused before loading."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specchat.catalogue.pairs import find_pair
from specchat.errors import ModelWontLoad
from specchat.gguf.fatal_values import why_fatal, why_rotation_unusable, why_types_unusable
from specchat.gguf.header import Header
from specchat.gguf.model_files import require_text
from specchat.gguf.reader import read_header
from specchat.gguf.tensor_types import STORED_TYPES
from tables import table

QWEN_27B = {
    "embedding_length": 5120,
    "attention__head_count": 24,
    "attention__key_length": 256,
    "rope__dimension_count": 64,
}
GLM_355B = {
    "embedding_length": 5120,
    "attention__head_count": 96,
    "attention__key_length": 128,
    "rope__dimension_count": 64,
}
STEP = {
    "embedding_length": 4096,
    "attention__head_count": (64, 96, 96),
    "attention__key_length": 128,
    "rope__dimension_count": 64,
}
"""Models whose heads are wider than their share of the width."""


@pytest.fixture(scope="module")
def header() -> Header:
    """A file that can be loaded."""
    return read_header(find_pair("demo").target)


def with_own(header: Header, **own: Any) -> Header:
    """Return a header with other values of its architecture."""
    changed = {f"{header.architecture}.{key.replace('__', '.')}": own[key] for key in own}
    return replace(header, metadata={**header.metadata, **changed})


@table(
    ("own", "reason"),
    [
        ({"block_count": 513}, "has 513 layers, and llama.cpp takes 512 at most"),
        ({"block_count": 2**32 - 1}, "llama.cpp takes 512 at most"),
        ({"attention__layer_norm_rms_epsilon": -1.0}, "layer_norm_rms_epsilon is -1, less than 0"),
        ({"attention__layer_norm_epsilon": -0.5}, "layer_norm_epsilon is -0.5, less than 0"),
        ({"full_attention_interval": 0}, "full_attention_interval is less than 1"),
    ],
)
def test_a_number_that_ends_the_process_is_refused(
    header: Header, own: dict[str, Any], reason: str
) -> None:
    """Of a target as of a draft."""
    require_text(header)
    with pytest.raises(ModelWontLoad, match=reason):
        require_text(with_own(header, **own))
    assert why_fatal(with_own(header, block_count=512)) is None


@table(
    ("own", "is_refused"),
    [
        ({}, False),
        ({"attention__key_length": 64, "rope__dimension_count": 32}, False),
        ({"attention__key_length": 64, "rope__dimension_count": 66}, True),
        ({"attention__key_length": 64, "rope__dimension_count": 31}, True),
        ({"attention__key_length": 64, "rope__dimension_count": 0}, True),
        ({"attention__key_length_swa": 64, "rope__dimension_count_swa": 128}, True),
        (QWEN_27B, False),
        (GLM_355B, False),
        (STEP, False),
        ({**GLM_355B, "rope__dimension_count_swa": 128}, False),
        ({**GLM_355B, "rope__dimension_count_swa": 130}, True),
    ],
)
def test_a_head_rotates_no_more_than_it_has(
    header: Header, own: dict[str, Any], is_refused: bool
) -> None:
    """Nor an odd number, nor none."""
    assert (why_rotation_unusable(with_own(header, **own)) is not None) == is_refused


def test_a_head_has_types_that_can_be_multiplied(header: Header) -> None:
    """Norms and biases are f32; activations' own types are none of weights."""
    weights = header.tensors["blk.0.attn_q.weight"]
    norm = header.tensors["blk.0.attn_norm.weight"]
    numbers = {each.name: number for number, each in STORED_TYPES.items()}
    assert why_types_unusable(header, header.tensors.values()) is None
    for kind in ("i8", "i32", "f64", "q8_1", "q8_K"):
        assert why_types_unusable(header, [replace(weights, stored=numbers[kind])]), kind
    assert why_types_unusable(header, [replace(weights, stored=numbers["q4_0"])]) is None
    assert why_types_unusable(header, [replace(norm, stored=numbers["f16"])])
    order = replace(norm, name="masked_embd_ordering", stored=numbers["i32"])
    assert why_types_unusable(header, [order]) is None
