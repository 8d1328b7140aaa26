"""Several prediction heads (MTP) in turn: each drafts one token of a step, after those before it.

Each head has a context of its own, as its layer must have read every token of the text, and does so
with the target's states where they are known. The first head drafts the first token. The next one
reads that token with the first one's state, and drafts the second, and so on; the last head drafts
all further tokens. A head that is not reached reads nothing: it catches up when its turn comes.
"""

from collections.abc import Sequence
from dataclasses import replace

from specchat.decoding.ports import PromptProgress, Rows
from specchat.llama.head import Head
from specchat.llama.head_context import HeadContext
from specchat.llama.library import AbortFlag
from specchat.llama.memory_snapshot import MemorySnapshot
from specchat.llama.model import Model
from specchat.llama.text_memory import TextMemory
from specchat.planning.context_shape import ModelOptions


class HeadsInTurn(HeadContext):
    """The memories of several heads beside their target's; those of the first are the figures.

    All heads share the states that they give in a step. Tokens drafted in it that the first head
    has not read are kept aside.
    """

    def __init__(
        self,
        model: Model,
        options: ModelOptions,
        target: TextMemory,
        abort: AbortFlag | None = None,
    ) -> None:
        """Create a context for each head, and have the target keep its hidden states.

        The target must be empty. Raises as `Context` does.
        """
        self._heads: list[Head] = []
        try:
            for number in range(model.sizes.kind.num_contexts(model.header)):
                self._heads.append(Head(model, options, target, abort))
                self._heads[-1].context.native.use_head(number)
        except BaseException:
            self.close()
            raise
        self._first = self._heads[0]
        super().__init__(self._first.context, self._first.feed)
        for head in self._heads:
            head.own = self._first.own
        self._num_passes = 0
        self._drafted: list[int] = []
        target.listener = self

    @property
    def num_bytes(self) -> int:
        """The size of the memories of all heads."""
        return sum(head.num_bytes for head in self._heads)

    @property
    def prompt_seconds(self) -> float:
        """The seconds that the heads spent on their target's prompts."""
        return sum(head.prompt_seconds for head in self._heads)

    @property
    def length(self) -> int:
        """The number of tokens read, those that were drafted in this step included."""
        return self._first.length + len(self._drafted)

    def count_known(self, tokens: Sequence[int]) -> int:
        """Return how many leading tokens the first head read with the target's states."""
        return self._first.count_known(tokens)

    def prefill(self, tokens: Sequence[int], on_progress: PromptProgress | None = None) -> int:
        """Make the first head's memory hold exactly these tokens; return how many it had."""
        self._begin_step()
        return self._first.prefill(tokens, on_progress)

    def mark(self) -> None:
        """Allow a rollback to here."""
        self._first.mark()

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Append tokens; return the logits after the last ones from the head whose turn it is."""
        number = min(self._num_passes, len(self._heads) - 1)
        head = self._heads[number]
        drafted = [*self._drafted, *tokens] if self._num_passes else []
        if 0 < number == self._num_passes:
            self._catch_up(head)
            tokens = [*self._first.context.tokens[head.length :], *drafted]
        rows = head.evaluate(tokens, num_rows)
        self._drafted = drafted
        self._num_passes += 1
        return rows

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens, fewer if some were read with a head's own states."""
        self._begin_step()
        self._first.rollback(length)

    def snapshot(self) -> MemorySnapshot:
        """Return a copy of all memories, and of the states that the heads have not read yet."""
        snapshot, *others = [head.snapshot() for head in self._heads]
        return replace(snapshot, others=tuple(others))

    def restore(self, snapshot: MemorySnapshot) -> None:
        """Restore the memories from a copy; the target's must be restored first."""
        self._begin_step()
        for head, own in zip(self._heads, (snapshot, *snapshot.others), strict=True):
            head.restore(own)

    def after_pass(self, position: int, tokens: Sequence[int], *, is_prompt: bool) -> None:
        """Let the heads' feeds keep the target's states."""
        self._begin_step()
        for head in self._heads:
            head.feed.after_pass(position, tokens, is_prompt=is_prompt)

    def after_branches(self, position: int, rows: Sequence[int]) -> None:
        """Let the feeds keep the states of branches."""
        self._begin_step()
        for head in self._heads:
            head.feed.after_branches(position, rows)

    def after_rollback(self, length: int) -> None:
        """Let the feeds forget what the target forgets."""
        self._begin_step()
        for head in self._heads:
            head.feed.after_rollback(length)

    def use_threads(self, count: int) -> None:
        """Compute with this number of threads from the next pass on."""
        for head in self._heads:
            head.use_threads(count)

    def close(self) -> None:
        """Free the memories; closing twice does nothing."""
        for head in self._heads:
            head.close()

    def _begin_step(self) -> None:
        """Give the first head its turn."""
        self._num_passes = 0
        self._drafted = []

    def _catch_up(self, head: Head) -> None:
        """Cut a head's memory to a beginning of the text, and leave out tokens it cannot read.

        Its last token may be another one: a head reads a token before the target does, which may go
        on with a different one.
        """
        text, known = self._first.context.tokens, head.num_read
        if known and head.context.tokens[known - 1 : known] != text[known - 1 : known]:
            known -= 1
        head.context.rollback(known)
        first = head.feed.first_after(head.num_read)
        if first > head.num_read:
            head.leave_out(text[:first])
