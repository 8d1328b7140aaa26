"""The map of a draft with a reduced vocabulary: which of the target's tokens it can propose."""

import struct

from specchat.gguf.header import Header
from specchat.gguf.reader import read_part
from specchat.gguf.tensor_types import STORED_TYPES

MAP = "d2t"
"""The tensor that maps a reduced vocabulary to the target's tokens."""


def why_unusable(draft: Header) -> str | None:
    """Return why a draft's map cannot be used, None if it can or there is none."""
    if tokens := draft.tensors.get(MAP):
        if STORED_TYPES[tokens.stored].name != "i64" or len(tokens.shape) != 1:
            return f"{draft.name} has a token map that does not consist of 64-bit integers"
        if "output.weight" not in draft.tensors:
            return f"{draft.name} has a reduced vocabulary without an output of its own"
    return None


def why_unfit(draft: Header, num_tokens: int) -> str | None:
    """Return why a draft's map does not fit a target with this number of tokens.

    Raises as `read_header` does.
    """
    mapped = draft.tensors.get(MAP)
    if mapped is None:
        return None
    is_small = mapped.num_values <= num_tokens
    if is_small and all(0 <= token < num_tokens for token in _mapped_tokens(draft)):
        return None
    return "its reduced vocabulary is not in the target's"


def _mapped_tokens(draft: Header) -> tuple[int, ...]:
    """Return the target's tokens that a draft can propose."""
    for path in draft.parts:
        part = read_part(path)
        if tokens := part.tensors.get(MAP):
            with path.open("rb") as file:
                file.seek(part.data_position + tokens.offset)
                data = file.read(tokens.num_bytes)
            return struct.unpack(f"<{len(data) // 8}q", data)
    return ()
