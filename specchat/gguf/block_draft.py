"""DFlash drafts: which files hold one, and whether llama.cpp can run it."""

from dataclasses import dataclass

from specchat.gguf.header import Header
from specchat.gguf.layer_inputs import GIVING_LAST_OUTPUTS, why_not_given
from specchat.gguf.vocabulary_facts import (
    num_tokens,
    why_another_model,
    with_vocabulary_size,
)

ARCHITECTURE = "dflash"
OTHER_KINDS = ("markov_w1.weight", "selector_hidden.weight", "hc_head_fn.weight", "d2t")
"""Tensors of DSpark, DFlash 2 and drafts with a reduced vocabulary."""
USUAL_SIZE = 16


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """What a DFlash draft reads and drafts.

    `layers` are the target's layers whose inputs it reads, `size` is the length of a block with the
    token before it, and `mask` the token that stands in for those to be drafted.
    """

    layers: tuple[int, ...]
    size: int
    mask: int
    is_causal: bool


def block_facts(header: Header) -> BlockFacts:
    """Return the facts in a draft's header; zero or empty where the file lacks them."""
    layers = header.metadata.get("dflash.target_layers", ())
    kept = layers if isinstance(layers, tuple) else ()
    return BlockFacts(
        layers=tuple(layer for layer in kept if isinstance(layer, int)),
        size=header.own("block_size", USUAL_SIZE),
        mask=header.number("tokenizer.ggml.mask_token_id", -1),
        is_causal=header.metadata.get("dflash.attention.causal") is True,
    )


def why_unusable(header: Header) -> str | None:
    """Return why a DFlash draft cannot be used, None if it can."""
    facts, name = block_facts(header), header.name
    if any(kind in header.tensors for kind in OTHER_KINDS):
        return (
            f"{name} is a DSpark or DFlash 2 draft, or has a vocabulary of its own: these are"
            " not supported yet"
        )
    has_parts = "dflash.rope.dimension_sections" in header.metadata
    if has_parts or header.own("attention.sliding_window"):
        return f"{name} has a sliding window or multi-part positions, which are not supported yet"
    if not facts.layers or facts.size < 2 or facts.mask < 0:
        return f"{name} lacks its target's layers, its block size or its mask token"
    heads, shared = header.own("attention.head_count"), header.own("attention.head_count_kv")
    widths = {header.own(f"attention.{part}_length") for part in ("key", "value")}
    if not shared or heads % shared or len(widths) > 1:
        return f"{name} has attention heads that do not fit together"
    return None


def why_unfit(target: Header, draft: Header) -> str | None:
    """Return why a DFlash draft does not fit a target, None if it does."""
    facts, width = block_facts(draft), "embedding_length"
    widths = [("width", target.own(width), draft.own(width))]
    if reason := why_another_model(target, draft, widths):
        return reason
    if reason := why_not_given(target, facts.layers, GIVING_LAST_OUTPUTS):
        return reason
    is_known = facts.mask < num_tokens(target)
    return None if is_known else "its mask token is not in the target's vocabulary"


def as_model(header: Header) -> Header:
    """Return the header of a draft without embeddings as that of a whole model."""
    return with_vocabulary_size(header)
