"""A DSpark draft: a DFlash draft with a Markov head, which most files let draft at every row.

llama.cpp adds the Markov head's part to the logits, as if the likeliest token had been drawn at
each place before. Its confidence is not used: pacing decides on how many tokens to draft.
"""

from specchat.gguf.spark_draft import drafts_at_anchor
from specchat.llama.block_head import BlockHead
from specchat.llama.library import AbortFlag
from specchat.llama.model import Model
from specchat.llama.text_memory import TextMemory
from specchat.planning.context_shape import ModelOptions


class SparkHead(BlockHead):
    """The memory of a DSpark draft beside its target's."""

    def __init__(
        self,
        model: Model,
        options: ModelOptions,
        target: TextMemory,
        abort: AbortFlag | None = None,
    ) -> None:
        """Create the draft's context as `BlockHead` does."""
        self.first_row = 0 if drafts_at_anchor(model.header) else 1
        super().__init__(model, options, target, abort)
