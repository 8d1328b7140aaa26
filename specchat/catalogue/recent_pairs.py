"""The pairs that were loaded last in the chat, so that it lists them first."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import time

from specchat.system.private_files import FOLDERS, read_json, updating

MAX_PAIRS = 50
"""The most pairs that are remembered; the one loaded longest ago is forgotten."""


@dataclass(frozen=True, slots=True)
class RecentPair:
    """A pair by its name, the paths of its files, and when it was last loaded (Unix time)."""

    name: str
    target: str
    draft: str | None
    loaded: float


def recent_pairs() -> list[RecentPair]:
    """Return the pairs that were loaded, the latest first; none if the file is damaged."""
    pairs = read_json(recent_pairs_path(), dict[str, RecentPair], {})
    return sorted(pairs.values(), key=lambda pair: -pair.loaded)


def remember_pair(name: str, target: Path, draft: Path | None) -> None:
    """Remember that a pair was loaded now; do nothing if the file cannot be written."""
    paths = [str(path.absolute()) if path else None for path in (target, draft)]
    pair = RecentPair(name, paths[0] or "", paths[1], time())
    with suppress(OSError), updating(recent_pairs_path(), dict[str, RecentPair]) as pairs:
        pairs[name] = pair
        for oldest in _oldest(list(pairs.values())):
            del pairs[oldest.name]


def recent_pairs_path() -> Path:
    """Return the path of the file."""
    return FOLDERS.user_state_path / "recent.json"


def _oldest(pairs: Sequence[RecentPair]) -> Sequence[RecentPair]:
    """Return the pairs beyond the limit, which are the oldest."""
    return sorted(pairs, key=lambda pair: -pair.loaded)[MAX_PAIRS:]
