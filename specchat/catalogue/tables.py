"""The tables of a models.toml: every value is held to a rule, and a wrong one told by its line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat.errors import CatalogueError, SettingsError
from specchat.settings.kinds import Kind
from specchat.settings.positions import Place, find_lines
from specchat.settings.reading import load_file, read_file
from specchat.settings.schema import Setting

__all__ = ["Table", "read_table"]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a file, and where in it that stands."""

    path: Path
    text: str
    place: Place
    values: Mapping[str, Any]

    def wrong(self, what: str, key: str = "") -> CatalogueError:
        """Return the error that tells what is wrong with a key, or with the table."""
        lines = find_lines(self.text)
        place = (*self.place, key)
        line = next(
            (lines[place[:end]] for end in range(len(place), 0, -1) if place[:end] in lines), 1
        )
        whose = f"{' '.join(self.place[:2])}: " if self.place else ""
        return CatalogueError(f"{self.path} line {line}: {whose}{what}")

    def require_known(self, known: Collection[str]) -> None:
        """Raise CatalogueError where there is a key that nobody knows."""
        for key in self.values:
            if key not in known:
                told = f"there is no {key!r} here: known are {', '.join(sorted(known))}"
                raise self.wrong(told, key)

    def take(self, key: str, kind: Kind, default: Any = None) -> Any:
        """Return a value that keeps its rule, or the default where there is none."""
        if key not in self.values:
            return default
        Setting(key, kind, None, "").require(self.values[key], lambda what: self.wrong(what, key))
        return self.values[key]

    def require(self, key: str, kind: Kind) -> Any:
        """Return a value that must be there."""
        if key not in self.values:
            raise self.wrong(f"{key!r} is missing")
        return self.take(key, kind)

    def inner(self, key: str) -> Table:
        """Return a table in this one; an empty one where there is none."""
        values = self.values.get(key, {})
        if not isinstance(values, dict):
            raise self.wrong(f"{key} must be a table", key)
        return Table(self.path, self.text, (*self.place, key), values)

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
        return Table(path, text, (), load_file(path, text))
    except SettingsError as error:
        raise CatalogueError(str(error)) from None
