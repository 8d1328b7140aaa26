"""What can be found by its name: no two files of the package share one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "specchat"
NOT_NAMES = {"__init__", "__main__"}


def test_base_names_are_unique() -> None:
    """A file's name says what is in it, and no other file has the same name."""
    counts = Counter(path.stem for path in PACKAGE.rglob("*.py") if path.stem not in NOT_NAMES)

    assert [name for name, count in counts.items() if count > 1] == []
