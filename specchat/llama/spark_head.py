"""A DSpark draft: a DFlash draft with a Markov head, which most files let draft at every row.

llama.cpp adds the Markov head's part to the logits, as if the likeliest token had been drawn at
each place before. Its confidence is not used: pacing decides on how many tokens to draft.
"""

from specchat.gguf.spark_draft import drafts_at_anchor
from specchat.llama.block_head import BlockHead


class SparkHead(BlockHead):
    """The memory of a DSpark draft beside its target's."""

    @property
    def first_row(self) -> int:
        """The first row of a block that drafts a token: that of the text's last one in most."""
        return 0 if drafts_at_anchor(self.model.header) else 1
