"""What was learned of a target and its drafts on this machine, kept from session to session."""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from specchat.passes.exactness import Exactness
from specchat.system.private_files import FOLDERS, prune, read_json, read_text, write_json

FORMAT = 14
MAX_FILES, MAX_AGE_SECONDS = 64, 180 * 24 * 3600
"""The most files, and their greatest age: older ones are deleted."""
MAX_WAYS = 16
"""Ways of loading a target that are kept; the ones written first are dropped."""
OWN_HEAD = "head"
"""What stands for a draft in the target's own file."""
PROCESSOR_FIELDS = ("model name", "CPU part")
"""The beginnings of the lines in /proc/cpuinfo that identify a processor; ARM has only the
second."""

CostRows: TypeAlias = list[tuple[int, int, float]]
"""What passes cost, as rows of (depth bucket, tokens, seconds)."""

T = TypeVar("T")


@dataclass(slots=True)
class LearnedPair:
    """What was learned of a pair: what passes cost, and how likely drafts are accepted.

    `recent` has the last drafts of each name, an origin at some temperature: confidences and
    chances of each; `calibrations` how right confidences are, `credits` what looking back may cost.
    `changes` has what passes took beside what was expected: after one of their length, and after
    one of another.
    `target` and `drafts` are empty until passes were measured. `draft` is the `file_key` of their
    draft, empty for none, `draft_kind` its kind; `way` says in words how the target was loaded.
    """

    target: CostRows = field(default_factory=list)
    drafts: dict[str, CostRows] = field(default_factory=dict)
    recent: dict[str, list[list[list[float]]]] = field(default_factory=dict)
    calibrations: dict[str, list[float]] = field(default_factory=dict)
    credits: dict[str, float] = field(default_factory=dict)
    changes: list[list[float]] = field(default_factory=list)
    draft: str = ""
    draft_kind: str = ""
    way: str = ""


@dataclass(slots=True)
class _Record:
    """The content of a file: the build of llama.cpp, and what it does by the way of loading."""

    format: int = 0
    build: str = ""
    exactness: dict[str, Exactness] = field(default_factory=dict)
    pairs: dict[str, LearnedPair] = field(default_factory=dict)


class LearnedCache:
    """The file with what was learned of one target, loaded in any way, on this machine.

    It names no file: models and options are hashed, the target into the file's name. A file that
    cannot be read, or is about another build of llama.cpp, counts as missing, and one that cannot
    be written is learned again.
    """

    def __init__(self, target: Path, build: str = "") -> None:
        """Derive the path from the target; without a build, read what any build did."""
        file = [str(target.resolve()), target.stat().st_size]
        name = _digest({"target": file, "machine": _machine()})
        self.path = FOLDERS.user_state_path / "pacing" / f"{name}.json"
        self._build = build

    def exactness(self) -> dict[str, Exactness]:
        """Return the exactness of passes, by how the target was loaded."""
        return self._read().exactness

    def keep_exactness(self, way: str, found: Exactness) -> None:
        """Save the exactness of passes of a target loaded in this way."""
        record = self._read()
        record.exactness = _with_newest(record.exactness, way, found)
        self._write(record)

    def pair(self, subject: Mapping[str, Any]) -> LearnedPair:
        """Return what was learned of a pair; `subject` is what that depends on."""
        return self._read().pairs.get(_digest(subject), LearnedPair())

    def pairs(self) -> list[LearnedPair]:
        """Return what was learned of all pairs with this target, the latest first."""
        return [*reversed(self._read().pairs.values())]

    def keep_pair(self, subject: Mapping[str, Any], learned: LearnedPair) -> None:
        """Save what was learned of a pair."""
        record = self._read()
        record.pairs = _with_newest(record.pairs, _digest(subject), learned)
        self._write(record)

    def _read(self) -> _Record:
        record = read_json(self.path, _Record, _Record())
        is_valid = record.format == FORMAT and self._build in {"", record.build}
        return record if is_valid else _Record(FORMAT, self._build)

    def _write(self, record: _Record) -> None:
        """Write the file, and delete files that are old or too many."""
        with suppress(OSError):
            is_new = not self.path.exists()
            write_json(self.path, record)
            if is_new:
                prune(self.path.parent, "*.json", MAX_FILES, MAX_AGE_SECONDS)


def file_key(path: Path | None) -> str:
    """Return what stands for a draft in a pair: its path and size, hashed; empty for none."""
    return _digest({"file": [str(path.resolve()), path.stat().st_size]}) if path else ""


def _with_newest(known: Mapping[str, T], name: str, value: T) -> dict[str, T]:
    """Return MAX_WAYS entries with this one as the last."""
    others = [item for item in known.items() if item[0] != name]
    return dict([*others, (name, value)][-MAX_WAYS:])


def _digest(subject: Mapping[str, Any]) -> str:
    text = json.dumps(subject, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _machine() -> dict[str, Any]:
    """Return what distinguishes this machine from others that share the user's files."""
    lines = read_text(Path("/proc/cpuinfo")).splitlines()
    found = [line.split(":")[1].strip() for line in lines if line.startswith(PROCESSOR_FIELDS)]
    brand = found[0] if found else platform.processor()
    return {"system": platform.system(), "processor": brand, "count": os.cpu_count()}
