"""The engine of the thread that owns it: loaded, loaded again if it dies, measured, and ended."""

import gc
from collections.abc import Callable
from typing import TypeAlias

from specchat.engine.api import Engine, EngineFacts
from specchat.errors import EngineFailed, SpecchatError
from specchat.images.image import Image
from specchat.requests.progress import ProgressCallback, Stage
from specchat.sharing.engine_events import EngineEvents

OpenEngine: TypeAlias = Callable[[Callable[[Stage, float], bool]], Engine]
"""Loads the engine; it gives up when the callback returns False."""


class OwnedEngine:
    """An engine, while there is one.

    Any thread may stop or kill it and read what is known of it; all else is for its owner.
    """

    def __init__(
        self,
        load: OpenEngine,
        engine: Engine | None,
        events: EngineEvents,
        is_wanted: Callable[[], bool],
    ) -> None:
        """Begin with an engine, or with none; loading goes on while one `is_wanted`."""
        self._load, self._engine = load, engine
        self._events, self._is_wanted = events, is_wanted
        self._facts: EngineFacts | None = None
        self.num_restarts = 0
        """How often the engine died and was loaded again."""

    # --- for any thread; the owner may let go of the engine meanwhile

    @property
    def facts(self) -> EngineFacts | None:
        """The facts about the engine, or about the last one; None before one is loaded."""
        if (engine := self._engine) is not None:
            self._facts = engine.facts
        return self._facts

    def held_bytes(self) -> int:
        """Return the bytes of the host's memory that closing frees at once, 0 if unknown."""
        return engine.held_bytes() if (engine := self._engine) is not None else 0

    def has_ended(self) -> bool:
        """Return True if the engine's process has ended by itself."""
        return (engine := self._engine) is not None and engine.has_ended()

    def image_tokens(self, image: Image) -> list[int]:
        """Return an image as tokens. Raises as `Engine.image_tokens`, and EngineFailed."""
        if (engine := self._engine) is None:
            raise EngineFailed("the engine is being loaded again: try again")
        return engine.image_tokens(image)

    def stop(self) -> None:
        """Stop what the engine is doing."""
        if (engine := self._engine) is not None:
            engine.stop()

    def pause(self) -> None:
        """Stop answers that go on later."""
        if (engine := self._engine) is not None:
            engine.pause()

    def kill(self) -> None:
        """Kill the engine's own process."""
        if (engine := self._engine) is not None:
            engine.kill()

    # --- for the owner

    def open(self) -> EngineFacts:
        """Load the engine, unless there is one; return the facts about it."""

        def report(stage: Stage, share: float) -> bool:
            self._events.progressed(stage, share)
            return self._is_wanted()

        if self._engine is None:
            self._engine = self._load(report)
        self._facts = self._engine.facts
        return self._facts

    def alive(self, *, reloads: bool) -> Engine:
        """Return the engine; with `reloads`, load it again if its process has died.

        Raises EngineFailed if it is lost.
        """
        if self._engine is not None:
            try:
                self._engine.check()
            except EngineFailed:
                if not reloads:
                    raise
                self._engine.close()
                self._engine = None
        if self._engine is None:
            self._engine = self._load(lambda *_: self._is_wanted())
            gc.collect()  # errors hold the dead engine in cycles, and it holds descriptors
            self.num_restarts += 1
            self._events.measured(self._engine.facts)  # its plan may be another one
        return self._engine

    def measure(
        self, engine: Engine, on_progress: ProgressCallback, *, only_exactness: bool = False
    ) -> None:
        """Let the engine measure the pair while the callback allows it; report what it found."""
        before = engine.facts
        engine.prepare(on_progress, only_exactness=only_exactness)
        if engine.facts != before:
            self._events.measured(engine.facts)

    def keep(self, engine: Engine, is_stopped: Callable[[], bool]) -> None:
        """Keep what was read on disk, until stopped. Raises EngineFailed."""
        try:
            engine.keep(is_stopped)
        except EngineFailed:
            raise
        except SpecchatError:  # the conversation is only read again
            pass

    def close(self) -> None:
        """End the engine."""
        try:
            if self._engine is not None:
                self._facts = self._engine.facts
                self._engine.close()
        finally:
            self._engine = None  # its descriptors go now, not with the cycles it is held in
