"""How one model is loaded, and the parameters of its context, for both the plan and the engine."""

from dataclasses import dataclass, replace

from specchat.options.declarations import LoadOptions
from specchat.options.option import declare
from specchat.planning.model_layout import ModelLayout
from specchat.planning.placement import NONE_KEPT, BlocksOnHost

DEFAULT_CONTEXT = 8192
USUAL_TYPE = "f16"
"""The default type of cached keys and values."""
PADDING = 256
"""llama.cpp rounds contexts and windows up to a multiple of this."""
LONGEST_ROLLBACK = 256
LONGEST_OF_STATES = 8
"""For recurrent models, which may keep a whole state for each token that can be rolled back."""
DEEP_CONTEXT = 2048
"""In contexts longer than this, verification on a CPU is faster without flash attention."""
USUAL_BATCH = 512
COPYING_BATCH = 2048
"""Where passes copy weights to a GPU, however many tokens they have: llama.cpp does from 32 on."""
SHORT_BATCH = 128
MOST_BRANCHES = 24
MOST_SCORES = 2**29
"""The largest size of the attention scores in bytes, which memory holds without flash attention."""
PLAIN_TYPES = frozenset({"f16", "f32", "bf16"})
"""The types of cached values that work without flash attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions(LoadOptions):
    """The options of one model of a pair and of its context, as chosen by the plan.

    `rollback_length` is the number of tokens that can be rolled back. `is_repacked` copies weights
    on the CPU into a faster layout. Parts of the blocks `kept` stay on the CPU. `with_head` also
    loads the model's prediction head. Its context holds `num_texts`; passes over a single one may
    have branches beside it if it `has_branches` and its memory can hold them. With
    `vocabulary_only` no weights are loaded. A pass has room for `image_cells` tokens of an image
    that attend to each other.
    """

    rollback_length: int = declare(
        16, "Tokens that can be rolled back.", minimum=0, maximum=256, is_setting=False
    )
    is_repacked: bool = True
    kept: BlocksOnHost = NONE_KEPT
    with_head: bool = False
    has_branches: bool = False
    num_texts: int = 1
    image_cells: int = 0
    vocabulary_only: bool = False


@dataclass(frozen=True, slots=True)
class ContextShape:
    """The parameters of a context, in llama.cpp's terms.

    `batch` and `ubatch` limit the tokens of a call and of a pass, `num_rows` the rows of logits.
    `num_steps_back` is the number of tokens before the last whose recurrent state is kept, and
    `num_branches` that of branches beside the text, each with a sequence of its own. `ctx` is the
    length of each of `num_texts`, which have caches of their own.
    """

    ctx: int
    cache_type: str = USUAL_TYPE
    batch: int = 512
    ubatch: int = 512
    flash: bool = True
    num_rows: int = 1
    num_steps_back: int = 0
    num_branches: int = 0
    num_texts: int = 1

    def num_cells(self, window: int = 0, ratio: int = 1) -> int:
        """Return the KV cache's cells for layers with a sliding window, 0 for those without.

        A `ratio` of tokens share a cell.
        """
        seen = min(self.ctx, window + self.ubatch) if window else -(-self.ctx // ratio)
        return -(-seen // PADDING) * PADDING

    @property
    def num_tokens(self) -> int:
        """The largest number of tokens in a pass."""
        return min(self.num_cells(), self.ubatch)

    @property
    def num_rows_in_all(self) -> int:
        """The largest number of rows of a pass that all texts share."""
        most = self.num_texts * self.num_rows
        return most if self.num_texts == 1 else min(most, self.ubatch)

    @property
    def num_reserved(self) -> int:
        """The number of tokens that buffers are made for: as many for each sequence."""
        sequences = self.num_texts + self.num_branches
        return -(-self.num_tokens // sequences) * sequences


def context_length(ctx: int, layout: ModelLayout) -> int:
    """Return the size of a context in tokens; `ctx` 0 means the model's own.

    A table of absolute positions limits it: beyond its end llama.cpp ends the process.
    """
    wanted = ctx or min(layout.training_context or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    return min(wanted, layout.num_positions or wanted)


def shape_context(layout: ModelLayout, options: ModelOptions, *, is_on_gpu: bool) -> ContextShape:
    """Return the shape of a model's context.

    A whole verification fits into one pass. On CPUs llama.cpp's flash attention reads the cache
    once per token of a pass, plain attention once per pass: at 1500 tokens a pass of 16 took 172 ms
    with it and 99 ms without. So on CPUs "auto" turns it off in long contexts, and in all contexts
    if `exact` is "on": with it, passes over several tokens give other bits than single-token ones.
    """
    longest = LONGEST_OF_STATES if layout.is_recurrent else LONGEST_ROLLBACK
    length = min(options.rollback_length, longest)
    ctx = context_length(options.ctx, layout)
    num_branches = MOST_BRANCHES if _holds_branches(layout, options) else 0
    num_rows = 1 + max(length, num_branches)
    wanted = options.batch or USUAL_BATCH
    batch = max(wanted, num_rows + 1, options.image_cells)
    shape = ContextShape(
        ctx=ctx,
        cache_type=USUAL_TYPE if options.cache_type == "auto" else options.cache_type,
        batch=batch,
        ubatch=batch,
        flash=options.flash_attention != "off",
        num_rows=num_rows,
        num_steps_back=length if layout.steps_back else 0,
        num_branches=num_branches,
        num_texts=options.num_texts,
    )
    heads = max((layer.num_heads for layer in layout.layers), default=0)
    is_better_without = (
        not is_on_gpu
        and length > 0
        and (ctx > DEEP_CONTEXT or options.exact == "on")
        and 4 * heads * ctx * SHORT_BATCH <= MOST_SCORES
        and shape.cache_type in PLAIN_TYPES
    )
    if options.flash_attention == "auto" and is_better_without:
        short = max(min(wanted, SHORT_BATCH), num_rows + 1, options.image_cells)
        return replace(shape, flash=False, ubatch=short)
    return shape


def _holds_branches(layout: ModelLayout, options: ModelOptions) -> bool:
    """Whether a model's memory is to have sequences for branches."""
    return options.has_branches and options.num_texts == 1 and why_no_branches(layout) is None


def why_no_branches(layout: ModelLayout) -> str | None:
    """Return why a model's memory holds no branches beside the text, None if it can.

    A cache of the whole text holds several sequences in one set of cells. With a sliding window
    each would have cells of its own, and a recurrent state is that of one text.
    """
    if layout.is_recurrent:
        return "the model has a recurrent state, which holds one text"
    if any(layer.is_windowed for layer in layout.layers):
        return "the model has a sliding window, whose cache holds one text"
    return None
