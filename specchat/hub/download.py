"""Downloading files from the hub into huggingface_hub's shared cache, and checking them.

huggingface_hub provides URLs, tokens, errors, the HTTP client and locks. Unlike its own downloads,
these use plain HTTP (client.py explains why not Xet), resume across runs and check the sha256.
Several files are fetched at once.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from specchat.errors import Cancelled, DownloadFailed, SpecchatError
from specchat.hub.cache import blob_path, find_present, pointer_path, require_space
from specchat.hub.client import HubFile, find
from specchat.hub.hub_errors import WAITS, RetryPolicy, explain
from specchat.hub.hub_request import NoticeCallback, ignore
from specchat.hub.offline import is_offline
from specchat.hub.partial_file import PIECE_BYTES
from specchat.hub.pins import is_checked, keep_pin, pinned
from specchat.hub.references import Reference, endpoint, is_commit, is_sha256
from specchat.hub.transfer import DownloadCallback, DownloadProgress, Transfer
from specchat.wording import size_text

FIRST_TRIES = 3
"""Tries to reach the hub at all; few, so that without a network the error comes soon."""

WHEEL_TRIES = 1
"""Tries without progress for a file that has a second source."""

POLL_SECONDS = 0.1
"""Seconds between two checks for a cancellation."""

REPEAT_SECONDS = 0.5
"""Seconds after which the last progress is reported again, so that a falling rate is seen."""

JOIN_TIMEOUT_SECONDS = 2.0
"""Seconds that a thread gets to stop; what it wrote is kept in any case."""


def download(
    references: Sequence[Reference],
    on_progress: DownloadCallback | None = None,
    is_cancelled: Callable[[], bool] | None = None,
    on_notice: NoticeCallback = ignore,
    *,
    waits: Sequence[float] = WAITS,
) -> list[Path]:
    """Fetch the files that are not in the cache, and return the paths of all of them.

    Pinned files in the cache need no request. An interrupted download resumes in the next run.
    `on_progress` is called from several threads, one call at a time, and so is `on_notice`, with
    what the user should know while the download continues. Raises DownloadFailed, or Cancelled once
    `is_cancelled` returns True.
    """
    missing = [reference for reference in dict.fromkeys(references) if not find_present(reference)]
    if missing and is_offline():
        raise DownloadFailed(_offline_message(missing))
    if missing:
        endpoint()  # which raises an error for a malformed one before anything is asked
    _Group(on_progress, on_notice, is_cancelled, waits).fetch(missing)
    return [_path(reference) for reference in references]


def _offline_message(missing: Sequence[Reference]) -> str:
    sizes = [pinned(part).size for reference in missing for part in reference.parts]
    total = f" ({size_text(sum(size or 0 for size in sizes))})" if all(sizes) else ""
    verb = "is" if len(missing) == 1 else "are"
    return (
        f"offline, and {' and '.join(map(str, missing))}{total} {verb} not installed: pull again"
        " without --offline, SPECCHAT_OFFLINE and HF_HUB_OFFLINE"
    )


def _path(reference: Reference) -> Path:
    path = find_present(reference)
    if path is None:
        raise DownloadFailed(f"{reference} was deleted meanwhile: run `specchat pull` again")
    return path


def check(reference: Reference, on_progress: DownloadCallback) -> Iterator[tuple[Path, bool]]:
    """Hash each part of an installed file; yield its resolved path and whether it is right.

    The expected sha256 is the pin's, or else the name of the cached blob. Raises SpecchatError if
    neither is known.
    """
    first = find_present(reference)
    for part in reference.parts if first else ():
        pin = pinned(part)
        path = pointer_path(pin) if is_commit(pin.revision) else find_present(part)
        assert path is not None  # noqa: S101  # find_present(reference) found all parts
        real = path.resolve()
        expected = pin.sha256 or (real.name if is_sha256(real.name) else None)
        if expected is None:
            raise SpecchatError(f"{reference} cannot be checked: its sha256 is not known")
        yield real, _sha256(real, pin, on_progress) == expected


def _sha256(path: Path, reference: Reference, on_progress: DownloadCallback) -> str:
    digest, num_read, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
            num_read += len(piece)
            on_progress(DownloadProgress(reference, num_read, total, num_read))
    return digest.hexdigest()


@dataclass(slots=True)
class _Group:
    """Downloads that start and end together."""

    on_progress: DownloadCallback | None
    on_notice: NoticeCallback
    is_cancelled: Callable[[], bool] | None
    waits: Sequence[float]
    _report_lock: threading.Lock = field(default_factory=threading.Lock)
    _reported: DownloadProgress | None = None
    _reported_at: float = 0.0
    _noticed: set[str] = field(default_factory=set)
    _stop: threading.Event = field(default_factory=threading.Event)
    _errors: list[Exception] = field(default_factory=list)
    _transfers: dict[HubFile, Transfer] = field(default_factory=dict)

    def fetch(self, references: Iterable[Reference]) -> None:
        """Look up the files, check the free disk space, and fetch them."""
        self._run_all([(reference, partial(self._prepare, reference)) for reference in references])
        transfers = self._transfers.values()
        require_space(sum(transfer.num_missing for transfer in transfers))
        for transfer in transfers:
            transfer.report()
        self._run_all(
            [(file.reference, transfer.run) for file, transfer in self._transfers.items()]
        )

    def _prepare(self, reference: Reference) -> None:
        """Look up the parts of a file, all from the commit of the first part."""
        commit = None
        for part in reference.parts:
            asked = pinned(part)
            if commit:
                file = self._find(replace(asked, revision=commit))
            else:
                file = self._find_first(part, asked)
            commit = file.reference.revision
            if asked == part or not is_checked(part):
                keep_pin(part, file.reference, is_checked=False)
            waits = self.waits[:WHEEL_TRIES] if part.wheel else self.waits
            transfer = Transfer(part, file, waits, self._stop, self._report, self._notice)
            self._transfers.setdefault(file, transfer)

    def _find_first(self, part: Reference, asked: Reference) -> HubFile:
        """Look up a file by its pin; if an unchecked pin turns out wrong, look it up without."""
        try:
            return self._find(asked)
        except DownloadFailed:
            if is_checked(part):
                raise
            return self._find(part)

    def _find(self, asked: Reference) -> HubFile:
        """Look up a file on the hub; makes no request if its bytes are in the cache.

        A file that a wheel also contains needs no lookup, which would fail without the hub.
        """
        if asked.sha256 and asked.size:
            blob = blob_path(asked, asked.sha256)
            if asked.wheel or (blob.is_file() and blob.stat().st_size == asked.size):
                return HubFile(asked, asked.sha256, asked.size)

        def on_note(note: str) -> None:
            self._report(DownloadProgress(asked, 0, asked.size or 0, note=note))

        retries = RetryPolicy(asked, self.waits[:FIRST_TRIES], self._stop, on_note)
        return retries.run(partial(find, asked, self._notice))

    def _run_all(self, tasks: Sequence[tuple[Reference, Callable[[], None]]]) -> None:
        """Run each task in a thread until all are done, one fails or the user cancels.

        It waits for events, because before Python 3.13 Ctrl+C during Thread.join() marks the thread
        as ended and a second join would not wait.
        """
        ends = [threading.Event() for _ in tasks]
        try:
            for task, ended in zip(tasks, ends, strict=True):
                threading.Thread(
                    target=self._attempt, args=(*task, ended), name=str(task[0]), daemon=True
                ).start()
            for ended in ends:
                while not (self._errors or ended.wait(POLL_SECONDS)):
                    if self.is_cancelled and self.is_cancelled():
                        raise Cancelled
                    if self._reported and time.monotonic() > self._reported_at + REPEAT_SECONDS:
                        self._report(self._reported)
        finally:
            if not all(ended.is_set() for ended in ends):
                self._stop.set()
                for ended in ends:
                    ended.wait(JOIN_TIMEOUT_SECONDS)
        if self._errors:
            raise self._errors[0]

    def _attempt(
        self, reference: Reference, task: Callable[[], None], ended: threading.Event
    ) -> None:
        """Run a task and keep the error that ended it, explained to the user."""
        try:
            task()
        except SpecchatError as error:
            self._errors.append(error)
        except Exception as error:  # noqa: BLE001 -- any error ends the download
            self._errors.append(explain(error, reference))
        finally:
            ended.set()

    def _report(self, progress: DownloadProgress) -> None:
        with self._report_lock:
            self._reported, self._reported_at = progress, time.monotonic()
            if self.on_progress:
                self.on_progress(progress)

    def _notice(self, text: str) -> None:
        """Pass a notice on, once."""
        with self._report_lock:
            if text not in self._noticed:
                self._noticed.add(text)
                self.on_notice(text)
