"""The types that a model's KV cache may have.

llama.cpp refuses some types and ends the process for others. Without flash attention it accepts
keys whose heads do not fill whole blocks, and then crashes or computes nonsense.
"""

from specchat.errors import InvalidOption
from specchat.gguf.tensor_types import STORED_TYPES
from specchat.options.declarations import LoadOptions
from specchat.planning.context_shape import PLAIN_TYPES, USUAL_TYPE
from specchat.planning.memory import Sizes

BLOCK_LENGTHS = {kind.name: kind.num_values for kind in STORED_TYPES.values()}
"""The number of values in a block, by type name; the width of a head must be a multiple of it."""
WITHOUT_FLASH = frozenset({"grok"})
"""Architectures for which llama.cpp switches flash attention off."""


def require_cache_types(model: Sizes, options: LoadOptions, advice: str = "") -> None:
    """Raise InvalidOption, ending with `advice`, if a model's KV cache cannot have these types."""
    named = (options.cache_type_k, options.cache_type_v)
    if reason := why_unfit(model, *named, flash=options.flash_attention != "off"):
        raise InvalidOption(f"{reason}{advice}")


def why_unfit(model: Sizes, keys: str, values: str, *, flash: bool) -> str | None:
    """Return why a model cannot have a KV cache of these types, None if it can.

    The type "auto" stands for the usual one, or for one that fits.
    """
    header, layout = model.header, model.layout
    if values not in {*PLAIN_TYPES, "auto"}:
        needs = f"--cache-type-v {values} needs flash attention"
        if not flash:
            return f"{needs}: drop it or --flash-attention off"
        if header.architecture in WITHOUT_FLASH:
            return f"{needs}, which {header.name} does not support: leave it out"
    key_type, value_type = (USUAL_TYPE if kind == "auto" else kind for kind in (keys, values))
    if layout.has_joint_cache and key_type != value_type:
        return (
            f"{header.name} keeps keys and values together: give --cache-type-k and --cache-type-v"
            f" the same type, not {key_type} and {value_type}"
        )
    for widths in layout.head_widths:
        for side, kind, width in zip("kv", (key_type, value_type), widths, strict=True):
            if width % (length := BLOCK_LENGTHS[kind]):
                return (
                    f"--cache-type-{side} {kind} needs a head size divisible by {length}, and"
                    f" {header.name} has {width}: choose {USUAL_TYPE}"
                )
    return None
