"""One file on its way into the shared cache: resumed, checked, put in its place when it is right.

It works under the lock that huggingface_hub takes for the same bytes. Where a file system does not
hold locks, two at once spoil their common part; its checksum finds out, and it is thrown away.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from specchat.errors import DownloadFailed
from specchat.hub.cache import blob_path, keep_ref, link, lock_path, part_path
from specchat.hub.client import Found, Restarted, read_from
from specchat.hub.partial_file import Part
from specchat.hub.references import Reference
from specchat.hub.retries import RetryPolicy

__all__ = ["Progress", "Tell", "Transfer"]

ENOUGH = 1 << 18
"""New bytes between two failures that count as progress; who drips and breaks is given up."""

PAUSE = 0.05
"""Seconds between two reports on a file."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a file is: bytes here, bytes in all, bytes of this run, and what holds it up."""

    reference: Reference
    done: int
    total: int
    fetched: int = 0
    note: str = ""


Tell = Callable[[Progress], None]


class Transfer:
    """Brings one file; `run` returns when it is in its place, or raises what went wrong."""

    def __init__(
        self,
        asked: Reference,
        found: Found,
        waits: Sequence[float],
        stop: threading.Event,
        tell: Tell,
    ) -> None:
        """Bring what the hub found for a reference; a set `stop` ends it with the next bytes."""
        self._asked = asked
        self._found = found
        self._tell = tell
        self._retries = RetryPolicy(found.reference, waits, stop, self.report)
        self._blob = blob_path(found.reference, found.etag)
        self._part = part_path(found.reference, found.etag)
        self._done = found.size - self.num_missing
        self._fetched = self._furthest = 0
        self._told_at = 0.0

    @property
    def num_missing(self) -> int:
        """Bytes still to be fetched."""
        if self._is_there():
            return 0
        kept = self._part.stat().st_size if self._part.is_file() else 0
        return max(0, self._found.size - kept)

    def report(self, note: str = "") -> None:
        """Tell how far it is, and what holds it up."""
        found = self._found
        self._tell(Progress(found.reference, self._done, found.size, self._fetched, note))

    def run(self) -> None:
        """Fetch what is missing, check all of it, and put it in its place."""
        with self._lock():
            keep_ref(self._asked, self._found.reference.revision)
            self._blob.parent.mkdir(parents=True, exist_ok=True)
            if not self._is_there():
                self._fetch()
            link(self._found.reference, self._found.etag)
        self._done = self._found.size
        self.report()

    def _is_there(self) -> bool:
        return self._blob.is_file() and self._blob.stat().st_size == self._found.size

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the lock of the file; another download of it may come to its end before."""
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

        path = lock_path(self._found.reference, self._found.etag)
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            while True:
                self._retries.check()
                try:
                    stack.enter_context(WeakFileLock(path, timeout=0.5))
                    break
                except TimeoutError:  # filelock's Timeout is one
                    self._done = self._found.size - self.num_missing
                    self.report("waiting for another download of it")
            yield

    def _fetch(self) -> None:
        """Fetch the rest, or all of it where what was kept turns out to be wrong."""
        with Part(self._part, self._found) as part:
            part.read_kept(lambda: self._counted(part))
            is_kept = part.size > 0
            self._complete(part)
            if is_kept and not part.is_right():
                self.report("what was kept of it is damaged: starting over")
                part.restart()
                self._complete(part)
            if not part.is_right():
                part.drop()
                raise self._is_other()
            part.finish(self._blob)

    def _complete(self, part: Part) -> None:
        """Read until the file has its size, trying again as long as there is retries."""
        import httpx2

        self._furthest = part.size
        while part.size < self._found.size:
            try:
                self._read(part)
            except Restarted:
                if not part.size:
                    raise self._is_other() from None
                part.restart()
            except httpx2.HTTPError as error:
                if part.size >= self._furthest + ENOUGH:
                    self._furthest = part.size
                    self._retries.renew()
                self._retries.wait(error)

    def _read(self, part: Part) -> None:
        """Read on from where the part ends."""
        import httpx2

        with read_from(self._found, part.size) as pieces:
            for piece in pieces:
                if part.size + len(piece) > self._found.size:
                    part.drop()
                    raise self._is_other()
                part.add(piece)
                self._fetched += len(piece)
                self._counted(part)
        if part.size < self._found.size:
            raise httpx2.ReadError("it ended early")

    def _counted(self, part: Part) -> None:
        """Hear whether to stop, and tell how far it is, though not for every piece."""
        self._retries.check()
        self._done = part.size
        if time.monotonic() >= self._told_at + PAUSE:
            self._told_at = time.monotonic()
            self.report()

    def _is_other(self) -> DownloadFailed:
        return DownloadFailed(
            f"{self._found.reference} did not arrive as it should be (its checksum is another), so"
            " it was thrown away: try again later, or check HF_ENDPOINT and the proxy"
        )
