"""Targets whose later layers change little, as those of trained models do."""

from __future__ import annotations

from pathlib import Path

import gguf

from tiny_gguf import write_model

BRANCHES = ("attn_output.weight", "ffn_down.weight")
"""The last matrices of a layer's two branches, which add to what passes by."""


def write_calm_target(path: Path, num_layers: int = 9, seed: int = 3) -> Path:
    """Write a target whose layers matter less and less: from 1 for the first to 0.02."""
    write_model(path, "llama", num_layers=num_layers, seed=seed)
    for layer in range(1, num_layers):
        scale_layer(path, layer, max(0.02, 0.5**layer))
    return path


def scale_layer(path: Path, layer: int, factor: float) -> None:
    """Scale what a layer of a file in float32 adds."""
    reader = gguf.GGUFReader(path, "r+")
    for tensor in reader.tensors:
        if tensor.name in {f"blk.{layer}.{branch}" for branch in BRANCHES}:
            tensor.data[...] *= factor
    reader.data.flush()
