"""An EAGLE-3 draft: a prediction head that reads the inputs of three of its target's layers.

An encoder combines a token's three layer inputs into one state of the head's own width, which takes
the role of the target's hidden state. Everything else works as in other heads, except at the text's
first token: no state precedes it, so the head's memory has no entry for it.
"""

from collections.abc import Sequence

import numpy as np

from specchat.decoding.ports import Rows
from specchat.gguf.draft_kinds import HEAD_BATCH
from specchat.gguf.header import Header
from specchat.gguf.layer_inputs import layers_read
from specchat.llama.batch import Batch
from specchat.llama.head import Head
from specchat.llama.hidden_state_feed import HiddenStateFeed
from specchat.llama.hidden_states import HiddenStates
from specchat.llama.library import api
from specchat.llama.text_memory import TextMemory


class EagleHead(Head):
    """The memory of an EAGLE-3 draft beside its target's."""

    num_without = 1

    def make_feed(self, target: TextMemory, header: Header) -> HiddenStateFeed:
        """Return a feed of the layers' inputs, side by side."""
        layers = layers_read(header)
        width = len(layers) * target.model.width
        self._features = Batch(HEAD_BATCH, width, has_tokens=False)
        keep_features(target, layers)
        return HiddenStateFeed(target, width, lambda: features_of(target, layers))

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Append tokens; return logits as other heads do.

        The text's first token has no hidden state before it. The logits after that token alone come
        from a pass with a state of zeros, and the entry of that pass is removed again.
        """
        if self.context.num_evaluated:
            return super().evaluate(tokens, num_rows)
        if len(tokens) == 1 and num_rows:
            rows = super().evaluate(tokens, num_rows)
            self.rollback_kind.empty()
            return rows
        self.leave_out(tokens[:1])
        try:
            return super().evaluate(tokens[1:], num_rows)
        except BaseException:
            self.rollback(0)
            raise

    def joined(self, states: HiddenStates) -> HiddenStates:
        """Return the encoder's states for the inputs of the target's layers: (tokens, width)."""
        count = len(states)
        self._features.inputs[:count] = states
        self._features.fill([0] * count, count)
        return self.context.encode(self._features)


def keep_features(target: TextMemory, layers: Sequence[int]) -> None:
    """Have a target keep these layers' inputs, and its last layer's output if it is among them."""
    last = int(api.llama_model_n_layer(target.model.handle))
    if inner := [layer for layer in layers if layer < last]:
        target.keep_hidden_states(inner)
    if last in layers:
        target.keep_hidden_states()


def features_of(target: TextMemory, layers: Sequence[int]) -> HiddenStates:
    """Return the layers' inputs in a target's last pass, side by side: (tokens, layers * width)."""
    last = int(api.llama_model_n_layer(target.model.handle))
    columns = [
        target.hidden_states() if layer == last else target.layer_inputs([layer])
        for layer in layers
    ]
    return np.hstack(columns)
