"""The context of a target's draft: each kind of draft has its own (specchat.gguf.draft_kinds)."""

from typing import Protocol

from specchat.decoding.ports import LanguageModel
from specchat.llama.context import Context
from specchat.llama.library import AbortFlag
from specchat.llama.memory_snapshot import MemorySnapshot
from specchat.llama.model import Model
from specchat.llama.rollback import Rollback
from specchat.llama.text_memory import TextMemory
from specchat.planning.context_shape import ModelOptions


class DraftContext(LanguageModel, Protocol):
    """A draft as the engine sees it; `runs` of its kind returns one."""

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
        """The seconds it spent on prompts while its target read them."""

    @property
    def image_seconds(self) -> float:
        """The seconds that encoding images has taken so far."""

    def snapshot(self) -> MemorySnapshot:
        """Return a copy of its memory."""

    def restore(self, snapshot: MemorySnapshot) -> None:
        """Restore its memory from a copy; the target's must be restored first."""

    def use_threads(self, count: int) -> None:
        """Compute with this number of threads from the next pass on."""

    def close(self) -> None:
        """Free the memory; closing twice does nothing."""


def of_draft_model(
    model: Model, options: ModelOptions, target: TextMemory, abort: AbortFlag
) -> Context:
    """Return the context of a draft model, which is independent of its target's."""
    del target
    return Context(model, options, abort)
