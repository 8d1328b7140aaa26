"""DFlash drafts: which files hold one, and whether llama.cpp can run it."""

from dataclasses import dataclass

from specchat.gguf import reduced_vocabulary
from specchat.gguf.fatal_values import (
    parts_of_rotation,
    why_heads_unusable,
    why_types_unusable,
)
from specchat.gguf.header import Header
from specchat.gguf.layer_inputs import GIVING_LAST_OUTPUTS, layers_read, why_not_given
from specchat.gguf.vocabulary_facts import (
    num_tokens,
    why_another_model,
)

ARCHITECTURE = "dflash"
USUAL_SIZE, LEAST_SIZE = 16, 2


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
    return BlockFacts(
        layers=layers_read(header),
        size=header.own("block_size", USUAL_SIZE),
        mask=header.number("tokenizer.ggml.mask_token_id", -1),
        is_causal=header.metadata.get("dflash.attention.causal") is True,
        num_parts=len(parts_of_rotation(header)) or 1,
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
        why_heads_unusable(header)
        or why_types_unusable(header)
        or reduced_vocabulary.why_unusable(header)
    )


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
