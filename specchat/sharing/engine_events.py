"""What happens to a shared engine as a whole: loading, measuring, and its loss."""

from typing import Protocol

from specchat.engine.api import EngineFacts
from specchat.errors import SpecchatError
from specchat.requests.progress import Stage


class EngineEvents(Protocol):
    """Gets what happens to a shared engine as a whole.

    The engine calls on the thread that owns it, the chat's session on the UI thread.
    """

    def progressed(self, stage: Stage, share: float) -> None:
        """Note the progress of loading, from 0 to 1."""

    def loaded(self, facts: EngineFacts) -> None:
        """Note that the engine is loaded."""

    def measured(self, facts: EngineFacts) -> None:
        """Note that more is known of the pair."""

    def lost(self, error: SpecchatError) -> None:
        """Note that the engine could not be loaded, or that it has ended by itself."""


class NoEvents:
    """Ignores what happens to the engine."""

    def progressed(self, stage: Stage, share: float) -> None:
        """Ignore the progress."""

    def loaded(self, facts: EngineFacts) -> None:
        """Ignore that the engine is loaded."""

    def measured(self, facts: EngineFacts) -> None:
        """Ignore what is known."""

    def lost(self, error: SpecchatError) -> None:
        """Ignore the loss: each request fails with its reason."""
