"""What all prediction heads share: a context of their own and a feed of the target's states."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from specchat.llama.context import Context
from specchat.llama.hidden_state_feed import HiddenStateFeed
from specchat.llama.memory_snapshot import MemorySnapshot
from specchat.llama.model import Model
from specchat.llama.rollback import Rollback


class HeadContext(AbstractContextManager["HeadContext"]):
    """The context and the feed of a head, with the figures and copies that the engine asks for."""

    num_waiting = 0
    image_seconds = 0.0
    """The seconds that encoding images took: none, for it has the target's states of them."""

    def __init__(self, context: Context, feed: HiddenStateFeed) -> None:
        self.context = context
        self.feed = feed

    @property
    def model(self) -> Model:
        """The head's model."""
        return self.context.model

    @property
    def capacity(self) -> int:
        """The number of tokens that the memory can hold."""
        return self.context.capacity

    @property
    def rollback_kind(self) -> Rollback:
        """How tokens are removed from the memory."""
        return self.context.rollback_kind

    @property
    def num_bytes(self) -> int:
        """The size of the head's own memory."""
        return self.context.num_bytes

    @property
    def prompt_seconds(self) -> float:
        """The seconds that the head spent on its target's prompts."""
        return self.feed.prompt_seconds

    def leave_out(self, tokens: Sequence[int]) -> None:
        """Empty the memory, and count the text's first tokens as read, at their positions."""
        self.context.rollback_kind.begin_with(())
        self.context.rollback_kind.empty()
        self.context.tokens, self.context.num_evaluated = list(tokens), len(tokens)
        self.feed.num_taken = len(tokens)

    def snapshot(self) -> MemorySnapshot:
        """Return a copy of the memory, and of the states that the head has not read yet."""
        return replace(self.context.snapshot(), states=self.feed.snapshot())

    def restore(self, snapshot: MemorySnapshot) -> None:
        """Restore the memory from a copy; the target's must be restored first."""
        self.context.restore(snapshot)
        self.feed.restore(snapshot.states)

    def use_threads(self, count: int) -> None:
        """Compute with this number of threads from the next pass on."""
        self.context.use_threads(count)

    def close(self) -> None:
        """Free the memory; closing twice does nothing."""
        self.context.close()

    def __exit__(self, *_: object) -> None:
        self.close()
