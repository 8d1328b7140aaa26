"""The fastest settings for each target, as `specchat tune` measured them on this machine."""

import os
from dataclasses import dataclass
from pathlib import Path

from specchat import drafter_registry
from specchat.system.private_files import FOLDERS, read_json, updating


@dataclass(frozen=True, slots=True)
class Tuned:
    """A target's fastest drafter, its draft model, and their speedup over plain decoding."""

    drafter: str
    draft: str | None
    speedup: float


def tuned_path() -> Path:
    """Return the path of the file with all tuned settings."""
    return FOLDERS.user_state_path / "tuned.json"


def find_tuned(target: Path) -> Tuned | None:
    """Return the tuned settings of a target if its draft model still exists."""
    tuned = read_json(tuned_path(), dict[str, Tuned], {}).get(_key(target))
    if tuned is None or tuned.drafter not in drafter_registry.choices():
        return None
    return tuned if tuned.draft is None or os.path.isfile(tuned.draft) else None


def tuned_drafts() -> list[tuple[Path, Path]]:
    """Return the tuned targets that have a draft model, each with the draft model."""
    return [
        (Path(key.rpartition(" ")[0]), Path(tuned.draft))
        for key, tuned in read_json(tuned_path(), dict[str, Tuned], {}).items()
        if tuned.draft is not None
    ]


def keep_tuned(target: Path, tuned: Tuned) -> None:
    """Save a target's tuned settings. Raises OSError."""
    with updating(tuned_path(), dict[str, Tuned]) as kept:
        kept[_key(target)] = tuned


def _key(target: Path) -> str:
    """Return a key made from the target's path and size."""
    size = target.stat().st_size if os.path.isfile(target) else 0
    return f"{target.absolute()} {size}"
