"""Whether a context fits into this machine's memory, asked before llama.cpp takes it.

Linux grants more memory than there is and kills the process that uses it, so llama.cpp's own check
comes too late.
"""

from __future__ import annotations

from pathlib import Path

from specchat.errors import ModelWontLoad
from specchat.llama.model import Model
from specchat.llama.native import api
from specchat.llama.options import LoadOptions

__all__ = ["available_bytes", "cache_bytes", "require_memory"]

BITS_PER_VALUE = {
    "f32": 32.0,
    "f16": 16.0,
    "bf16": 16.0,
    "q8_0": 8.5,
    "q5_1": 6.0,
    "q5_0": 5.5,
    "q4_1": 5.0,
    "q4_0": 4.5,
}


def require_memory(model: Model, options: LoadOptions, size: int) -> None:
    """Raise ModelWontLoad where a KV cache of `size` tokens is larger than what is free.

    Only for models on the CPU; devices answer for themselves.
    """
    free = available_bytes()
    if free is None or (options.gpu_layers != 0 and api.llama_supports_gpu_offload()):
        return
    needed = cache_bytes(model, options, size)
    if needed > free:
        raise ModelWontLoad(
            f"no memory for a context of {size} tokens: {model.path.name} needs"
            f" {needed / 2**30:.1f} GiB for it and {free / 2**30:.1f} GiB are free;"
            " choose a smaller one with --ctx"
        )


def available_bytes() -> int | None:
    """Return the memory this machine can still give, in bytes; None where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return None
    sizes = dict(line.split(":", 1) for line in lines)
    return int(sizes["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in sizes else None


def cache_bytes(model: Model, options: LoadOptions, size: int) -> float:
    """Return the least the attention cache can take: exact but for windows and hybrids."""
    heads = max(1, api.llama_model_n_head(model.handle))
    key_heads = api.llama_model_n_head_kv(model.handle)
    width = model.metadata(f"{model.architecture}.attention.key_length")
    head_width = int(width) if width else api.llama_model_n_embd(model.handle) // heads
    num_values = size * api.llama_model_n_layer(model.handle) * key_heads * head_width
    if model.window or model.is_recurrent:
        num_values //= 8  # most layers keep a window or a state, not the whole text
    bits = BITS_PER_VALUE[options.cache_type_k] + BITS_PER_VALUE[options.cache_type_v]
    return float(num_values * bits / 8)
