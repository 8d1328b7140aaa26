"""What the thread that owns an engine does beside answering."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from specchat.engine.api import Engine, EngineFacts
from specchat.errors import SpecchatError
from specchat.requests.answer_request import ChatRequest
from specchat.requests.prompt_size import PromptSize


@dataclass(slots=True)
class IdleTime:
    """A time without requests: since when, and what has been done in it."""

    since: float = field(default_factory=monotonic)
    is_measured: bool = False
    is_kept: bool = False


class SizeQuestion:
    """A question for the size of a conversation.

    It is answered once nothing else is asked for. Until then, and if that never comes, the size is
    told to be unknown.
    """

    def __init__(
        self,
        asked: Callable[[EngineFacts], ChatRequest],
        on_size: Callable[[PromptSize | None], None],
    ) -> None:
        """Prepare to ask it."""
        self._asked, self._on_size = asked, on_size
        self._is_postponed = False

    def postpone(self) -> None:
        """Say once that the size is not known yet."""
        if not self._is_postponed:
            self._is_postponed = True
            self._on_size(None)

    def run(self, engine: Engine, readable: Callable[[Exception], object]) -> None:
        """Ask the engine and report what it says; None if it fails: the next answer says why."""
        size = None
        try:
            size = engine.size(self._asked(engine.facts))
        except Exception as error:  # noqa: BLE001  # as above
            readable(error)
        self._on_size(size)


class OwnerCall:
    """Something to do with the engine on its own thread, and its outcome."""

    def __init__(self, act: Callable[[Engine], Any]) -> None:
        """Prepare to do it."""
        self._act = act
        self._done = threading.Event()
        self._result: Any = None
        self._error: SpecchatError | None = None

    def run(self, engine: Engine, readable: Callable[[Exception], SpecchatError]) -> None:
        """Do it; `readable` turns any error into one for the caller."""
        try:
            self._result = self._act(engine)
        except Exception as error:  # noqa: BLE001  # the caller must receive every error
            self._error = readable(error)
        self._done.set()

    def fail(self, error: SpecchatError) -> None:
        """End without having done it."""
        self._error = error
        self._done.set()

    def result(self) -> Any:
        """Wait for it; return its result or raise its error."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result
