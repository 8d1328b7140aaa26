"""The type that a model's KV cache may have.

llama.cpp refuses some types and ends the process for others. Without flash attention it accepts
keys whose heads do not fill whole blocks, and then crashes or computes nonsense.
"""

from itertools import chain

from specchat.errors import InvalidOption
from specchat.gguf.tensor_types import STORED_TYPES
from specchat.options.declarations import LoadOptions
from specchat.planning.context_shape import PLAIN_TYPES, USUAL_TYPE
from specchat.planning.memory import Sizes

BLOCK_LENGTHS = {kind.name: kind.num_values for kind in STORED_TYPES.values()}
"""The number of values in a block, by type name; the width of a head must be a multiple of it."""
WITHOUT_FLASH = frozenset({"grok"})
"""Architectures for which llama.cpp switches flash attention off."""


def require_cache_type(model: Sizes, options: LoadOptions, advice: str = "") -> None:
    """Raise InvalidOption, ending with `advice`, if a model's KV cache cannot have the type."""
    if reason := why_unfit(model, options.cache_type, flash=options.flash_attention != "off"):
        raise InvalidOption(f"{reason}{advice}")


def why_unfit(model: Sizes, cache_type: str, *, flash: bool) -> str | None:
    """Return why a model cannot have a KV cache of this type, None if it can.

    The type "auto" stands for the usual one, or for one that fits.
    """
    header = model.header
    if cache_type not in {*PLAIN_TYPES, "auto"}:
        needs = f"--cache-type {cache_type} needs flash attention"
        if not flash:
            return f"{needs}: drop it or --flash-attention off"
        if header.architecture in WITHOUT_FLASH:
            return f"{needs}, which {header.name} does not support: leave it out"
    length = BLOCK_LENGTHS[USUAL_TYPE if cache_type == "auto" else cache_type]
    for width in chain.from_iterable(model.layout.head_widths):
        if width % length:
            return (
                f"--cache-type {cache_type} needs a head size divisible by {length}, and"
                f" {header.name} has {width}: choose {USUAL_TYPE}"
            )
    return None
