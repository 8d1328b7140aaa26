"""A prediction head (MTP): a language model that reads tokens with the target's hidden states.

Entry p of a head's memory is made of token p and the target's state of token p - 1; its logits
predict token p + 1, and its own state takes the place of the target's state of token p until the
target has evaluated that token. Drafting therefore continues from the head's own states, and the
entries made from them are removed before the next step.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from specchat.decoding.ports import PromptProgress, Rows
from specchat.gguf.header import Header
from specchat.gguf.prediction_head import GIVING_OUTPUT_STATES
from specchat.llama.context import Context
from specchat.llama.head_context import HeadContext
from specchat.llama.hidden_state_feed import HiddenStateFeed
from specchat.llama.hidden_states import HiddenStates
from specchat.llama.library import AbortFlag
from specchat.llama.memory_snapshot import MemorySnapshot
from specchat.llama.model import Model
from specchat.llama.native_context import BesideTarget
from specchat.llama.rollback import Rollback
from specchat.llama.text_memory import TextMemory
from specchat.planning.context_shape import ModelOptions


class Head(HeadContext):
    """The memory of a prediction head beside its target's.

    Entries made from the target's states stay; those made from its own states are removed at the
    next rollback. The text's first `num_without` tokens have none. Its `own` states of this step
    are kept by the position of the token that each precedes.
    """

    num_without = 0

    def __init__(
        self,
        model: Model,
        options: ModelOptions,
        target: TextMemory,
        abort: AbortFlag | None = None,
    ) -> None:
        """Create the head's context, and have the target keep its hidden states.

        The target must be empty. Raises as `Context` does.
        """
        beside = BesideTarget(target.handle, model.hidden_width)
        context = Context(model, options, abort, beside)
        super().__init__(context, self.make_feed(target, model.header))
        self._nothing = np.zeros(model.hidden_width, np.float32)
        self.own: dict[int, HiddenStates] = {}
        self._is_of_outputs = model.header.architecture in GIVING_OUTPUT_STATES
        context.keep_hidden_states(of_outputs=self._is_of_outputs)
        context.source = self
        self.feed.begin(self)

    def make_feed(self, target: TextMemory, header: Header) -> HiddenStateFeed:
        """Return a feed of what the head with this header reads: the last layer's states."""
        del header
        target.keep_hidden_states()
        return HiddenStateFeed(target, target.model.hidden_width, target.hidden_states)

    @property
    def length(self) -> int:
        """The number of tokens in the memory."""
        return self.context.length

    @property
    def num_read(self) -> int:
        """The number of leading tokens that were read with the target's states."""
        return min(self.feed.num_taken, self.context.num_evaluated)

    def count_known(self, tokens: Sequence[int]) -> int:
        """Return how many leading tokens were read with the target's states."""
        return min(self.context.count_known(tokens), self.num_read)

    def prefill(self, tokens: Sequence[int], on_progress: PromptProgress | None = None) -> int:
        """Make the memory hold exactly these tokens; return how many were there already."""
        num_known = self.count_known(tokens)
        if num_known < self.length:
            self.rollback(num_known)
        self.own.clear()
        first = max(self.num_without, self.feed.first_after(self.num_read))
        if first > self.num_read:
            self.leave_out(tokens[:first])
        self.context.prefill(tokens, on_progress)
        return num_known

    def mark(self) -> None:
        """Allow a rollback to here."""
        self.context.mark()

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Append tokens; return the logits after each of the last `num_rows`, as views."""
        rows = self.context.evaluate(tokens, num_rows)
        if num_rows:
            last = len(rows) - 1 if self._is_of_outputs else -1
            self.own[self.context.num_evaluated] = self.context.hidden_states()[last].copy()
        return rows

    def restore(self, snapshot: MemorySnapshot) -> None:
        """Restore the memory from a copy; the target's must be restored first."""
        super().restore(snapshot)
        self.own.clear()

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens, fewer if some were read with the head's own states."""
        self.context.rollback(min(length, self.num_read))
        self.own.clear()

    def fill(self, position: int, count: int) -> None:
        """Fill in the states that precede the next tokens: the target's, then the head's own."""
        self.context.batch.place(position, count)
        states = self.feed.take(position, count)
        inputs, num_known = self.context.batch.inputs, len(states)
        if num_known:
            inputs[:num_known] = self.joined(states)
        for place in range(num_known, count):
            inputs[place] = self.own.get(position + place, self._nothing)

    def joined(self, states: HiddenStates) -> HiddenStates:
        """Return states of the feed in the form that the head reads: unchanged."""
        return states


class SharedHead(HeadContext):
    """A head without a memory of its own: its layers attend to the cache of the target's last ones.

    Every pass takes one token, placed directly after those that the target has evaluated; the
    tokens drafted before it are present in the hidden state alone. The head's memory must never be
    emptied: llama.cpp would empty the target's with it.
    """

    def __init__(
        self,
        model: Model,
        options: ModelOptions,
        target: TextMemory,
        abort: AbortFlag | None = None,
    ) -> None:
        """Create the head's context on the target's memory, which has the same layout for both."""
        if not target.shape.flash:
            options = replace(options, flash_attention="off")
        context = Context(model, options, abort, BesideTarget(target.handle, model.hidden_width))
        feed = HiddenStateFeed(target, target.model.hidden_width, target.hidden_states)
        super().__init__(context, feed)
        context.rollback_kind = Rollback(context.handle, "tail", lambda *_: True)
        self._target = target
        self._own: HiddenStates | None = None
        for reader in (target, context):
            reader.keep_hidden_states()
        feed.begin(self)
        target.listener = self

    @property
    def length(self) -> int:
        """The number of tokens in the target's memory."""
        return self._target.length

    @property
    def num_read(self) -> int:
        """All tokens of the target, whose memory this is."""
        return self.length

    def count_known(self, tokens: Sequence[int]) -> int:
        """Return how many leading tokens are in the target's memory."""
        return self._target.count_known(tokens)

    def prefill(self, tokens: Sequence[int], on_progress: PromptProgress | None = None) -> int:
        """Return the number of tokens: the target evaluates them all."""
        del on_progress
        return len(tokens)

    def mark(self) -> None:
        """Do nothing: a draft leaves nothing in the memory."""

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Return the logits after the last token; the target evaluates the others."""
        del num_rows
        context, inputs = self.context, self.context.batch.inputs
        context.num_evaluated = self.length
        inputs[:1] = 0 if self._own is None else self._own
        if self._own is None and len(states := self.feed.take(self.length, 1)):
            inputs[:1] = states
        context.batch.fill(tokens[-1:], 1)
        context.run(context.batch)
        self._own = context.hidden_states()[-1].copy()
        rows = context.logits(1)
        return rows if self.length else [np.zeros_like(rows[0])]  # attention to nothing: no number

    def snapshot(self) -> MemorySnapshot:
        """Return a copy of the states that the head has not read; the memory is the target's."""
        return MemorySnapshot([], np.empty(0, np.uint8), states=self.feed.snapshot())

    def restore(self, snapshot: MemorySnapshot) -> None:
        """Restore the states."""
        self._own = None
        self.feed.restore(snapshot.states)

    def rollback(self, length: int) -> None:
        """Continue from the target's state."""
        del length
        self._own = None

    def after_pass(self, position: int, tokens: Sequence[int], *, is_prompt: bool) -> None:
        """Let the feed keep the target's states, and continue from them."""
        self._own = None
        self.feed.after_pass(position, tokens, is_prompt=is_prompt)

    def after_branches(self, position: int, rows: Sequence[int]) -> None:
        """Let the feed keep the states of branches."""
        self._own = None
        self.feed.after_branches(position, rows)

    def after_rollback(self, length: int) -> None:
        """Let the feed forget what the target forgets."""
        self.feed.after_rollback(length)
