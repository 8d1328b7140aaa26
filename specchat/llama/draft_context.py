"""The context of what drafts for a target, as its kind makes it (specchat.gguf.draft_kinds)."""

from typing import Protocol

from specchat.decoding.ports import LanguageModel
from specchat.llama.context import Context
from specchat.llama.library import AbortFlag
from specchat.llama.memory_image import MemoryImage
from specchat.llama.model import Model
from specchat.llama.rollback import Rollback
from specchat.llama.tree_context import TreeContext
from specchat.planning.context_shape import ModelOptions


class DraftContext(LanguageModel, Protocol):
    """A draft as the engine sees it: what its kind `runs` returns."""

    @property
    def model(self) -> Model:
        """The loaded model."""

    @property
    def rollback_kind(self) -> Rollback:
        """How tokens are removed from its memory."""

    @property
    def num_bytes(self) -> int:
        """The size of its memory."""

    @property
    def prompt_seconds(self) -> float:
        """What it spent on its target's prompts while the target read them."""

    def image(self) -> MemoryImage:
        """Return a copy of its memory."""

    def restore(self, image: MemoryImage) -> None:
        """Make its memory what it was, after the target's."""

    def close(self) -> None:
        """Free the memory; closing twice does nothing."""


def of_draft_model(
    model: Model, options: ModelOptions, target: Context, abort: AbortFlag
) -> Context:
    """Return the context of a draft model, which needs nothing of its target's."""
    del target
    return TreeContext(model, options, abort)
