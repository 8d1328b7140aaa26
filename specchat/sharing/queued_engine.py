"""An engine that shares another one with other clients: its requests wait for their turn."""

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from specchat.decoding.chunk import Chunk
from specchat.decoding.statistics import Statistics
from specchat.engine.api import Engine
from specchat.errors import EngineFailed, SpecchatError
from specchat.requests.answer_request import AnswerRequest, ChatRequest
from specchat.requests.progress import ProgressCallback, Stage
from specchat.requests.prompt_size import PromptSize
from specchat.sharing.shared_engine import Load, SharedEngine
from specchat.sharing.tickets import Ticket

Result = TypeVar("Result")


class QueuedEngine(Engine):
    """A shared engine as one of its clients sees it, who also owns it.

    If the engine ends by itself, the answer fails and it is loaded again.
    """

    def __init__(
        self,
        engine: Engine,
        load: Load,
        *,
        client: str,
        before_end: Callable[[], object],
    ) -> None:
        """Share a loaded engine, which `load` loads again where it ends by itself.

        `before_end` is called before the sharing ends, by `close` or `release`.
        """
        held = [engine]
        self.shared = SharedEngine(lambda report: held.pop() if held else load(report))
        self.facts, self.stats = engine.facts, Statistics()
        self._client, self._before_end = client, before_end
        self._ticket: Ticket | None = None
        self._is_stopped = False

    def begin(self, request: AnswerRequest) -> Iterator[Chunk]:
        """Queue a request; what is wrong with it shows with the first step."""
        self._require_idle()
        changed = threading.Event()
        self._is_busy, self._is_stopped, self.stats = True, False, Statistics()
        try:
            self._ticket = self.shared.submit(request, self._client, changed.set)
        except SpecchatError:
            self._is_busy = False
            raise
        return self._steps(self._ticket, changed, request.on_progress)

    def _steps(
        self, ticket: Ticket, changed: threading.Event, on_progress: ProgressCallback | None
    ) -> Iterator[Chunk]:
        last: Chunk | None = None
        try:
            while True:
                changed.wait()
                changed.clear()
                update = ticket.take()
                self.stats = update.statistics
                if isinstance(update.error, EngineFailed):
                    raise SpecchatError(f"{update.error} (it is being loaded again)")
                if update.error is not None:
                    raise update.error
                if on_progress is not None and not (update.chunks or update.place):
                    on_progress("prompt", update.share)
                for last in update.chunks:
                    yield last
                if update.is_over:
                    if last is None or not last.finish:
                        yield Chunk("", finish=update.finish)
                    return
        finally:
            if not ticket.is_over:
                ticket.cancel()
            self._ticket, self._is_busy, self.facts = None, False, self.shared.facts

    def stop(self) -> None:
        """Stop this client's answer; those of others go on."""
        self._is_stopped = True
        if (ticket := self._ticket) is not None:
            ticket.cancel()

    def prepare(self, on_progress: ProgressCallback | None = None) -> bool:
        """Measure as long as no other client waits; the shared engine does so when it is idle."""
        self._is_stopped = False

        def is_alone(stage: Stage, share: float) -> bool:
            is_wanted = on_progress is None or on_progress(stage, share) is not False
            return is_wanted and not self._is_busy_elsewhere() and not self._is_stopped

        return not self._is_busy_elsewhere() and self._call(lambda each: each.prepare(is_alone))

    def size(self, request: ChatRequest) -> PromptSize | None:
        """Return how much of the context a conversation would take.

        None if that is not known, or only once another client's answer is over.
        """
        if self._is_busy_elsewhere():
            return None
        return self._call(lambda engine: engine.size(request))

    def forget(self) -> None:
        """Forget all texts of all clients."""
        self._call(lambda engine: engine.forget())

    def held_bytes(self) -> int:
        """Return the bytes of the host's memory that closing frees at once, 0 if unknown."""
        return self.shared.held_bytes()

    def kill(self) -> None:
        """Kill the engine's own process."""
        self.shared.kill()

    def release(self) -> Engine:
        """End the sharing and return the engine. Raises EngineFailed if it has ended."""
        self._is_closed = True
        self._before_end()
        return self.shared.release()

    def close(self) -> None:
        """End the sharing and the engine."""
        if not self._is_closed:
            self._is_closed = True
            self._before_end()
            self.shared.close()

    def _is_busy_elsewhere(self) -> bool:
        """Return True while other clients are answered or wait."""
        return bool(self.shared.num_waiting or self.shared.num_running)

    def _call(self, act: Callable[[Engine], Result]) -> Result:
        self._require_open()
        result = self.shared.call(act)
        self.facts = self.shared.facts
        return result
