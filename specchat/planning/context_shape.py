"""How contexts are made: what the user leaves open, decided in one place for plan and engine."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specchat.planning.model_layout import ModelLayout

__all__ = ["ContextShape", "context_length", "shape_context"]

DEFAULT_CONTEXT = 8192
PADDING = 256
"""llama.cpp rounds contexts and windows up to so many tokens."""
LONGEST_DRAFT = 256
LONGEST_OF_STATES = 8
"""Of a hybrid, which keeps a whole state for each token that must come out again."""
DEEP_CONTEXT = 2048
"""In contexts longer than this, verifying on a CPU is quicker without flash attention."""
SHORT_BATCH = 128
MOST_SCORES = 2**29
"""Without flash attention the scores of a batch lie in memory: at most so many bytes of them."""
PLAIN_TYPES = frozenset({"f16", "f32", "bf16"})
"""Types of cached values that do not need flash attention."""


@dataclass(frozen=True, slots=True)
class ContextShape:
    """How a context is made, by llama.cpp's parameters.

    `ctx` tokens, the cache's types, at most so many tokens a call (`batch`) and a pass (`ubatch`),
    `num_rows` rows of logits, and the recurrent states of `num_steps_back` tokens beside the last.
    `flash` is False where flash attention is to be off.
    """

    ctx: int
    key_type: str = "f16"
    value_type: str = "f16"
    batch: int = 512
    ubatch: int = 512
    flash: bool = True
    num_rows: int = 1
    num_steps_back: int = 0

    @property
    def num_cells(self) -> int:
        """The tokens there is room for."""
        return _padded(self.ctx)

    def num_window_cells(self, window: int) -> int:
        """Return the tokens that layers with a sliding window have room for."""
        return _padded(min(self.num_cells, window + self.ubatch))

    @property
    def num_tokens(self) -> int:
        """The most tokens in a pass."""
        return min(self.num_cells, self.ubatch)


def context_length(ctx: int, training_context: int) -> int:
    """Return a context's length in tokens; `ctx` 0 leaves it to the model."""
    return ctx or min(training_context or DEFAULT_CONTEXT, DEFAULT_CONTEXT)


def shape_context(
    layout: ModelLayout,
    wanted: ContextShape,
    *,
    flash_attention: str,
    rollback_length: int,
    is_on_gpu: bool,
) -> ContextShape:
    """Return how a context is made whose texts are rolled back by so many tokens.

    Context, types and batch are taken from `wanted`; flash attention is "auto", "on" or "off".

    A pass must hold a whole verification, and the states of a hybrid's last tokens in one piece.
    On CPUs llama.cpp's flash attention reads the cache once per token of a pass, a matrix product
    once for all: with 1500 tokens in the context 16 tokens took 172 ms with it and 99 ms without,
    single ones the same; next to none in the context it is up to a tenth quicker with it. So it
    stays off there in deep contexts, if it is left open.
    """
    length = min(rollback_length, LONGEST_OF_STATES if layout.is_recurrent else LONGEST_DRAFT)
    batch = max(wanted.batch, length + 2)
    shape = replace(
        wanted,
        batch=batch,
        ubatch=batch,
        flash=flash_attention != "off",
        num_rows=length + 1,
        num_steps_back=length if layout.is_recurrent and layout.steps_back else 0,
    )
    heads = max((layer.num_heads for layer in layout.layers), default=0)
    scores = 4 * heads * wanted.ctx * SHORT_BATCH
    is_better_without = (
        not is_on_gpu
        and length > 0
        and wanted.ctx > DEEP_CONTEXT
        and scores <= MOST_SCORES
        and wanted.value_type in PLAIN_TYPES
    )
    if flash_attention == "auto" and is_better_without:
        short = max(min(wanted.batch, SHORT_BATCH), length + 2)
        return replace(shape, flash=False, ubatch=short)
    return shape


def _padded(count: int) -> int:
    return -(-count // PADDING) * PADDING
