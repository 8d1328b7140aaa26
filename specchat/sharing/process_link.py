"""The process of an engine as its client has it: what it is sent, what it says, why it ended."""

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic

from specchat import drafter_registry
from specchat.engine.api import CLOSED, EngineFacts, Loading
from specchat.errors import EngineFailed, SpecchatError, WorkerUnavailable
from specchat.gguf import draft_kinds
from specchat.planning.host_resources import private_bytes
from specchat.requests.progress import Stage
from specchat.sharing import engine_host
from specchat.sharing.engine_process import start_process
from specchat.sharing.image_questions import ImageQuestions
from specchat.sharing.lent_images import LentImages
from specchat.sharing.process_death import explain_death
from specchat.system.logs import log_size
from specchat.wording import duration_text

JOIN_TIMEOUT_SECONDS = 2.0
"""A process that takes longer than this to exit is killed."""
WAIT_SECONDS = 5.0
"""A process with workers that reports nothing for longer probably waits for one of them."""
GIVE_UP_SECONDS = 600.0
"""After this it is ended: no batch and no tensor takes that long, but a device that hangs does."""


class ProcessLink:
    """A process that serves an engine, started by `spawn`, and the connections to it."""

    def __init__(self, loading: Loading) -> None:
        """Start the process, which loads a pair."""
        self._loading = loading
        self._is_loaded = self._is_closed = False
        self._is_killed = False  # by this process, not by the system
        self._lost = ""  # why the process ended, if a worker is lost
        self._heard_at = monotonic()
        self._sending = threading.Lock()
        self._log_begins = log_size(engine_host.LOG)
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        stopped, self._stops = context.Pipe(duplex=False)
        images, shown = context.Pipe()
        lent, borrowed = context.Pipe()
        self.images, self.lent = ImageQuestions(images, self.end), LentImages(lent)
        self._process = context.Process(
            target=engine_host.run,
            args=(
                theirs,
                stopped,
                shown,
                borrowed,
                loading,
                tuple(drafter_registry.DRAFTERS.values()),
                tuple(draft_kinds.KINDS.values()),
            ),
            daemon=True,
            name="specchat engine",
        )
        try:
            try:
                start_process(self._process)
            finally:  # what waits for the process at these would wait for ever
                for connection in (theirs, stopped, shown, borrowed):
                    connection.close()
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int | None:
        """The process's number."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Return True until the process has ended."""
        return self._process.is_alive()

    def join(self, seconds: float) -> None:
        """Wait until the process has ended, or some seconds have passed."""
        self._process.join(seconds)

    def held_bytes(self) -> int:
        """Return the memory of the process."""
        return private_bytes(self._process.pid or 0)

    def require_open(self) -> None:
        """Raise EngineFailed once the process was ended here."""
        if self._is_closed:
            raise EngineFailed(CLOSED)

    def send(self, message: object) -> None:
        """Send a message. Raises what `message_within` does."""
        self._heard_at = monotonic()
        try:
            with self._sending:
                self._connection.send(message)
        except OSError:
            raise self.death() from None
        except KeyboardInterrupt:  # half a message may be sent: no other can follow
            self.end()
            raise

    def stop(self, number: int, *, is_pause: bool = False) -> None:
        """Stop or pause the request of a number, from any thread."""
        with suppress(OSError):  # a process that is gone has stopped
            self._stops.send(engine_host.Stop(number, is_pause))

    def message_within(self, seconds: float) -> object | None:
        """Wait some seconds for a message and return it, None if there is none.

        Raises EngineFailed, or ModelWontLoad until the pair is loaded, if the process has ended or
        a worker is waited for in vain.
        """
        try:
            has_message = self._connection.poll(seconds)
        except OSError:  # it was closed here meanwhile
            raise self.death() from None
        if has_message:
            self._heard_at = monotonic()
            return self._receive()
        if self._loading.workers and monotonic() - self._heard_at > GIVE_UP_SECONDS:
            names = " or ".join(self._loading.workers)
            self._lost = (
                f"the worker {names} stopped answering: nothing came for"
                f" {duration_text(GIVE_UP_SECONDS)}; restart it there, or go on without --worker"
            )
            self._process.kill()
            raise self.death()
        return None

    def last_messages(self) -> Iterator[object]:
        """Yield messages for as long as an end may take."""
        deadline = monotonic() + JOIN_TIMEOUT_SECONDS
        while self._connection.poll(max(0.0, deadline - monotonic())):
            yield self._receive()

    def stage_now(self, stage: Stage) -> Stage:
        """Return a stage of work, or "worker" if the process has been silent in it for long."""
        is_long = monotonic() - self._heard_at > WAIT_SECONDS
        return "worker" if self._loading.workers and is_long else stage

    def death(self) -> SpecchatError:
        """Return why the process ended. Raises EngineFailed if it was ended here."""
        self.require_open()
        self._process.join(JOIN_TIMEOUT_SECONDS)
        if self._lost or self._was_lost():
            error = EngineFailed if self._is_loaded else WorkerUnavailable
            return error(self._lost)
        return explain_death(
            self._loading,
            self._process.exitcode,
            self._log_begins,
            is_loaded=self._is_loaded,
            is_killed=self._is_killed,
        )

    def _receive(self) -> object:
        try:
            message: object = self._connection.recv()
        except (EOFError, OSError):
            raise self.death() from None
        if isinstance(message, engine_host.Lost):
            self._lost = message.line
            raise self.death()
        self._is_loaded = self._is_loaded or isinstance(message, EngineFacts)
        return message

    def _was_lost(self) -> bool:
        """Look for the process's last message among those that were not read."""
        with suppress(EOFError, OSError):
            while self._connection.poll():
                message = self._connection.recv()
                if isinstance(message, engine_host.Lost):
                    self._lost = message.line
        return bool(self._lost)

    def kill(self) -> None:
        """Kill the process, which `death` then names; from any thread."""
        self._is_killed = True
        self._process.kill()

    def close(self) -> None:
        """Let the process end what it does, and kill it if that takes too long."""
        if self._process.is_alive() and self._sending.acquire(timeout=JOIN_TIMEOUT_SECONDS):
            with suppress(OSError):
                self._connection.send(engine_host.CLOSE)
            self._sending.release()
            self._process.join(JOIN_TIMEOUT_SECONDS)
        self.end()

    def end(self) -> None:
        """Kill the process if it still runs, and close the connections."""
        self._is_closed = True  # before its end is seen, which is no crash
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._connection.close()
        self._stops.close()
        self.images.close()
        self.lent.wait(JOIN_TIMEOUT_SECONDS)
