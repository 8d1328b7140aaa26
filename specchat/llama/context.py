"""A context for one text, or for the first of several."""

from contextlib import AbstractContextManager

from specchat.llama.library import AbortFlag
from specchat.llama.model import Model
from specchat.llama.native_context import BesideTarget, NativeContext
from specchat.llama.text_memory import TextMemory
from specchat.planning.context_shape import ContextShape, ModelOptions


class Context(TextMemory, AbstractContextManager["Context"]):
    """A context and the memory of its text; `num_bytes` is the size of that memory."""

    prompt_seconds = 0.0
    """The seconds spent while a target read its prompts: none, for a context by itself."""

    def __init__(
        self,
        model: Model,
        options: ModelOptions,
        abort: AbortFlag | None = None,
        beside: BesideTarget | None = None,
        shape: ContextShape | None = None,
    ) -> None:
        """Create a context; raises as NativeContext does."""
        native = NativeContext(model, options, abort, beside, shape)
        self.num_bytes = model.sizes.cache(native.shape)
        super().__init__(native)

    def use_threads(self, count: int) -> None:
        """Compute with this number of threads from the next pass on."""
        self.native.use_threads(count)

    def close(self) -> None:
        """Free the memory; closing twice does nothing."""
        self.native.close()

    def __exit__(self, *_: object) -> None:
        self.close()
