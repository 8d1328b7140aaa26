"""The purpose of a GGUF file: text generation or something else, such as an adapter."""

from typing import Literal, TypeAlias

from specchat.gguf.draft_kinds import is_of_head
from specchat.gguf.header import Header

Purpose: TypeAlias = Literal["chat", "embedding", "adapter", "projector", "other", "damaged"]
"""What a GGUF file holds; only the first kind can generate text."""

BY_TYPE: dict[str, Purpose] = {"adapter": "adapter", "mmproj": "projector", "imatrix": "other"}
"""By general.type."""
BY_ARCHITECTURE: dict[str, Purpose] = {
    "clip": "projector",
    "controlvector": "other",
    "imatrix": "other",
}
ENCODERS = frozenset(
    {
        *("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "eurobert"),
        *("jina-bert-v2", "jina-bert-v3", "gemma-embedding", "t5encoder"),
        "llama-embed",
    }
)
"""Architectures that only make embeddings."""
MEDIA = frozenset(
    {
        *("pockettts", "wavtokenizer-dec", "flux", "sd1", "sd3", "sdxl", "aura"),
        *("ltxv", "hyvid", "wan", "hidream", "cosmos", "lumina2", "qwen_image"),
    }
)
"""Architectures of audio, image and video models."""
DIFFUSION = frozenset({"dream", "llada", "llada-moe", "rnd1"})
"""Architectures that generate all tokens of a text at once."""
PICTURE_TENSORS = ("model.diffusion_model.", "first_stage_model.", "cond_stage_model.")
"""How the tensors of image models are named in files that name no architecture."""
RANKING = 4
"""llama.cpp's number for the pooling type of rerankers."""
LONGEST_NAME = 60
ADAPTER = "a LoRA adapter, which specchat does not load"
PICTURES = "an audio, image or video model"


def purpose_of(header: Header) -> Purpose:
    """Return the purpose of a file by its header, or by the beginning of it."""
    if named := BY_TYPE.get(header.text("general.type")):
        return named
    kind = header.architecture
    if kind in ENCODERS or header.own("pooling_type") > 0:
        return "embedding"
    is_other = kind in MEDIA | DIFFUSION or is_of_head(header)
    purpose = BY_ARCHITECTURE.get(kind, "other" if is_other else "chat")
    what = _kind_by_tensors(header) if purpose == "chat" else ""
    return purpose if not what else "adapter" if what == ADAPTER else "other"


def purpose_text(header: Header) -> str:
    """Return what a file holds, empty for a model made to generate text."""
    purpose, kind = purpose_of(header), header.architecture
    if purpose == "projector":
        return "a vision or audio projector (mmproj)"
    if purpose == "adapter":
        return ADAPTER
    if purpose == "embedding":
        is_reranker = header.own("pooling_type") == RANKING
        return "a reranker" if is_reranker else "an embedding model"
    if purpose == "chat" or is_of_head(header):
        return ""
    if kind in DIFFUSION:
        return "a diffusion model, which specchat does not support"
    if kind in MEDIA:
        return PICTURES
    if "imatrix" in {kind, header.text("general.type")}:
        return "an importance matrix, used for quantization"
    return "a control vector" if kind == "controlvector" else _kind_by_tensors(header)


def why_no_text(header: Header) -> str | None:
    """Return what a file that cannot generate text holds, with advice; None for one that can.

    A decoder trained for embeddings can generate text, however poor.
    """
    what, purpose = purpose_text(header), purpose_of(header)
    if not what or (purpose == "embedding" and header.architecture not in ENCODERS):
        return None
    name = header.text("general.base_model.0.name")[:LONGEST_NAME]
    named = f", {name}" if name.isprintable() and name else ""
    if purpose == "adapter":
        its_model = f"its language model{named}"
        return f"{what}: merge it into {its_model}, with llama.cpp's llama-export-lora"
    if purpose == "projector" or header.architecture == "controlvector":
        return f"{what}: choose the language model it belongs to{named}"
    return f"{what}: choose a chat model"


def _kind_by_tensors(header: Header) -> str:
    """Return what a file holds whose metadata describes a model that is not there.

    Empty for a model made to generate text, and if the tensors were not read.
    """
    names = header.tensors
    if not header.is_whole:
        return ""
    if not names:
        is_vocabulary = any(key.startswith("tokenizer.") for key in header.metadata)
        return "a vocabulary without a model" if is_vocabulary else "a header without a model"
    if all(name.endswith((".lora_a", ".lora_b")) for name in names):
        return ADAPTER
    if any(name.startswith(PICTURE_TENSORS) for name in names):
        return PICTURES
    return "" if header.text("general.architecture") else "a file that names no architecture"
