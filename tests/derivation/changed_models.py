"""A model changed a little, or written in parts."""

from __future__ import annotations

from pathlib import Path

import gguf

BRANCHES = ("attn_output.weight", "ffn_down.weight")
"""The last matrices of a layer's two branches, which add to what passes by."""


def scale_layer(path: Path, layer: int, factor: float) -> None:
    """Scale what a layer of a file in float32 adds."""
    reader = gguf.GGUFReader(path, "r+")
    for tensor in reader.tensors:
        if tensor.name in {f"blk.{layer}.{branch}" for branch in BRANCHES}:
            tensor.data[...] *= factor
    reader.data.flush()


def fine_tune(path: Path) -> None:
    """Change the last norm of a file in float32 a little, as training changes all weights."""
    reader = gguf.GGUFReader(path, "r+")
    (norm,) = (tensor for tensor in reader.tensors if tensor.name == "output_norm.weight")
    norm.data[...] *= 1.01
    reader.data.flush()


def split_model(model: Path, folder: Path) -> Path:
    """Write a model again, in several files; return the first."""
    reader = gguf.GGUFReader(model)
    architecture = str(reader.fields["general.architecture"].contents())
    writer = gguf.GGUFWriter(folder / "split.gguf", architecture, split_max_tensors=9)
    for field in reader.fields.values():
        if not field.name.startswith(("GGUF.", "general.architecture")):
            kind = field.types[0]
            sub_type = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, sub_type)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return min(folder.glob("split-*.gguf"))
