"""Tables of a models.toml, checked against msgspec types; each mistake is noted with its line.

Reading goes on after a mistake, so that all of them can be listed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, get_args, get_origin

import msgspec

from specchat.errors import CatalogueError, SettingsError
from specchat.settings.positions import Place, find_lines
from specchat.settings.toml_file import load_file, read_file

Schema: TypeAlias = Mapping[str, Any]
"""The types of a table's values by key: annotated with a description, or a schema, or a dict."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a file, the place where it stands, and the mistakes in the file so far."""

    path: Path
    text: str
    values: Mapping[str, Any]
    place: Place = ()
    mistakes: list[tuple[Place, str]] = field(default_factory=list)

    def blame(self, what: str, key: str = "") -> None:
        """Note a mistake in a key, or in the table."""
        place = (*self.place, key) if key else self.place
        owner = f"{' '.join(place[:2])}: " if len(place) > 1 else ""
        self.mistakes.append((place, f"{owner}{what}"))

    def mistake_lines(self) -> list[str]:
        """Return one line for each mistake, with the file and its line, in order of lines."""
        known = find_lines(self.text) if self.mistakes else {}
        found = sorted((_line_of(place, known), place, what) for place, what in self.mistakes)
        return [f"{self.path} line {line}: {what}" for line, _, what in found]

    def read(self, schema: Schema, required: Collection[str] = ()) -> dict[str, Any]:
        """Return the values that are there and keep to a schema."""
        self.require_known(schema)
        for key in required:
            if key not in self.values:
                self.blame(f"{key!r} is missing")
        values = {key: self._value(key, schema[key]) for key in self.values if key in schema}
        return {key: value for key, value in values.items() if value is not None}

    def require_known(self, known: Collection[str]) -> None:
        """Note the keys that have no meaning."""
        for key in self.values:
            if key not in known:
                self.blame(f"unknown key {key!r}: use one of {', '.join(sorted(known))}", key)

    def inner(self, key: str) -> Table:
        """Return a table in this one, empty where there is none."""
        values = self.values.get(key, {})
        if not isinstance(values, dict):
            self.blame(f"{key} must be a table", key)
            values = {}
        return replace(self, values=values, place=(*self.place, key))

    def tables(self, key: str) -> Iterator[tuple[str, Table]]:
        """Yield the tables in a table of this one, by name."""
        outer = self.inner(key)
        for name in outer.values:
            yield name, outer.inner(name)

    def _value(self, key: str, kind: Any) -> Any:
        """Return a value if it is of a type, else None; a table's values are read one by one."""
        value = self.values[key]
        if isinstance(kind, Mapping):
            return self.inner(key).read(kind)
        if get_origin(kind) is dict:
            return self.inner(key)._by_key(*get_args(kind))  # noqa: SLF001  # of its own class
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            self.blame(f"{key} must be {_rule(kind)}, not {_shown(value)}", key)
            return None

    def _by_key(self, key_kind: Any, kind: Any) -> dict[Any, Any]:
        """Return the valid values of a table whose keys are of a type too."""
        found = {}
        for key in self.values:
            try:
                name = msgspec.convert(key, key_kind, strict=False)
            except msgspec.ValidationError:
                self.blame(f"{key!r} must be {_rule(key_kind)}", key)
                continue
            found[name] = self._value(key, kind)
        return found


def _line_of(place: Place, known: Mapping[Place, int]) -> int:
    """Return the line of a value, or of the table that it should be in."""
    ends = range(len(place), 0, -1)
    return next((known[place[:end]] for end in ends if place[:end] in known), 1)


def _rule(kind: Any) -> str:
    """Return the description of an annotated type."""
    return str(next(each.description for each in kind.__metadata__))


def _shown(value: object) -> str:
    """Return a value in the way it stands in the file."""
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def read_table(path: Path) -> Table:
    """Return the top table of a file; CatalogueError if it is missing or not TOML."""
    try:
        text = read_file(path)
        if text is None:
            raise CatalogueError(f"{path} is missing: reinstall specchat")
        return Table(path, text, load_file(path, text))
    except SettingsError as error:
        raise CatalogueError(str(error)) from None
