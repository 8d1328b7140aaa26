"""DSpark drafts: DFlash drafts whose logits depend on the token that is likeliest before each."""

from specchat.gguf import block_draft
from specchat.gguf.header import Header

MARKER = "markov_w1.weight"
"""A tensor that only such drafts have."""
FROM_ANCHOR = "dflash.sample_from_anchor"


def drafts_at_anchor(header: Header) -> bool:
    """Return whether a block's first row, that of the text's last token, drafts a token."""
    return header.metadata.get(FROM_ANCHOR, True) is True


def why_unusable(header: Header) -> str | None:
    """Return why a DSpark draft cannot be used, None if it can."""
    if header.own("block_size") < block_draft.LEAST_SIZE:
        return f"{header.name} lacks its block size"
    if not isinstance(header.metadata.get(FROM_ANCHOR, True), bool):
        return f"{header.name} does not say which rows draft"
    return block_draft.why_unusable(header)
