"""The tables of a models.toml: their keys, and the entries made from them.

Reading continues after a mistake, which is recorded with its line, so that all mistakes can be
listed.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeAlias

from specchat.catalogue.entry import HEAD_KINDS, PAIR_KINDS, WITHOUT_DRAFT, Entry, File, KnownHead
from specchat.errors import (
    CatalogueError,
    InvalidOption,
    ModelNotFound,
    SettingsError,
    SpecchatError,
)
from specchat.hub.names import is_address, is_hub_name, parse_name
from specchat.hub.references import Reference, Wheel
from specchat.options.declarations import LoadOptions, Sampling
from specchat.options.option import Option
from specchat.settings.positions import KeyPath, find_lines
from specchat.settings.toml_file import load_file, read_file

TEXT = Option("", main_type=str)
TABLE = Option("", main_type=dict, expected="a table")
FILE_OR_NAME = Option(
    "", main_type=str | dict, expected="a table, the name of a file, or a path in quotes"
)
LENGTH = Option("", main_type=int, minimum=0, expected="a context size in tokens")
AMOUNT = Option("", main_type=float, above=0)

Schema: TypeAlias = Mapping[str, Any]
"""The rules for a table's values by key: an option, a schema, or one option for keys and one for
values."""

WHEEL: Schema = {"package": TEXT, "version": TEXT, "file": TEXT}
FILE: Schema = {
    "repository": TEXT,
    "file": TEXT,
    "revision": TEXT,
    "bytes": Option("", main_type=int, minimum=1),
    "sha256": TEXT,
    "wheel": TABLE,
}
PAIR: Schema = {
    "description": TEXT,
    "kind": Option("", literals=PAIR_KINDS),
    "tier": Option("", literals=("small", "medium", "large")),
    "licence": TEXT,
    "about_gb": AMOUNT,
    "recommended": Option("", main_type=bool),
    "memory_gb": (LENGTH, AMOUNT),
    "active_share": Option("", main_type=float, above=0, maximum=1),
    "sampling": {option.key: option for option in Sampling.fields() if option.table},
    "target": FILE_OR_NAME,
    "draft": FILE_OR_NAME,
    "projector": TABLE,
    "workers": next(option for option in LoadOptions.fields() if option.key == "workers"),
}
HEAD: Schema = {
    "model": TEXT,
    "kind": Option("", literals=tuple(HEAD_KINDS)),
    "licence": TEXT,
    "file": TABLE,
}
FILES = ("target", "draft")
FILTERS_OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""The values that disable each filter; a pair that sets one filter disables the others."""
UNKNOWN: dict[str, Any] = {"about_gb": None, "memory_gb": {}}
"""Facts about a pair that do not hold with another draft model."""

Files: TypeAlias = Mapping[str, Reference | None]
"""The files that pairs may name; None for a file with a mistake."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a file, its path in the file, and the mistakes found so far."""

    path: Path
    text: str
    values: Mapping[str, Any]
    key_path: KeyPath = ()
    mistakes: list[tuple[KeyPath, str]] = field(default_factory=list)

    def blame(self, what: str, key: str = "") -> None:
        """Record a mistake in a key, or in the table."""
        key_path = (*self.key_path, key) if key else self.key_path
        owner = f"{' '.join(key_path[:2])}: " if len(key_path) > 1 else ""
        self.mistakes.append((key_path, f"{owner}{what}"))

    def mistake_lines(self) -> list[str]:
        """Return one message for each mistake, with file and line, in the order of lines."""
        lines = find_lines(self.text) if self.mistakes else {}
        mistakes = sorted(
            (_line_of(key_path, lines), key_path, what) for key_path, what in self.mistakes
        )
        return [f"{self.path} line {line}: {what}" for line, _, what in mistakes]

    def read(self, schema: Schema, required: Collection[str] = ()) -> dict[str, Any]:
        """Return the values that are present and match a schema."""
        self.require_known(schema)
        for key in required:
            if key not in self.values:
                self.blame(f"{key!r} is missing")
        values = {key: self._value(key, schema[key]) for key in self.values if key in schema}
        return {key: value for key, value in values.items() if value is not None}

    def require_known(self, keys: Collection[str]) -> None:
        """Record the unknown keys as mistakes."""
        for key in self.values:
            if key not in keys:
                self.blame(f"unknown key {key!r}: use one of {', '.join(sorted(keys))}", key)

    def inner(self, key: str) -> Self:
        """Return a table inside this one, empty if it is missing."""
        values = self._checked(TABLE.checked, key, self.values.get(key, {}))
        return replace(self, values=values or {}, key_path=(*self.key_path, key))

    def tables(self, key: str) -> Iterator[tuple[str, Self]]:
        """Yield the tables inside a table of this one, by name."""
        outer = self.inner(key)
        for name in outer.values:
            yield name, outer.inner(name)

    def _value(self, key: str, rule: Any) -> Any:
        """Return a value that matches a rule, else None; a table's values are read one by one."""
        if isinstance(rule, Mapping):
            return self.inner(key).read(rule)
        if isinstance(rule, tuple):
            return self.inner(key)._by_key(*rule)  # noqa: SLF001  # of its own class
        return self._checked(rule.checked, key, self.values[key])

    def _by_key(self, key_rule: Option, rule: Option) -> dict[Any, Any]:
        """Return the valid values of a table whose keys must match a rule too."""
        checked = {key: self._checked(key_rule.parsed, key, key) for key in self.values}
        return {new: self._value(key, rule) for key, new in checked.items() if new is not None}

    def _checked(self, check: Callable[[Any, str], Any], key: str, value: Any) -> Any:
        try:
            return check(value, key)
        except InvalidOption as error:
            self.blame(str(error), key)
            return None


def _line_of(key_path: KeyPath, lines: Mapping[KeyPath, int]) -> int:
    """Return the line of a value, or of the table that it belongs in."""
    ends = range(len(key_path), 0, -1)
    return next((lines[key_path[:end]] for end in ends if key_path[:end] in lines), 1)


def read_table(path: Path) -> Table:
    """Return the top table of a file; CatalogueError if it is missing or not TOML."""
    try:
        text = read_file(path)
        if text is None:
            raise CatalogueError(f"{path} is missing: reinstall specchat")
        return Table(path, text, load_file(path, text))
    except SettingsError as error:
        raise CatalogueError(str(error)) from None


def read_file_table(table: Table) -> Reference | None:
    """Return the hub file that a table names; None if there is a mistake in it."""
    num_before = len(table.mistakes)
    values = table.read(FILE, required=("repository", "file"))
    if "wheel" in values:
        values["wheel"] = table.inner("wheel").read(WHEEL, required=WHEEL)
    if len(table.mistakes) > num_before:
        return None
    if "bytes" in values:
        values["size"] = values.pop("bytes")
    try:
        if "wheel" in values:
            values["wheel"] = Wheel(**values["wheel"])
        return Reference(**values)
    except ValueError as error:
        table.blame(str(error))
        return None


def read_head(table: Table) -> KnownHead | None:
    """Return a published head; None if there is a mistake in it."""
    num_before = len(table.mistakes)
    given = table.read(HEAD, required=("model", "kind", "file"))
    reference = read_file_table(table.inner("file")) if "file" in given else None
    if reference is None or len(table.mistakes) > num_before:
        return None
    return KnownHead(given["model"], given["kind"], reference, given.get("licence", ""))


def read_entry(
    name: str, table: Table, files: Files, folder: Path, others: Mapping[str, Entry]
) -> Entry | None:
    """Return a pair; None if there is a mistake in it or in a file that it names.

    A pair may name `files`, and paths relative to a folder. A table without a target changes the
    pair of that name among `others`.
    """
    num_before = len(table.mistakes)
    other = others.get(name) if "target" not in table.values else None
    given = table.read(PAIR, required=("description", "target") if other is None else ())
    if "recommended" in given:
        given["is_recommended"] = given.pop("recommended")
    if FILTERS_OFF.keys() & given.get("sampling", {}).keys():
        given["sampling"] = {**FILTERS_OFF, **given["sampling"]}
    named = [key for key in FILES if key in table.values]
    given |= {key: _file(table, key, given.get(key), files, folder) for key in named}
    if "projector" in given:
        given["projector"] = _projector(table, given.get("target", other and other.target))
    given |= _drafting(table, given, other)
    if None in [given[key] for key in named] or len(table.mistakes) > num_before:
        return None
    if other is None:
        return Entry(name=name, **given)
    return replace(other, **{**(UNKNOWN if given["draft"] != other.draft else {}), **given})


def _projector(table: Table, target: File | None) -> Reference | None:
    """Return a pair's projector; it is looked for in the repository of the target."""
    found = read_file_table(table.inner("projector"))
    is_beside = isinstance(target, Reference) and found and target.repository == found.repository
    if found and target and not is_beside:
        table.blame("the projector must be in the target's repository", "projector")
    return found


def _file(
    table: Table, key: str, value: str | dict[str, Any] | None, files: Files, folder: Path
) -> File | None:
    """Return a file given as a table, by the name of a [file...] table, a path, or any name."""
    if isinstance(value, dict):
        return read_file_table(table.inner(key))
    if value is None or value in files:
        return files.get(value or "")
    try:
        return _named(value, folder)
    except SpecchatError as error:
        table.blame(str(error), key)
    except RuntimeError:
        table.blame(f"the home folder of {value!r} does not exist", key)
    return None


def _named(value: str, folder: Path) -> File:
    """Return the file that a name in quotes stands for: a path, or a model that is here.

    What has a slash is a path, unless it is clearly a name on the hub. Raises SpecchatError.
    """
    is_path_of_file = value.lower().endswith(".gguf") and not is_address(value)
    path = folder / Path(value).expanduser()
    if is_path_of_file:
        return path
    from specchat.catalogue.model_lookup import find_model, typed_path

    if typed_path(str(path)):
        return path
    is_on_hub = is_address(value) or (is_hub_name(value) and parse_name(value).quantisation)
    if is_on_hub and (wanted := parse_name(value)).file:
        return wanted.reference
    if not is_on_hub and "/" in value:
        return path
    if model := find_model(value):
        return model.path
    if is_on_hub:
        raise ModelNotFound(f"{value} is not here: `specchat pull {value}` fetches it")
    raise ModelNotFound(
        f"there is no [file.{value}], and it is neither the path of a GGUF file nor the name of a"
        " model on this machine"
    )


def _drafting(table: Table, given: Mapping[str, Any], other: Entry | None) -> dict[str, Any]:
    """Return a pair's draft and kind, which depend on each other and on the pair it changes."""
    names_draft = "draft" in table.values
    usual = "simple" if names_draft else "none"
    if other and not (names_draft and other.kind in WITHOUT_DRAFT):
        usual = other.kind
    kind = given.get("kind") or usual
    has_draft = names_draft or (
        other is not None and kind not in WITHOUT_DRAFT and bool(other.draft)
    )
    if has_draft == (kind in WITHOUT_DRAFT):
        table.blame(f"kind {kind} goes with{'out' * has_draft} a draft", "kind")
    kept = other.draft if other and has_draft else None
    return {"kind": kind, "draft": given["draft"] if names_draft else kept}
