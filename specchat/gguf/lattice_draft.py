"""DFlash 2 drafts: which files hold one, and whether llama.cpp can run it.

Such a draft has a lattice: for each place of a block a few candidates, and the score of each after
each candidate of the place before.
"""

from specchat.gguf import block_draft, reduced_vocabulary
from specchat.gguf.header import Header
from specchat.gguf.tensor_types import STORED_TYPES
from specchat.gguf.vocabulary_facts import num_tokens

MARKER = "selector_hidden.weight"
"""A tensor that only such drafts have."""
SIZES = ("block_size", "conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
LARGEST_ID = 2**24
"""llama.cpp gives tokens as floating-point numbers, which are exact up to here."""


def num_candidates(header: Header) -> int:
    """Return the number of candidates for each place, 0 if the file lacks it."""
    return header.own("selector_top_k")


def why_unusable(header: Header) -> str | None:
    """Return why a DFlash 2 draft cannot be used, None if it can."""
    name, count = header.name, num_candidates(header)
    for size in SIZES:
        if header.own(size) < 1:
            return f"{name} lacks its {size.replace('_', ' ')}"
    width = header.own("embedding_length")
    if width % header.own("conv_group_size") or width < count * (count + 1):
        return (
            f"{name} has a width of {width}, which its {count} candidates or its groups do not fit"
        )
    drafted = header.tensors.get(reduced_vocabulary.MAP)
    num_drafted = drafted.num_values if drafted else num_tokens(header)
    if count > num_drafted or num_tokens(header) > LARGEST_ID:
        return f"{name} has a vocabulary that its {count} candidates do not fit"
    for tensor in header.tensors.values():
        is_base = tensor.name.endswith("_conv_base")
        if is_base and STORED_TYPES[tensor.stored].name != "f32":
            return f"{name} has the tensor {tensor.name} in another type than f32"
    return block_draft.why_unusable(header)
