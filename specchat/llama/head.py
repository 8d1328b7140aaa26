"""A prediction head (MTP): a language model that reads tokens with the target's hidden states.

Entry p of a head's memory is made of token p and the target's state of token p - 1; its logits are
for token p + 1, and its own state stands in for the target's as long as that has not evaluated
token p. So drafting goes on from the head's own states, and what is made of those is removed before
the next step.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from specchat.decoding.ports import PromptProgress, Rows
from specchat.llama.context import BesideTarget, Context
from specchat.llama.head_context import HeadContext
from specchat.llama.hidden_state_feed import HiddenStateFeed
from specchat.llama.hidden_states import HiddenStates
from specchat.llama.library import AbortFlag
from specchat.llama.memory_image import MemoryImage
from specchat.llama.model import Model
from specchat.llama.rollback import Rollback
from specchat.planning.context_shape import ModelOptions


class Head(HeadContext):
    """The memory of a prediction head beside its target's.

    Tokens it reads with the target's states stay; those with its own go at the next rollback.
    """

    def __init__(
        self, model: Model, options: ModelOptions, target: Context, abort: AbortFlag | None = None
    ) -> None:
        """Make the head's context, and let the target hand over its hidden states.

        The target must be empty. Raises as `Context` does.
        """
        beside = BesideTarget(target, model.hidden_width)
        context = Context(model, options, abort, beside)
        super().__init__(context, self.make_feed(target))
        self._nothing = np.zeros(model.hidden_width, np.float32)
        self._own = self._nothing
        context.keep_hidden_states()
        context.source = self
        self.feed.begin(self)

    def make_feed(self, target: Context) -> HiddenStateFeed:
        """Return a feed of the states that the target's last layer gives."""
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
        self._own = self._nothing
        return self.context.prefill(tokens, on_progress)

    def mark(self) -> None:
        """Allow a rollback to here."""
        self.context.mark()

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Append tokens; return the logits after each of the last `num_rows`, as views."""
        rows = self.context.evaluate(tokens, num_rows)
        if num_rows:
            self._own = self.context.hidden_states()[-1].copy()
        return rows

    def restore(self, image: MemoryImage) -> None:
        """Make the memory what it was, after the target's."""
        super().restore(image)
        self._own = self._nothing

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens, fewer if some were read with the head's own states."""
        self.context.rollback(min(length, self.num_read))
        self._own = self._nothing

    def fill(self, position: int, count: int) -> None:
        """Fill in the states before the next tokens; behind the target's, the head's own."""
        states = self.feed.take(position, count)
        inputs, num_known = self.context.batch.inputs, len(states)
        if num_known:
            inputs[:num_known] = self.joined(states)
        inputs[num_known:count] = self._own if count == 1 else self._nothing
        self._own = self._nothing

    def joined(self, states: HiddenStates) -> HiddenStates:
        """Return states of the feed as the head reads them, which is as they are."""
        return states


class SharedHead(HeadContext):
    """A head without a memory of its own, whose layers read the last ones of its target's.

    Every pass takes one token, which follows what the target has evaluated: those drafted before
    it are in the hidden state alone. llama.cpp empties the target's memory with the head's, so that
    is never done.
    """

    def __init__(
        self, model: Model, options: ModelOptions, target: Context, abort: AbortFlag | None = None
    ) -> None:
        """Make the head's context over the target's memory, which has the same layout for both."""
        if not target.shape.flash:
            options = replace(options, flash_attention="off")
        context = Context(model, options, abort, BesideTarget(target, model.hidden_width))
        feed = HiddenStateFeed(target, target.model.hidden_width, target.hidden_states)
        super().__init__(context, feed)
        context.rollback_kind = Rollback(context.handle, "tail", lambda *_: True)
        self._target = target
        self._own: HiddenStates | None = None
        for each in (target, context):
            each.keep_hidden_states()
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
        """Return the number of tokens, all of which the target reads."""
        del on_progress
        return len(tokens)

    def mark(self) -> None:
        """Nothing to prepare: nothing is kept of what is drafted."""

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Return the logits after the last token; the others are the target's to evaluate."""
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

    def image(self) -> MemoryImage:
        """Return the states that the head has not read yet: the memory is the target's."""
        return MemoryImage([], np.empty(0, np.uint8), states=self.feed.snapshot())

    def restore(self, image: MemoryImage) -> None:
        """Take over the states."""
        self._own = None
        self.feed.restore(image.states)

    def rollback(self, length: int) -> None:
        """Go on with the target's state."""
        del length
        self._own = None

    def after_pass(self, position: int, tokens: Sequence[int], *, is_prompt: bool) -> None:
        """Go on with the target's states, which the feed keeps."""
        self._own = None
        self.feed.after_pass(position, tokens, is_prompt=is_prompt)

    def after_branches(self, position: int, rows: Sequence[int]) -> None:
        """Let the feed keep the states of branches."""
        self._own = None
        self.feed.after_branches(position, rows)

    def after_rollback(self, length: int) -> None:
        """Let the feed forget what the target forgets."""
        self.feed.after_rollback(length)
