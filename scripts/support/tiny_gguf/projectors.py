"""Tiny projectors (mmproj) with random weights, of the kinds of several families of models."""

from pathlib import Path

import gguf
import numpy as np

from scripts.support.tiny_gguf.weights import Mixture, Weights
from scripts.support.tiny_gguf.writing import finish

KINDS = ("mlp", "gemma3", "idefics3", "qwen2vl_merger")
VISION = "clip.vision."


def write_projector(
    path: Path,
    kind: str,
    *,
    text_width: int = 64,
    width: int = 64,
    feed_forward: int = 128,
    num_layers: int = 2,
    num_heads: int = 4,
    image_side: int = 64,
    patch_side: int = 8,
    merged: int = 2,
    seed: int = 0,
    gain: float = 1.0,
    has_vision: bool = True,
) -> Path:
    """Write a tiny projector of a kind, for a model of `text_width`, and return the path.

    An image of 64 x 64 pixels takes 64 tokens with "mlp", 16 with the others; larger ones take more
    with "qwen2vl_merger" and "idefics3".
    """
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_string("general.type", "mmproj")
    writer.add_string("general.name", f"tiny {kind} {seed}")
    writer.add_bool("clip.has_vision_encoder", has_vision)
    writer.add_string("clip.projector_type", kind)
    writer.add_bool("clip.use_gelu", True)
    for name, number in (
        *(("image_size", image_side), ("patch_size", patch_side), ("embedding_length", width)),
        *(("feed_forward_length", feed_forward), ("block_count", num_layers)),
        *(("projection_dim", text_width), ("attention.head_count", num_heads)),
        *(("projector.scale_factor", merged), ("spatial_merge_size", merged)),
    ):
        writer.add_uint32(VISION + name, number)
    writer.add_float32(f"{VISION}attention.layer_norm_epsilon", 1e-6)
    for name in ("image_mean", "image_std"):
        writer.add_array(VISION + name, [0.5, 0.5, 0.5])
    mixture = Mixture(seed)
    shapes = _encoder(kind, width, feed_forward, num_layers, image_side, patch_side)
    for name, shape in {**shapes, **_joining(kind, width, text_width, merged)}.items():
        writer.add_tensor(name, _values(mixture, name, shape, gain))
    finish(writer)
    return path


Shapes = dict[str, tuple[int, ...]]


def _encoder(
    kind: str, width: int, feed_forward: int, num_layers: int, image_side: int, patch_side: int
) -> Shapes:
    """The tensors of the encoder, as NumPy's shapes."""
    patch = (width, 3, patch_side, patch_side)
    shapes: Shapes = {"v.patch_embd.weight": patch}
    if kind == "qwen2vl_merger":
        shapes["v.patch_embd.weight.1"] = patch
    else:
        shapes["v.patch_embd.bias"] = (width,)
        shapes["v.position_embd.weight"] = ((image_side // patch_side) ** 2, width)
    for layer in range(num_layers):
        block = f"v.blk.{layer}."
        for name in ("ln1", "ln2"):
            shapes |= {f"{block}{name}.weight": (width,), f"{block}{name}.bias": (width,)}
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            shapes |= {f"{block}{name}.weight": (width, width), f"{block}{name}.bias": (width,)}
        shapes |= {
            f"{block}ffn_up.weight": (feed_forward, width),
            f"{block}ffn_up.bias": (feed_forward,),
            f"{block}ffn_down.weight": (width, feed_forward),
            f"{block}ffn_down.bias": (width,),
        }
    return {**shapes, "v.post_ln.weight": (width,), "v.post_ln.bias": (width,)}


def _joining(kind: str, width: int, text_width: int, merged: int) -> Shapes:
    """The tensors between the encoder and the model."""
    of_kind: dict[str, Shapes] = {
        "mlp": {
            "mm.0.weight": (text_width, width),
            "mm.0.bias": (text_width,),
            "mm.2.weight": (text_width, text_width),
            "mm.2.bias": (text_width,),
        },
        "idefics3": {"mm.model.fc.weight": (text_width, width * merged * merged)},
        "gemma3": {
            "mm.input_projection.weight": (width, text_width),
            "mm.soft_emb_norm.weight": (width,),
        },
        "qwen2vl_merger": {
            "mm.0.weight": (4 * width, 4 * width),
            "mm.0.bias": (4 * width,),
            "mm.2.weight": (text_width, 4 * width),
            "mm.2.bias": (text_width,),
        },
    }
    return of_kind[kind]


def _values(mixture: Mixture, name: str, shape: tuple[int, ...], gain: float) -> Weights:
    if len(shape) == 1:
        is_norm = name.endswith(".weight")
        return np.ones(shape, np.float32) if is_norm else np.zeros(shape, np.float32)
    fan_in = np.prod(shape[1:]) if name != "mm.input_projection.weight" else shape[0]
    is_last = name in {"mm.2.weight", "mm.model.fc.weight", "mm.input_projection.weight"}
    scale = (gain if is_last else 1.0) / np.sqrt(fan_in)
    return mixture.draw(name, shape) * np.float32(scale)
