"""DFlash drafts: which files hold one, and whether llama.cpp can run it."""

from dataclasses import dataclass

from specchat.gguf import reduced_vocabulary
from specchat.gguf.fatal_values import why_types_unusable
from specchat.gguf.header import Header
from specchat.gguf.layer_inputs import GIVING_LAST_OUTPUTS, why_not_given
from specchat.gguf.vocabulary_facts import (
    num_tokens,
    why_another_model,
    with_vocabulary_size,
)

ARCHITECTURE = "dflash"
USUAL_SIZE, LEAST_SIZE = 16, 2
PARTS, NUM_PARTS = "dflash.rope.dimension_sections", 4
"""How the dimensions of a head are divided between the parts of a position, for M-RoPE."""


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """What a DFlash draft reads and drafts.

    `layers` are the target's layers whose inputs it reads, `size` is the length of a block with the
    token before it, and `mask` the token that stands in for those to be drafted. A position has
    `num_parts`, all the same in a text.
    """

    layers: tuple[int, ...]
    size: int
    mask: int
    is_causal: bool
    num_parts: int


def block_facts(header: Header) -> BlockFacts:
    """Return the facts in a draft's header; zero or empty where the file lacks them."""
    layers = header.metadata.get("dflash.target_layers", ())
    kept = layers if isinstance(layers, tuple) else ()
    return BlockFacts(
        layers=tuple(layer for layer in kept if isinstance(layer, int)),
        size=header.own("block_size", USUAL_SIZE),
        mask=header.number("tokenizer.ggml.mask_token_id", -1),
        is_causal=header.metadata.get("dflash.attention.causal") is True,
        num_parts=NUM_PARTS if PARTS in header.metadata else 1,
    )


def why_unusable(header: Header) -> str | None:
    """Return why a DFlash draft cannot be used, None if it can.

    llama.cpp ends the process for most that are refused.
    """
    facts, name = block_facts(header), header.name
    if header.own("hyper_connection.count") or "hc_head_fn.weight" in header.tensors:
        return f"{name} has DeepSeek V4's layers, which are not supported in drafts"
    if not facts.layers or facts.size < LEAST_SIZE or facts.mask < 0:
        return f"{name} lacks its target's layers, its block size or its mask token"
    if header.num_layers < 1 or header.num_heads:
        return f"{name} does not have the layers of a draft"
    return (
        _why_attention_unusable(header)
        or why_types_unusable(header, header.tensors.values())
        or reduced_vocabulary.why_unusable(header)
    )


def _why_attention_unusable(header: Header) -> str | None:
    """Return why the attention's sizes cannot be used."""
    heads, shared = header.own("attention.head_count"), header.own("attention.head_count_kv")
    usual = header.own("embedding_length") // heads if heads > 0 else 0
    widths = [header.own(f"attention.{part}_length", usual) for part in ("key", "value")]
    rotated = header.own("rope.dimension_count", widths[0])
    is_odd = rotated % 2 or not 0 < rotated <= widths[0]
    if shared < 1 or heads < 1 or heads % shared or widths[0] != widths[1] or is_odd:
        return f"{header.name} has attention heads that do not fit together"
    if (parts := header.metadata.get(PARTS)) is None:
        return None
    kept = parts if isinstance(parts, tuple) and len(parts) == NUM_PARTS else ()
    numbers = [part for part in kept if type(part) is int and part >= 0]
    is_known = len(numbers) == NUM_PARTS and sum(numbers[:3]) > 0 and sum(numbers) <= rotated
    return None if is_known else f"{header.name} has parts of positions that llama.cpp cannot use"


def why_unfit(target: Header, draft: Header) -> str | None:
    """Return why a DFlash draft does not fit a target, None if it does."""
    facts, width = block_facts(draft), "embedding_length"
    widths = [("width", target.own(width), draft.own(width))]
    if reason := why_another_model(target, draft, widths):
        return reason
    if reason := why_not_given(target, facts.layers, GIVING_LAST_OUTPUTS):
        return reason
    if facts.mask >= (count := num_tokens(target)):
        return "its mask token is not in the target's vocabulary"
    return reduced_vocabulary.why_unfit(draft, count)


def as_model(header: Header) -> Header:
    """Return the header of a draft without embeddings as that of a whole model."""
    return with_vocabulary_size(header)
