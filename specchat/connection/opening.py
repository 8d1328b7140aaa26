"""Opens the engine that answers: a pair on this machine, or a server's model."""

from collections.abc import Callable
from typing import TypeAlias

from specchat.connection.address import ServerAddress
from specchat.engine.api import Engine, Loading, Stage

Load = Callable[[Loading, Callable[[Stage, float], bool]], Engine]
"""Loads a pair and reports progress; it gives up when the callback returns False."""
EngineSource: TypeAlias = Loading | ServerAddress
"""What answers: models to load on this machine, or a server that runs one."""


def open_engine(
    source: EngineSource, on_progress: Callable[[Stage, float], bool], load: Load
) -> Engine:
    """Return the open engine of a source; `load` loads pairs.

    Raises as `Engine.load` does, or ServerFailed.
    """
    if isinstance(source, ServerAddress):
        from specchat.connection.connected_engine import ConnectedEngine

        return ConnectedEngine(source, on_progress)
    return load(source, on_progress)
