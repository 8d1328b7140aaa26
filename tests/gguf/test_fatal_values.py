"""Files with values for which llama.cpp would end the process are refused before loading."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import pytest

from scripts.support.model_headers import MODELS, write_header
from specchat.catalogue.pairs import find_pair
from specchat.errors import ModelWontLoad
from specchat.gguf.fatal_values import why_fatal, why_types_unusable
from specchat.gguf.header import Header
from specchat.gguf.model_files import require_text
from specchat.gguf.reader import read_header
from specchat.gguf.tensor_types import STORED_TYPES
from tables import table

ACTIVATIONS = ("i8", "i32", "f64", "q8_1", "q8_K")
WINDOW = {"attention__sliding_window": 128}
TWO = {"block_count": 2}
NO_WINDOW = "none of its layers slides a window"
EXPERTS = {"expert_count": 8, "expert_used_count": 2}
HYBRID = {"block_count": 2, "attention__head_count_kv": (4, 0)}
FORWARD = {"block_count": 3, "feed_forward_length": (0, 0, 64)}
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
        ({"block_count": 513}, "has 513 layers, and llama.cpp takes 1 to 512"),
        ({"block_count": 2**32 - 1}, "llama.cpp takes 1 to 512"),
        ({"block_count": 0}, "has 0 layers"),
        ({"nextn_predict_layers": 99}, "has 99 prediction heads, more than layers"),
        ({"attention__layer_norm_rms_epsilon": -1.0}, "layer_norm_rms_epsilon is -1, not at least"),
        ({"attention__layer_norm_rms_epsilon": nan}, "layer_norm_rms_epsilon is nan, not at least"),
        ({"attention__layer_norm_epsilon": -0.5}, "layer_norm_epsilon is -0.5, not at least 0"),
        ({"full_attention_interval": 0}, "full_attention_interval is less than 1"),
        ({"expert_count": 1025, "expert_used_count": 2}, "has 1025 experts"),
        ({"expert_count": 8}, "has 8 experts in 0 groups, of which a token uses 0"),
        ({"expert_used_count": 2}, "has 0 experts in 0 groups, of which a token uses 2"),
        ({"expert_count": 8, "expert_used_count": (2, 9)}, "of which a token uses 9"),
        ({**EXPERTS, "expert_group_count": 8}, "has 8 experts in 8 groups"),
        ({**EXPERTS, "expert_group_count": 3}, "has 8 experts in 3 groups"),
        ({**EXPERTS, "expert_group_count": 4}, "in 4 groups, of which a token uses 0"),
        ({"rope__scaling__type": "dynamic"}, "scales positions in a way that"),
        ({"rope__dimension_sections": (8, 5, 319, -1)}, "parts of positions that"),
        ({"rope__dimension_sections": (0, 0, 0, 8)}, "parts of positions that"),
        ({"rope__dimension_sections": 999}, "parts of positions that"),
    ],
)
def test_a_number_that_ends_the_process_is_refused(
    header: Header, own: dict[str, Any], reason: str
) -> None:
    """Of a target as of a draft."""
    require_text(header)
    with pytest.raises(ModelWontLoad, match=f"{reason}.*choose another"):
        require_text(with_own(header, **own))


def test_published_models_are_not_refused(tmp_path: Path) -> None:
    """Their sizes and keys, as their files state them."""
    for model in MODELS:
        assert why_fatal(read_header(write_header(tmp_path, model))) is None


@table(
    "own",
    [
        {"block_count": 512},
        {**EXPERTS, "expert_group_count": 4, "expert_group_used_count": 2},
        {**EXPERTS, "expert_used_count": (0, 2)},
        {"rope__scaling__type": "yarn"},
        {"rope__dimension_sections": (8, 4, 4, 0)},
        {"rope__dimension_sections": (0, 0, 0, 0)},
    ],
)
def test_a_number_that_llama_cpp_takes_is_not_refused(header: Header, own: dict[str, Any]) -> None:
    """Its own writer gives every file parts of positions, all zero for most."""
    require_text(with_own(header, **own))


@table(
    ("kind", "own", "reason"),
    [
        ("hy_v3", {}, None),
        ("hy_v3", {"rope__dimension_count": 8}, "does not rotate all 16 numbers"),
        ("hy_v3", {"attention__value_length": 8}, "keys have 16 numbers, its values 8"),
        ("olmo2", {"rope__dimension_count": 8}, "does not rotate all 16 numbers"),
        ("glm4moe", {**EXPERTS, "rope__dimension_count": 8}, None),
        (
            *("glm4moe", {**EXPERTS, "attention__value_length": 8}),
            "keys have 16 numbers, its values 8",
        ),
        ("smallthinker", {}, "it is a mixture without experts"),
        ("smallthinker", EXPERTS, None),
        ("lfm2moe", {**HYBRID, "leading_dense_block_count": 2}, None),
        ("lfm2moe", {**HYBRID, "leading_dense_block_count": 1}, "without experts"),
        ("mimo2", {"attention__value_length": 8}, None),
        ("deepseek4", {"attention__head_count_kv": 1}, None),
        ("deepseek4", {"attention__head_count_kv": 3}, "compressed keys are not its values"),
        ("deepseek4", {"attention__value_length": 4}, "keys have 16 numbers, its values 4"),
        ("qwen3next", {"ssm__inner_size": 64}, None),
        ("qwen3next", {"ssm__inner_size": 32}, "do not fit its ssm.inner_size"),
        ("mimo2", {**WINDOW, **TWO, "attention__sliding_window_pattern": (False, True)}, None),
        (
            *("mimo2", {**WINDOW, **TWO, "attention__sliding_window_pattern": ()}),
            "none of its layers slides a window",
        ),
        ("gemma3", {**WINDOW, "attention__sliding_window_pattern": 1}, NO_WINDOW),
        ("gemma3", {**WINDOW, "attention__sliding_window_pattern": 0}, None),
        ("gemma3", {**WINDOW, "attention__sliding_window_pattern": 6}, None),
        ("gemma3", {**WINDOW, "attention__sliding_window_pattern": (False, False)}, NO_WINDOW),
        ("gemma3", {"attention__sliding_window_pattern": 1}, None),
        ("gemma3", WINDOW, None),
        ("cohere2", {**WINDOW, "attention__sliding_window_pattern": 1}, NO_WINDOW),
        ("laguna", {**WINDOW, "block_count": 1}, NO_WINDOW),
        ("llama4", {"attention__sliding_window_pattern": 1}, NO_WINDOW),
        ("llama4", {"attention__sliding_window": 0, "attention__sliding_window_pattern": 1}, None),
        ("exaone4", {"block_count": 64, "attention__sliding_window_pattern": 1}, NO_WINDOW),
        ("exaone4", {**WINDOW, "attention__sliding_window_pattern": 1}, None),
        *(
            (kind, {"attention__sliding_window": 0, "attention__sliding_window_pattern": 1}, reason)
            for kind, reason in (("gemma2", NO_WINDOW), ("cohere2", NO_WINDOW), ("gemma3", None))
        ),
        ("laguna", {**WINDOW, "block_count": 2}, None),
        ("lfm2", {}, None),
        ("lfm2", {"attention__head_count": 2}, "its 2 attention heads of 16 numbers"),
        ("lfm2", {"attention__value_length": 8}, "keys have 16 numbers, its values 8"),
        ("qwen4exp", {"attention__value_length": 8}, "keys have 16 numbers, its values 8"),
        ("ernie4_5-moe", {"interleave_moe_layer_step": 0}, "interleave_moe_layer_step is less"),
        ("ernie4_5-moe", {"interleave_moe_layer_step": 1}, None),
        ("llama4", {"interleave_moe_layer_step": 0}, None),
        ("nanbeige", {"block_count": 2, "num_loops": 256}, None),
        ("nanbeige", {"block_count": 2, "num_loops": 257}, "2 layers 257 times"),
        ("nanbeige", {"block_count": 2, "num_loops": 0}, "2 layers 0 times"),
        ("llama", {"block_count": 2, "num_loops": 0}, None),
    ],
)
def test_sizes_that_llama_cpp_does_not_compare_are_compared(
    header: Header, kind: str, own: dict[str, Any], reason: str | None
) -> None:
    """Where it ends the process rather than refuse the tensors."""
    named = replace(header, metadata={"general.architecture": kind})
    sizes = {"embedding_length": 64, "attention__head_count": 4, "attention__key_length": 16}
    states = {"attention__value_length": 16, "ssm__state_size": 16, "ssm__time_step_rank": 4}
    found = why_fatal(with_own(named, **{**sizes, **states, "ssm__inner_size": 64, **own}))
    assert (reason in (found or "")) if reason else found is None


@table(
    ("kind", "own", "reason"),
    [
        ("jamba", HYBRID, None),
        ("jamba", {**HYBRID, "ssm__inner_size": 64}, "is 64, not twice its width of 64"),
        ("jamba", {**HYBRID, "ssm__time_step_rank": 3}, None),
        ("granitehybrid", HYBRID, None),
        ("granitehybrid", {**HYBRID, "ssm__inner_size": 64}, "not twice its width"),
        ("falcon-h1", {}, None),
        *((kind, {**HYBRID, **own}, "cannot be divided")
          for kind in ("granitehybrid", "mamba2", "nemotron_h", "nemotron_h_moe", "falcon-h1")
          for own in ({"ssm__time_step_rank": 3}, {"ssm__group_count": 3},
                      {"ssm__group_count": 0})),
        ("plamo2", {**HYBRID, "ssm__group_count": 0}, None),
        ("plamo2", {**HYBRID, "ssm__group_count": 1}, "cannot be divided"),
        ("plamo2", {**HYBRID, "ssm__group_count": 0, "ssm__time_step_rank": 3}, "be divided"),
        *((kind, {**HYBRID, "ssm__group_count": 0, "attention__head_count_kv": heads}, reason)
          for kind in ("plamo2", "lfm2", "kimi-linear", "jamba")
          for heads, reason in (((4, 4), "none of its layers have a state"), (4, "none of its"),
                                ((0, 0), "all of its layers have a state"), ((4, 0), None))),
        ("nemotron_h", {**FORWARD, "attention__head_count_kv": (4, 0, 0)}, None),
        ("nemotron_h", {**FORWARD, "attention__head_count_kv": (4, 4, 0)}, "none of its"),
        ("nemotron_h", {**FORWARD, "attention__head_count_kv": (0, 0, 4)}, "all of its"),
        *((kind, {**HYBRID, "full_attention_interval": interval}, reason)
          for kind in ("minimax-01", "qwen4exp")
          for interval, reason in ((1, "none of its"), (2, None), (3, "all of its"))),
        ("minimax-01", {"block_count": 7}, "all of its"),
        ("minimax-01", {"block_count": 8}, None),
        ("qwen4exp", {"block_count": 4}, None),
        ("qwen4exp", {"block_count": 4, "nextn_predict_layers": 1}, "all of its"),
        ("qwen4exp", {**HYBRID, "attention__recurrent_layers": (False, True)}, None),
        ("qwen4exp", {**HYBRID, "attention__recurrent_layers": (True, True)}, "all of its"),
    ],
)  # fmt: skip
def test_layers_with_a_state_are_as_llama_cpp_needs_them(
    header: Header, kind: str, own: dict[str, Any], reason: str | None
) -> None:
    """Models of these sizes decode there, or end the process."""
    named = replace(header, metadata={"general.architecture": kind})
    sizes = {"embedding_length": 64, "attention__head_count": 4, "ssm__inner_size": 128}
    found = why_fatal(
        with_own(named, **{**sizes, "ssm__time_step_rank": 4, "ssm__group_count": 2, **own})
    )
    assert (reason in (found or "")) if reason else found is None


@table(
    ("slide", "num_shared", "is_refused"),
    [
        ("11110", 0, False),
        ("11110", 1, True),
        ("11110", 4, True),
        ("11110", 6, True),
        ("11111", 1, False),
        ("11010", 2, False),
        ("10110", 2, True),
        ("11001", 1, True),
        ("11101", 1, False),
        ("00101", 1, False),
        ("1", 0, True),
        ("10", 0, False),
    ],
)
def test_shared_keys_are_those_of_a_layer_of_the_same_kind(
    header: Header, slide: str, num_shared: int, is_refused: bool
) -> None:
    """The last layers of Gemma 4 have none of their own."""
    named = replace(header, metadata={"general.architecture": "gemma4"})
    own = {
        "block_count": len(slide),
        "attention__shared_kv_layers": num_shared,
        "attention__sliding_window_pattern": tuple(each == "1" for each in slide),
    }
    assert ("have keys of their own" in (why_fatal(with_own(named, **own)) or "")) == is_refused


def test_gemma_4_rotates_in_a_window_what_it_rotates_elsewhere(header: Header) -> None:
    """Unless its file says it, which all published ones do."""
    named = replace(header, metadata={"general.architecture": "gemma4"})
    own: dict[str, Any] = {"embedding_length": 64, "attention__head_count": 4, "block_count": 2}
    own |= {"attention__sliding_window_pattern": (True, False), "attention__key_length_swa": 8}
    assert why_fatal(with_own(named, **own)) == "it rotates 16 of 8 numbers of each attention head"
    assert why_fatal(with_own(named, **own, rope__dimension_count_swa=8)) is None


@pytest.mark.parametrize("kind", ["qwen2vl", "paddleocr"])
def test_an_architecture_that_rotates_in_parts_needs_them(header: Header, kind: str) -> None:
    """Otherwise, llama.cpp ends the process; of most, it refuses a file that lacks them itself."""
    width = {"embedding_length": 64, "attention__head_count": 4, "block_count": 1}
    named = replace(header, metadata={"general.architecture": kind})
    reason = "it has parts of positions that llama.cpp cannot use, or lacks them"
    assert why_fatal(with_own(named, **width, rope__dimension_sections=(0, 0, 0, 0))) == reason
    is_refused_anyway = kind != "paddleocr"
    assert why_fatal(with_own(named, **width)) == (None if is_refused_anyway else reason)
    assert why_fatal(with_own(named, **width, rope__dimension_sections=(4, 2, 2, 0))) is None


@table(
    ("kind", "own", "is_refused"),
    [
        ("jamba", {"rope__dimension_count": 0}, False),
        ("nemotron_h", {"attention__key_length": 15, "attention__value_length": 15}, False),
        ("kimi-linear", {"rope__dimension_count": 64}, False),
        ("glm5-next", {"rope__dimension_count": 0}, False),
        ("glm5-next", {}, True),
        ("command-r", {"rope__dimension_count": 0}, True),
    ],
)
def test_attention_without_positions_rotates_nothing(
    header: Header, kind: str, own: dict[str, Any], is_refused: bool
) -> None:
    """So what its file says of a rotation counts for nothing, but where llama.cpp asserts it."""
    named = replace(header, metadata={"general.architecture": kind})
    width = {"embedding_length": 64, "attention__head_count": 4, "block_count": 1}
    assert ("rotates" in (why_fatal(with_own(named, **width, **own)) or "")) == is_refused


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
def test_attention_rotates_no_more_than_it_has(
    header: Header, own: dict[str, Any], is_refused: bool
) -> None:
    """Nor an odd number, nor none."""
    assert ("rotates" in (why_fatal(with_own(header, **own)) or "")) == is_refused


def test_a_head_has_types_that_can_be_multiplied(header: Header) -> None:
    """Norms and biases are f32; activations' own types are none of weights."""
    weights = header.tensors["blk.0.attn_q.weight"]
    norm = header.tensors["blk.0.attn_norm.weight"]
    numbers = {each.name: number for number, each in STORED_TYPES.items()}
    order = replace(norm, name="masked_embd_ordering", stored=numbers["i32"])
    assert why_types_unusable(header) is None
    for tensor, is_refused in (
        *((replace(weights, stored=numbers[kind]), True) for kind in ACTIVATIONS),
        (replace(weights, stored=numbers["q4_0"]), False),
        (replace(norm, stored=numbers["f16"]), True),
        (order, False),
    ):
        changed = replace(header, tensors={**header.tensors, tensor.name: tensor})
        assert (why_types_unusable(changed) is not None) == is_refused
