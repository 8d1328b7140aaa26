"""The context of what drafts for a target, as its kind makes it (specchat.gguf.draft_kinds)."""

from specchat.llama.context import Context
from specchat.llama.library import AbortFlag
from specchat.llama.model import Model
from specchat.planning.context_shape import ModelOptions


def of_draft_model(
    model: Model, options: ModelOptions, target: Context, abort: AbortFlag
) -> Context:
    """Return the context of a draft model, which needs nothing of its target's."""
    del target
    return Context(model, options, abort)
