"""The tables of a models.toml: every value is held to a rule, and a wrong one told by its line.

Reading goes on after a mistake, so that all of them can be told at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specchat.errors import CatalogueError, SettingsError
from specchat.settings.kinds import Kind
from specchat.settings.positions import Place, find_lines
from specchat.settings.schema import Setting
from specchat.settings.sources import load_file, read_file

__all__ = ["Mistakes", "Table", "read_table"]


@dataclass(frozen=True, slots=True)
class Mistakes:
    """What is wrong with a file, in the order it was found."""

    path: Path
    text: str
    found: list[tuple[Place, str]] = field(default_factory=list)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.found)

    def lines(self) -> list[str]:
        """Return each in one line that names the file and its line, in the order of these."""
        if not self.found:
            return []
        known = find_lines(self.text)
        told = sorted((_line_of(place, known), place, what) for place, what in self.found)
        return [f"{self.path} line {line}: {_owner(place)}{what}" for line, place, what in told]


def _line_of(place: Place, known: Mapping[Place, int]) -> int:
    """Return the line of a value, or of the table that it should be in."""
    ends = range(len(place), 0, -1)
    return next((known[place[:end]] for end in ends if place[:end] in known), 1)


def _owner(place: Place) -> str:
    return f"{' '.join(place[:2])}: " if len(place) > 1 else ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a file, where in it that stands, and the file's mistakes."""

    mistakes: Mistakes
    place: Place
    values: Mapping[str, Any]

    def blame(self, what: str, key: str = "") -> None:
        """Note what is wrong with a key, or with the table."""
        self.mistakes.found.append(((*self.place, key) if key else self.place, what))

    def require_known(self, known: Collection[str]) -> None:
        """Note the keys that nobody knows."""
        for key in self.values:
            if key not in known:
                told = f"there is no {key!r} here: known are {', '.join(sorted(known))}"
                self.blame(told, key)

    def take(self, key: str, kind: Kind, default: Any = None) -> Any:
        """Return a value that keeps its rule, or the default where there is none."""
        if key not in self.values:
            return default
        try:
            Setting(key, kind, None, "").require(self.values[key], CatalogueError)
        except CatalogueError as error:
            self.blame(str(error), key)
            return default
        return self.values[key]

    def require(self, key: str, kind: Kind) -> Any:
        """Return a value that must be there; None where it is not, or wrong."""
        if key not in self.values:
            self.blame(f"{key!r} is missing")
        return self.take(key, kind)

    def inner(self, key: str) -> Table:
        """Return a table in this one; an empty one where there is none."""
        values = self.values.get(key, {})
        if not isinstance(values, dict):
            self.blame(f"{key} must be a table", key)
            values = {}
        return Table(self.mistakes, (*self.place, key), values)

    def tables(self, key: str) -> Iterator[tuple[str, Table]]:
        """Yield the tables in a table of this one, by name."""
        outer = self.inner(key)
        for name in outer.values:
            yield name, outer.inner(name)


def read_table(path: Path) -> Table:
    """Return what a file says; CatalogueError where there is none, or it is no TOML."""
    try:
        text = read_file(path)
        if text is None:
            raise CatalogueError(f"{path} is missing: install specchat again")
        return Table(Mistakes(path, text), (), load_file(path, text))
    except SettingsError as error:
        raise CatalogueError(str(error)) from None
