"""EAGLE-3 drafts: which files hold one, and whether llama.cpp can run it."""

from specchat.gguf import reduced_vocabulary
from specchat.gguf.fatal_values import why_heads_unusable, why_types_unusable
from specchat.gguf.header import Header
from specchat.gguf.layer_inputs import GIVING_LAST_STATES, layers_read, why_not_given
from specchat.gguf.vocabulary_facts import (
    num_tokens,
    why_another_model,
)

ARCHITECTURE = "eagle3"
NUM_LAYERS = 3
"""The number of the target's layers that a draft reads."""
TARGET_WIDTH = "target_hidden_size"


def why_unusable(header: Header) -> str | None:
    """Return why an EAGLE-3 draft cannot be used, None if it can."""
    name, target_width = header.name, header.own(TARGET_WIDTH)
    if len(layers_read(header)) != NUM_LAYERS or target_width < 1:
        return f"{name} lacks its target's {NUM_LAYERS} layers or their width"
    if header.num_layers != 1 or header.num_heads:
        return f"{name} has {header.num_layers} layers, and only one is supported"
    width = header.own("embedding_length")
    if header.own("embedding_length_out", width) != width:
        return f"{name} gives hidden states of another width than its own"
    return (
        why_heads_unusable(header)
        or why_types_unusable(header)
        or reduced_vocabulary.why_unusable(header)
    )


def why_unfit(target: Header, draft: Header) -> str | None:
    """Return why an EAGLE-3 draft does not fit a target, None if it does."""
    return (
        why_another_model(target, draft, ())
        or _why_unreadable(target, draft)
        or _why_other_tokens(target, draft, num_tokens(target))
    )


def _why_unreadable(target: Header, draft: Header) -> str | None:
    """Return why a draft cannot read the inputs of a target's layers."""
    own, width = draft.own(TARGET_WIDTH), target.own("embedding_length")
    if own != width:
        return f"it is for a width of {own}, the target's is {width}"
    return why_not_given(target, layers_read(draft), GIVING_LAST_STATES)


def _why_other_tokens(target: Header, draft: Header, num_tokens: int) -> str | None:
    """Return why a draft cannot read or draft a target's tokens."""
    width = target.own("embedding_length")
    embedding = draft.tensors.get("token_embd.weight")
    is_alone = embedding and "output.weight" in draft.tensors
    if not is_alone and draft.own("embedding_length") != width:
        return "its width differs from the target's, whose embeddings or output it shares"
    if embedding and embedding.shape[-1] < num_tokens:
        return f"it has embeddings of {embedding.shape[-1]} tokens, the target has {num_tokens}"
    return reduced_vocabulary.why_unfit(draft, num_tokens)
