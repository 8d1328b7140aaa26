"""Tiny projectors (mmproj) with random weights, of the kinds of several families of models."""

from pathlib import Path

import gguf
import numpy as np

from scripts.support.tiny_gguf.weights import Mixture, Weights
from scripts.support.tiny_gguf.writing import finish

KINDS = (
    *("mlp", "gemma3", "gemma4v", "idefics3", "internvl", "pixtral"),
    *("qwen2vl_merger", "qwen3vl_merger"),
)
TWO_FRAMES = frozenset({"qwen2vl_merger", "qwen3vl_merger"})
"""Kinds that read two frames of a film at once, and an image as two of the same."""
WITHOUT_PLACES = frozenset({"qwen2vl_merger", "pixtral"})
"""Kinds with no table of positions: they turn queries and keys instead."""
MARKERS = ("<fake_token_around_image>", "<global-img>")
"""Tokens that "idefics3" needs of its model."""
DEEP_LAYER = 0
"""The encoder's layer whose states "qwen3vl_merger" adds, if its model reads them."""
LAST = frozenset(
    f"mm.{name}.weight" for name in ("2", "model.fc", "input_projection", "model.mlp.3")
)
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
    is_deep: bool = False,
) -> Path:
    """Write a tiny projector of a kind, for a model of `text_width`, and return the path.

    An image of 64 x 64 pixels takes 64 tokens with "mlp", 70 or more with "gemma4v", 16 with the
    others, and 19 with "pixtral"; larger ones take more, but for "mlp" and "gemma3". With `is_deep`
    it is for models with states of deeper layers (Qwen3-VL).
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
    shapes = _encoder(kind, width, feed_forward, num_layers, image_side // patch_side, patch_side)
    shapes |= _joining(kind, width, text_width, merged)
    if is_deep:
        shapes |= _deep(width * merged * merged, text_width)
    for name, shape in shapes.items():
        writer.add_tensor(name, _values(mixture, kind, name, shape, gain))
    finish(writer)
    return path


Shapes = dict[str, tuple[int, ...]]


def _encoder(
    kind: str, width: int, feed_forward: int, num_layers: int, patches: int, patch_side: int
) -> Shapes:
    """The tensors of the encoder, as NumPy's shapes."""
    patch = (width, 3, patch_side, patch_side)
    shapes: Shapes = {"v.patch_embd.weight": patch}
    if kind in TWO_FRAMES:
        shapes["v.patch_embd.weight.1"] = patch
    if kind not in {"gemma4v", "qwen2vl_merger"}:
        shapes["v.patch_embd.bias"] = (width,)
    if kind == "internvl":
        shapes["v.class_embd"] = (width,)
    if kind not in WITHOUT_PLACES:
        table = (2, 64, width) if kind == "gemma4v" else (patches**2 + (kind == "internvl"), width)
        shapes["v.position_embd.weight"] = table
    for layer in range(num_layers):
        block = f"v.blk.{layer}."
        for name in ("ln1", "ln2"):
            shapes |= {f"{block}{name}.weight": (width,), f"{block}{name}.bias": (width,)}
        attention = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_out"), (width, width))
        if kind == "qwen3vl_merger":
            attention = {"attn_qkv": (3 * width, width), "attn_out": (width, width)}
        for name, shape in attention.items():
            shapes |= {f"{block}{name}.weight": shape, f"{block}{name}.bias": shape[:1]}
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
        "gemma4v": {"mm.input_projection.weight": (text_width, width)},
        "internvl": {
            "mm.model.mlp.0.weight": (4 * width,),
            "mm.model.mlp.0.bias": (4 * width,),
            "mm.model.mlp.1.weight": (text_width, 4 * width),
            "mm.model.mlp.1.bias": (text_width,),
            "mm.model.mlp.3.weight": (text_width, text_width),
            "mm.model.mlp.3.bias": (text_width,),
        },
        "pixtral": {
            "mm.input_norm.weight": (width,),
            "mm.patch_merger.weight": (width, width * merged * merged),
            "mm.1.weight": (text_width, width),
            "mm.2.weight": (text_width, text_width),
            "v.token_embd.img_break": (text_width,),
        },
    }
    merger: Shapes = {
        "mm.0.weight": (4 * width, 4 * width),
        "mm.0.bias": (4 * width,),
        "mm.2.weight": (text_width, 4 * width),
        "mm.2.bias": (text_width,),
    }
    return merger if kind in TWO_FRAMES else of_kind[kind]


def _deep(width: int, text_width: int) -> Shapes:
    """The tensors of a deeper layer's states."""
    block = f"v.deepstack.{DEEP_LAYER}."
    return {
        f"{block}norm.weight": (width,),
        f"{block}norm.bias": (width,),
        f"{block}fc1.weight": (width, width),
        f"{block}fc1.bias": (width,),
        f"{block}fc2.weight": (text_width, width),
        f"{block}fc2.bias": (text_width,),
    }


def _values(mixture: Mixture, kind: str, name: str, shape: tuple[int, ...], gain: float) -> Weights:
    if len(shape) == 1 and not name.endswith(("class_embd", "img_break")):
        is_norm = name.endswith(".weight")
        return np.ones(shape, np.float32) if is_norm else np.zeros(shape, np.float32)
    is_transposed = kind == "gemma3" and name == "mm.input_projection.weight"
    fan_in = shape[0] if is_transposed or len(shape) == 1 else np.prod(shape[1:])
    is_last = name in LAST
    scale = (gain if is_last else 1.0) / np.sqrt(fan_in)
    return mixture.draw(name, shape) * np.float32(scale)
