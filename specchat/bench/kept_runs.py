"""Keeps the answers of a benchmark that takes hours, so that it continues where it was stopped."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from specchat.bench.results import Arm, Run
from specchat.errors import SpecchatError
from specchat.system.private_files import FOLDERS, make_private, open_private, prune

MAX_FILES, MAX_AGE_SECONDS = 16, 90 * 24 * 3600
"""The most benchmarks that are kept, and their greatest age since the last answer."""


class KeptRuns:
    """A file in the state folder with one line per answer, for one benchmark.

    `runs` are those that were measured before and have the answers of all other arms beside them:
    only neighbours are comparable, so others are measured again.
    """

    def __init__(self, subject: Mapping[str, Any], arms: Collection[Arm]) -> None:
        """Read the file, whose name is derived from all that the answers depend on.

        Files of other benchmarks are deleted if they are old or too many.
        Raises SpecchatError if it cannot be written.
        """
        text = json.dumps(subject, sort_keys=True, default=str)
        name = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]
        self.path = FOLDERS.user_state_path / "bench" / f"{name}.jsonl"
        found: dict[tuple[str, float, int], dict[Arm, Run]] = {}
        for run in self._read():
            found.setdefault((run.task, run.temperature, run.number), {})[run.arm] = run
        whole = [of for of in found.values() if set(arms) <= set(of)]
        self.runs = [run for of in whole for run in of.values()]
        self._append("\n")  # ends a line that a crash cut short
        with suppress(OSError):
            prune(self.path.parent, "*.jsonl", MAX_FILES, MAX_AGE_SECONDS)

    def add(self, run: Run) -> None:
        """Append an answer. Raises SpecchatError if the file cannot be written."""
        self._append(f"{msgspec.json.encode(run).decode()}\n")

    def delete(self) -> None:
        """Delete the file, so that the next benchmark begins anew."""
        with suppress(OSError):
            self.path.unlink()

    def _read(self) -> Iterator[Run]:
        """Yield the answers in the file, if there is one, without lines that are damaged."""
        with suppress(OSError):
            for line in self.path.read_bytes().splitlines():
                with suppress(msgspec.MsgspecError, ValueError, RecursionError):
                    yield msgspec.json.decode(line, type=Run)

    def _append(self, text: str) -> None:
        try:
            make_private(self.path.parent)
            with open_private(self.path) as file:
                file.write(text)
        except OSError as error:
            raise SpecchatError(f"cannot write {self.path}: {error.strerror}") from None
