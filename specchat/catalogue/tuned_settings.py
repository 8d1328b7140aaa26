"""What tuning found best for a target on this machine, kept for later calls."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import platformdirs

from specchat.folders import make_private

__all__ = ["Tuned", "find_tuned", "keep_tuned", "tuned_drafts", "tuned_path"]

LARGEST_FILE = 1 << 20


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best way to decode with a target: its drafter, its draft model, and the speedup."""

    drafter: str
    draft: str | None
    speedup: float


def tuned_path() -> Path:
    """Return the file that keeps it."""
    return Path(platformdirs.user_state_path("specchat", appauthor=False)) / "tuned.json"


def find_tuned(target: Path) -> Tuned | None:
    """Return what was kept for a target, if its draft model is still there."""
    record: Any = _read().get(_key(target))
    try:
        tuned = Tuned(str(record["drafter"]), record["draft"], float(record["speedup"]))
        is_there = tuned.draft is None or Path(tuned.draft).is_file()
    except (TypeError, KeyError, ValueError):
        return None
    return tuned if is_there and tuned.drafter in {"auto", "model", "suffix", "none"} else None


def tuned_drafts() -> list[tuple[Path, Path]]:
    """Return the targets that a draft model was chosen for, each with its draft model."""
    chosen = [(key.rpartition(" ")[0], record) for key, record in _read().items()]
    return [
        (Path(target), Path(record["draft"]))
        for target, record in chosen
        if isinstance(record, dict) and isinstance(record.get("draft"), str)
    ]


def keep_tuned(target: Path, tuned: Tuned) -> None:
    """Keep it for a target, in a file that is the user's alone; OSError where that fails."""
    record = {**_read(), _key(target): asdict(tuned)}
    path = tuned_path()
    make_private(path.parent)
    descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".new")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)
    Path(name).replace(path)


def _read() -> dict[str, Any]:
    with suppress(OSError, ValueError):
        if tuned_path().stat().st_size <= LARGEST_FILE:
            record = json.loads(tuned_path().read_text("utf-8"))
            return record if isinstance(record, dict) else {}
    return {}


def _key(target: Path) -> str:
    """Return what tells a target from others: where it is, and how large."""
    size = target.stat().st_size if target.is_file() else 0
    return f"{target.absolute()} {size}"
