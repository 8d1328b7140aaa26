"""Where a pair's layers are changes nothing in what it answers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from conftest import WriteModel
from llama_log import listening
from specchat import Engine
from specchat.planning.device import Device

EXACT: dict[str, Any] = {
    "ctx": 512,
    "flash_attention": "off",
    "cache_type_k": "f32",
    "cache_type_v": "f32",
    "learn": False,
}
PROMPT = [40, 75, 111, 260, 90, 33, 201, 150]
ALL = 99
PLACES = {
    "all on the CPU": (0, 0),
    "some layers on the device": (2, 0),
    "target on the device": (ALL, 0),
    "draft on the device": (0, ALL),
    "all on the device": (ALL, ALL),
}
CASES = [
    *(("llama", place) for place in PLACES),
    *((name, "all on the device") for name in ("gemma3", "lfm2", "mamba", "qwen35")),
]
"""Every place with one architecture, and every kind of memory on the device."""


def tokens_of(engine: Engine, **options: Any) -> list[int]:
    """Decode 48 tokens at temperature 0 and return them."""
    options = {"temperature": 0.0, "max_tokens": 48, **options}
    return [token for chunk in engine.generate(PROMPT, **options) for token in chunk.tokens]


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(("architecture", "place"), CASES)
def test_greedy_answers_are_plain_decodings_wherever_the_layers_are(
    tiny: WriteModel, architecture: str, place: str
) -> None:
    """At any draft length, and llama.cpp's log confirms how many layers are offloaded."""
    layers, draft_layers = PLACES[place]
    files = tiny(architecture), tiny(architecture, "half right")
    with listening() as log:
        engine = Engine.load(*files, gpu_layers=layers, draft_gpu_layers=draft_layers, **EXACT)
        offloaded = re.findall(r"offloaded (\d+)/\d+ layers", "".join(log))
    whole = 5  # four layers and the output
    expected = [str(min(number, whole)) for number in (layers, draft_layers)]
    with engine:
        assert offloaded == expected
        plain = tokens_of(engine, drafter="none")
        for draft_length in (1, 3, 6):
            assert tokens_of(engine, drafter="model", draft_length=draft_length) == plain
            assert engine.stats.drafted > 0
        assert tokens_of(engine, drafter="auto") == plain


@pytest.mark.parametrize("cache_type", ["f32", "f16", "q8_0", "q4_0"])
def test_every_type_of_cache_decodes_as_plainly(
    tiny: WriteModel, device: Device, cache_type: str
) -> None:
    """Quantized caches need flash attention, which the device has, too."""
    cache = {"cache_type_k": cache_type, "cache_type_v": cache_type, "flash_attention": "auto"}
    model = tiny("llama", width=128, head_width=32)
    with Engine.load(model, model, gpu_layers=ALL, **EXACT | cache) as engine:
        assert device.name in engine.facts.plan
        plain = tokens_of(engine, drafter="none")
        assert tokens_of(engine, drafter="model", draft_length=3) == plain
        assert engine.stats.acceptance_rate > 0.9
