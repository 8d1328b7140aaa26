"""Downloading files of the hub into the shared cache of huggingface_hub, several at once.

huggingface_hub gives addresses, tokens, errors, its HTTP client and its locks. The bytes come by
plain HTTP with a resumption of our own (hub.py says why not by Xet): its own downloads begin anew
in every run, and are checked by their size alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from specchat.errors import Cancelled, DownloadFailed, SpecchatError
from specchat.hub.cache import blob_path, find_present, require_space, size_in_words
from specchat.hub.client import Found, find
from specchat.hub.hub_errors import explain
from specchat.hub.offline import is_offline
from specchat.hub.pins import keep_pin, pinned
from specchat.hub.references import Reference
from specchat.hub.retries import WAITS, RetryPolicy
from specchat.hub.transfer import Progress, Tell, Transfer

__all__ = ["Progress", "Tell", "download"]

NUM_ASKED = 3
"""Tries to reach the hub at all: who is offline wants to know soon."""

BLINK = 0.1
"""Seconds between two looks at whether somebody wants to stop."""

SILENCE = 0.5
"""Seconds after which it is told again how far it is, where nothing comes: it is that slow now."""

FAREWELL = 1.0
"""Seconds to let a thread end; what it wrote is kept in any case."""


def download(
    references: Sequence[Reference],
    tell: Tell | None = None,
    is_cancelled: Callable[[], bool] | None = None,
    *,
    waits: Sequence[float] = WAITS,
) -> list[Path]:
    """Return where the files are, each with all its parts, fetching what is not here yet.

    What is pinned and here is used without a request. What is cut off is kept, and goes on in the
    next run. `tell` hears of the progress, from several threads but one call at a time.
    DownloadFailed says what went wrong; Cancelled comes where `is_cancelled` asks for it.
    """
    missing = [each for each in dict.fromkeys(references) if not find_present(each)]
    if missing and is_offline():
        raise DownloadFailed(_told_offline(missing))
    _Group(tell, is_cancelled, waits).bring(missing)
    return [_place(reference) for reference in references]


def _told_offline(missing: Sequence[Reference]) -> str:
    """Say what is missing where nobody may be asked for it."""
    sizes = [pinned(part).size for each in missing for part in each.parts]
    total = f" ({size_in_words(sum(size or 0 for size in sizes))})" if all(sizes) else ""
    verb = "is" if len(missing) == 1 else "are"
    return (
        f"offline, and {' and '.join(map(str, missing))}{total} {verb} not here: pull again without"
        " --offline, SPECCHAT_OFFLINE and HF_HUB_OFFLINE"
    )


def _place(reference: Reference) -> Path:
    path = find_present(reference)
    if path is None:
        raise DownloadFailed(f"{reference} was fetched and is gone again: `specchat pull` it anew")
    return path


class _Group:
    """Downloads that begin and end together."""

    def __init__(
        self,
        tell: Tell | None,
        is_cancelled: Callable[[], bool] | None,
        waits: Sequence[float],
    ) -> None:
        self._tell = tell
        self._is_cancelled = is_cancelled
        self._waits = waits
        self._telling = threading.Lock()
        self._told: Progress | None = None
        self._told_at = 0.0
        self._stop = threading.Event()
        self._errors: list[Exception] = []
        self._transfers: dict[Found, Transfer] = {}

    def bring(self, references: Iterable[Reference]) -> None:
        """Ask the hub about files, see that there is room for them, and fetch them."""
        self._together([(each, partial(self._prepare, each)) for each in references])
        transfers = self._transfers.values()
        require_space(sum(transfer.num_missing for transfer in transfers))
        for transfer in transfers:
            transfer.report()
        self._together([(found.reference, each.run) for found, each in self._transfers.items()])

    def _prepare(self, reference: Reference) -> None:
        for asked, found in self._find_parts(reference):
            transfer = Transfer(asked, found, self._waits, self._stop, self._report)
            self._transfers.setdefault(found, transfer)

    def _find_parts(self, reference: Reference) -> Iterator[tuple[Reference, Found]]:
        """Find the parts of a file; all are taken from the commit of the first."""
        commit = None
        for part in reference.parts:
            asked = pinned(part)
            found = self._find(replace(asked, revision=commit or asked.revision))
            commit = found.reference.revision
            keep_pin(part, found.reference)
            yield part, found

    def _find(self, asked: Reference) -> Found:
        """Find what a reference stands for, without a request where its bytes are here."""
        if asked.sha256 and asked.size:
            blob = blob_path(asked, asked.sha256)
            if blob.is_file() and blob.stat().st_size == asked.size:
                return Found(asked, asked.sha256, asked.size)
        note = partial(Progress, asked, 0, asked.size or 0, 0)
        retries = RetryPolicy(
            asked, self._waits[:NUM_ASKED], self._stop, lambda text: self._report(note(text))
        )
        while True:
            retries.check()
            try:
                return find(asked)
            except SpecchatError:
                raise
            except Exception as error:  # noqa: BLE001 -- retries raises what is not of the network
                retries.wait(error)

    def _together(self, tasks: Sequence[tuple[Reference, Callable[[], None]]]) -> None:
        """Run tasks at once, each in a thread, until all are done, one fails or the user stops."""
        threads = [
            threading.Thread(target=self._attempt, args=task, name=str(task[0]), daemon=True)
            for task in tasks
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive() and not self._errors:
                    self._look_up(thread)
        except BaseException:
            self._end(threads)
            raise
        if self._errors:
            self._end(threads)
            raise self._errors[0]

    def _look_up(self, thread: threading.Thread) -> None:
        thread.join(BLINK)
        if self._is_cancelled and self._is_cancelled():
            raise Cancelled
        with self._telling:
            if self._told and time.monotonic() > self._told_at + SILENCE:
                self._pass_on(self._told)

    def _end(self, threads: Sequence[threading.Thread]) -> None:
        self._stop.set()
        for thread in threads:
            thread.join(FAREWELL)

    def _attempt(self, reference: Reference, task: Callable[[], None]) -> None:
        """Run a task, and keep the error that ended it, in words for the user."""
        try:
            task()
        except SpecchatError as error:
            self._errors.append(error)
        except Exception as error:  # noqa: BLE001 -- whatever it is ends the download, and is told
            self._errors.append(explain(error, reference))

    def _report(self, progress: Progress) -> None:
        with self._telling:
            self._pass_on(progress)

    def _pass_on(self, progress: Progress) -> None:
        self._told, self._told_at = progress, time.monotonic()
        if self._tell:
            self._tell(progress)
