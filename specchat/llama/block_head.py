"""A DFlash draft: a model of a few layers that drafts a whole block of tokens in one pass.

Its keys and values for each token of the text are computed from the inputs of some of the target's
layers at that token. A pass over the text's last token, followed by mask tokens, then gives logits
at every mask, each computed without knowing what the other masks stand for.
"""

from collections.abc import Sequence

from specchat.decoding.ports import PromptProgress, Rows
from specchat.gguf.block_draft import block_facts
from specchat.gguf.draft_kinds import HEAD_BATCH
from specchat.llama.batch import Batch
from specchat.llama.context import Context
from specchat.llama.head_context import HeadContext
from specchat.llama.hidden_state_feed import HiddenStateFeed
from specchat.llama.library import AbortFlag, api
from specchat.llama.memory_snapshot import MemorySnapshot
from specchat.llama.model import Model
from specchat.llama.native_context import BesideTarget
from specchat.llama.rollback import Rollback
from specchat.llama.text_memory import TextMemory
from specchat.planning.context_shape import ModelOptions


class BlockHead(HeadContext):
    """The memory of a DFlash draft beside its target's, for the tokens that the target evaluated.

    The tokens of the block drafted last come after those and are in no memory. A pass drafts up to
    `room` tokens, at most `longest_block`, with the logits from the block's `first_row` on.
    """

    keeps_states = False
    """Whether it reads states that the draft gives beside its logits."""

    def __init__(
        self,
        model: Model,
        options: ModelOptions,
        target: TextMemory,
        abort: AbortFlag | None = None,
    ) -> None:
        """Create the draft's context, and have the target keep the layer inputs that it needs.

        The target must be empty. Raises as `Context` does.
        """
        facts = block_facts(model.header)
        context = Context(model, options, abort, BesideTarget(target.handle, 0))
        width = len(facts.layers) * target.model.width
        feed = HiddenStateFeed(target, width, lambda: target.layer_inputs(facts.layers), 0)
        super().__init__(context, feed)
        context.rollback_kind = Rollback(context.handle, "tail", lambda *_: True)
        self._mask = facts.mask
        self._injection = Batch(HEAD_BATCH, width, has_tokens=False, num_parts=facts.num_parts)
        self._block: Rows = ()
        self._drafted: list[int] = []  # those of the block that were evaluated
        longest = min(facts.size, context.longest_draft + 1)
        self.room = self.longest_block = longest - self.first_row
        api.llama_set_causal_attn(context.handle, facts.is_causal)
        target.keep_hidden_states(facts.layers)
        if self.keeps_states:
            context.keep_hidden_states()
        feed.begin(self)

    @property
    def first_row(self) -> int:
        """The first row of a block that drafts a token."""
        return 1

    @property
    def length(self) -> int:
        """The number of tokens in the memory, plus those of the drafted block read so far."""
        return self.num_read + len(self._drafted)

    @property
    def num_read(self) -> int:
        """The number of tokens in the memory."""
        return self.context.num_evaluated

    def count_known(self, tokens: Sequence[int]) -> int:
        """Return how many leading tokens are in the memory."""
        return self.context.count_known(tokens)

    def prefill(self, tokens: Sequence[int], on_progress: PromptProgress | None = None) -> int:
        """Make the memory hold exactly these tokens; return how many were there already."""
        del on_progress
        num_known = self.count_known(tokens)
        self.rollback(num_known)
        if (first := self.feed.first_after(self.num_read)) > self.num_read:
            self.leave_out(tokens[:first])
        self._inject(tokens[self.num_read :])
        return num_known

    def mark(self) -> None:
        """Do nothing: any rollback is possible."""

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Return the logits after the last token, from a new block or from the one drafted last."""
        del num_rows
        if not self._block:
            self._inject(tokens[:-1])
            self._block = self._draft_block(tokens[-1])
            tokens = tokens[-1:]
        self._drafted += tokens
        return [self._block[len(self._drafted) - 1]]

    def restore(self, snapshot: MemorySnapshot) -> None:
        """Restore the memory from a copy; the target's must be restored first."""
        self._block, self._drafted = (), []
        super().restore(snapshot)

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens, and drop the drafted block."""
        self._block, self._drafted = (), []
        self.context.rollback(min(length, self.num_read))

    def _inject(self, tokens: Sequence[int]) -> None:
        """Append tokens to the memory; layer inputs that were lost count as zeros."""
        self.rollback(self.num_read)
        while tokens:
            part, tokens = tokens[:HEAD_BATCH], tokens[HEAD_BATCH:]
            states = self.feed.take(self.num_read, len(part))
            self._injection.inputs[: len(states)] = states
            self._injection.inputs[len(states) :] = 0
            self._injection.fill(part, 0)
            self._injection.place(self.num_read, len(part))
            self.context.run(self._injection)
            self.context.tokens += part

    def _draft_block(self, last: int) -> Rows:
        """Return the logits of a block after the last token, and remove its masks from the memory.

        Every row is asked for, because llama.cpp returns the first rows of such a pass whichever
        are requested.
        """
        count = self.first_row + max(1, min(self.room, self.longest_block))
        self.context.batch.fill([last, *[self._mask] * (count - 1)], count)
        self.context.batch.place(self.num_read, count)
        self.context.run(self.context.batch)
        rows = self._rows_of_block(count)
        # masks stand for tokens that nobody knows yet, so their entries must not stay
        self.context.rollback(self.num_read - count)
        return rows

    def _rows_of_block(self, count: int) -> Rows:
        """Return the logits of the places after a pass over `count` tokens."""
        return self.context.logits(count)[self.first_row :]
