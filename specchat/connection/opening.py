"""Opens the engine that answers: a pair on this machine, or a server's model."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from specchat.connection.address import ServerAddress, is_key, parse_address
from specchat.engine.api import Engine, Loading
from specchat.errors import InvalidOption
from specchat.requests.progress import ProgressCallback, Stage

LoadPair: TypeAlias = Callable[[Loading, Callable[[Stage, float], bool]], Engine]
"""Loads a pair and reports progress; it gives up when the callback returns False."""
EngineSource: TypeAlias = Loading | ServerAddress
"""What answers: models to load on this machine, or a server that runs one."""


def connect(
    url: str,
    *,
    model: str = "",
    key: str = "",
    on_progress: ProgressCallback | None = None,
) -> Engine:
    """Return an engine whose model the server at an address runs, such as http://127.0.0.1:8080.

    `model` is one of the server's, by default its first; `key` is sent to it. The callback is
    called while the server loads its model, and stops waiting by returning False. Raises
    InvalidOption, ServerFailed or Cancelled.
    """
    from specchat.connection.connected_engine import ConnectedEngine

    if not is_key(key):
        raise InvalidOption("key must be one word of ASCII characters")
    address = replace(parse_address(url), model=model, key=key, key_place="key")
    return ConnectedEngine(address, on_progress)


def open_engine(
    source: EngineSource, on_progress: Callable[[Stage, float], bool], load: LoadPair
) -> Engine:
    """Return the open engine of a source; `load` loads pairs.

    Raises as `Engine.load` does, or ServerFailed.
    """
    if isinstance(source, ServerAddress):
        from specchat.connection.connected_engine import ConnectedEngine

        return ConnectedEngine(source, on_progress)
    return load(source, on_progress)
