"""Types of the KV cache: those that a model can have work, the others are refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import write_with_head
from specchat import Engine
from specchat.errors import InvalidOption
from specchat.gguf.reader import read_header
from specchat.llama.context import Context
from specchat.llama.model import Model
from specchat.options.declarations import LoadOptions
from specchat.planning.cache_types import require_cache_type, why_unfit
from specchat.planning.context_shape import ModelOptions
from specchat.planning.memory import Sizes
from specchat.planning.plan import plans_to_try
from tables import table

TEXT = [20 + place % 200 for place in range(40)]
QUANTISED = ["q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]


def logits(tiny: WriteModel, width: int, **options: Any) -> np.ndarray:
    """Return the logits after a text."""
    chosen = ModelOptions(ctx=256, threads=1, **options)
    path = tiny("llama", head_width=width, width=4 * width)
    with Model(path, chosen) as model, Context(model, chosen) as context:
        context.prefill(TEXT[:-1])
        return np.array(context.evaluate(TEXT[-1:], 1)[0])


@pytest.mark.slow(keep=24)
@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize(
    ("cache_type", "flash"),
    [
        *((kind, flash) for kind in ("f32", "bf16") for flash in ("on", "off", "auto")),
        *((kind, flash) for kind in QUANTISED for flash in ("on", "auto")),
    ],
)
def test_the_types_that_are_let_through_work(
    tiny: WriteModel, width: int, cache_type: str, flash: str
) -> None:
    """The logits are those of the usual type, but for rounding."""
    usual = logits(tiny, width)
    got = logits(tiny, width, cache_type=cache_type, flash_attention=flash)

    assert np.corrcoef(usual, got)[0, 1] > 0.97


@table("flash", ["on", "auto"])
@table("width", [16, 24, 48])
@table("kind", QUANTISED)
def test_heads_that_do_not_fill_blocks_are_named(
    tiny: WriteModel, kind: str, width: int, flash: str
) -> None:
    """llama.cpp refuses them, but does not say why."""
    target = tiny("llama", head_width=width, width=4 * width)
    right = tiny("llama", head_width=32, width=128)
    options: dict[str, Any] = {"cache_type": kind, "flash_attention": flash}
    for pair, advice in (((target, None), ""), ((right, target), ", or --draft none")):
        with pytest.raises(InvalidOption) as refusal:
            Engine.load(*pair, threads=1, **options)

        assert str(refusal.value) == (
            f"--cache-type {kind} needs a head size divisible by 32, and"
            f" tiny llama 0 has {width}: choose f16{advice}"
        )


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("architecture", ["llama", "mamba"])
@pytest.mark.parametrize("process", [False, True])
def test_the_two_options_that_exclude_each_other_are_named(
    tiny: WriteModel, architecture: str, process: bool
) -> None:
    """Quantised values without flash attention, whatever the model."""
    options: dict[str, Any] = {"cache_type": "q8_0", "process": process}
    with pytest.raises(InvalidOption) as refusal:
        Engine.load(tiny(architecture), threads=1, flash_attention="off", **options)

    assert str(refusal.value) == (
        "--cache-type q8_0 needs flash attention: drop it or --flash-attention off"
    )


def test_a_joint_cache_may_have_another_type(tmp_path: Any) -> None:
    """Latent attention keeps keys and values together."""
    path = write_with_head(tmp_path / "x.gguf", "deepseek2", part="trunk")
    with Engine.load(path, threads=1, ctx=256, cache_type="f32") as engine:
        assert len(list(engine.generate(TEXT, max_tokens=2))) > 0


def test_a_model_without_flash_attention_has_plain_values(tiny: WriteModel) -> None:
    """llama.cpp switches it off for Grok."""
    sizes = Sizes(read_header(tiny("llama", head_width=32, width=128)))
    grok = {**sizes.header.metadata, "general.architecture": "grok"}
    sizes.header = replace(sizes.header, metadata=grok)

    with pytest.raises(InvalidOption, match=r"--cache-type q8_0 .* does not support"):
        require_cache_type(sizes, LoadOptions(cache_type="q8_0"))
    require_cache_type(sizes, LoadOptions(cache_type="bf16"))


def test_a_window_has_heads_of_its_own(tiny: WriteModel) -> None:
    """Their width counts, too."""
    header = read_header(tiny("gemma3", head_width=32, width=128))
    narrow = {**header.metadata, "gemma3.attention.key_length_swa": 24}

    assert why_unfit(Sizes(header), "q8_0", flash=True) is None
    reason = why_unfit(Sizes(replace(header, metadata=narrow)), "q8_0", flash=True)
    assert "has 24" in (reason or "")


def test_a_plan_never_saves_memory_with_a_type_that_does_not_fit(tiny: WriteModel) -> None:
    """Four heads of 24 fill whole blocks together, but not each."""
    for width, types in ((24, {"f16"}), (32, {"f16", "q8_0"})):
        sizes = Sizes(read_header(tiny("llama", head_width=width, width=8 * width)))
        groups = plans_to_try(sizes, None, LoadOptions(), has_gpus=True)
        assert {plan.cache_type for group in groups for plan in group} == types
