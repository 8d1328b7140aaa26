"""The tables of a models.toml: the keys they may have, and the entries made of them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from specchat.catalogue.entry import KINDS, WITHOUT_DRAFT, Entry, File
from specchat.catalogue.toml_tables import Schema, Table
from specchat.hub.references import Reference, Wheel
from specchat.options import Sampling, fields

LARGEST = 1e308
Text = Annotated[str, Meta(min_length=1, description="a non-empty string")]
FileOrName = Annotated[
    str | dict[str, Any], Meta(description="a table, the name of a file, or a path in quotes")
]
Kind = Annotated[
    Literal["simple", "none", "mtp", "mtp-embedded", "eagle"],
    Meta(description=f"one of {', '.join(KINDS)}"),
]
Tier = Annotated[
    Literal["small", "medium", "large"], Meta(description="one of small, medium, large")
]
Length = Annotated[int, Meta(ge=0, description="a context size in tokens")]
Count = Annotated[int, Meta(ge=1, description="a whole number of at least 1")]
Amount = Annotated[float, Meta(gt=0, le=LARGEST, description="a number above 0")]
Share = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
Flag = Annotated[bool, Meta(description="true or false")]


WHEEL: Schema = {"package": Text, "version": Text, "file": Text}
FILE: Schema = {
    "repository": Text, "file": Text, "revision": Text, "bytes": Count, "sha256": Text,
    "wheel": Annotated[dict[str, Any], Meta(description="a table")],
}  # fmt: skip
SAMPLING: Schema = {each.key: each.msgspec_type for each in fields(Sampling) if each.table}
PAIR: Schema = {
    "description": Text,
    "kind": Kind,
    "tier": Tier,
    "licence": Text,
    "about_gb": Amount,
    "recommended": Flag,
    "memory_gb": dict[Length, Amount],
    "first_guess": {"acceptance": Share},
    "sampling": SAMPLING,
    "target": FileOrName,
    "draft": FileOrName,
}
FILES = ("target", "draft")
FILTERS_OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""The values that turn each filter off; a pair that sets one filter turns the others off."""
UNKNOWN: dict[str, Any] = {"about_gb": None, "memory_gb": {}, "first_guess": {}}
"""Facts about a pair that no longer hold with another draft model."""

Files: TypeAlias = Mapping[str, Reference | None]
"""The files that pairs may name; None stands for one with a mistake."""


def read_file_table(table: Table) -> Reference | None:
    """Return the file of the hub that a table names; None if it has a mistake."""
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


class PairReader:
    """Makes entries of the tables of one file."""

    def __init__(self, files: Files, folder: Path, others: Mapping[str, Entry]) -> None:
        """Store the files pairs may name, the folder of relative paths, and the known pairs."""
        self._files, self._folder, self._others = files, folder, others

    def read(self, name: str, table: Table) -> Entry | None:
        """Return a pair; None if it, or a file it names, has a mistake.

        Without a target, a table changes the known pair of its name.
        """
        num_before = len(table.mistakes)
        other = self._others.get(name) if "target" not in table.values else None
        given = table.read(PAIR, required=("description", "target") if other is None else ())
        if "recommended" in given:
            given["is_recommended"] = given.pop("recommended")
        if "sampling" in given:
            given["sampling"] = _sampling(given["sampling"])
        named = [key for key in FILES if key in table.values]
        given |= {key: self._file(table, key, given.get(key)) for key in named}
        given |= _drafting(table, given, other)
        if None in [given[key] for key in named] or len(table.mistakes) > num_before:
            return None
        if other is None:
            return Entry(name=name, **given)
        return replace(other, **{**(UNKNOWN if given["draft"] != other.draft else {}), **given})

    def _file(self, table: Table, key: str, value: str | dict[str, Any] | None) -> File | None:
        """Return a file by its own table, the name of a [file...] table, or a path."""
        if isinstance(value, dict):
            return read_file_table(table.inner(key))
        if value is None or value in self._files:
            return self._files.get(value or "")
        if "/" not in value and not value.lower().endswith(".gguf"):
            table.blame(f"there is no [file.{value}], and it is not the path of a GGUF file", key)
            return None
        try:
            return self._folder / Path(value).expanduser()
        except RuntimeError:
            table.blame(f"there is no such home folder: {value!r}", key)
            return None


def _drafting(table: Table, given: Mapping[str, Any], other: Entry | None) -> dict[str, Any]:
    """Return a pair's draft and kind, which depend on each other and on the pair changed."""
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


def _sampling(values: Mapping[str, float]) -> Mapping[str, float]:
    """Return a pair's sampling options; those of the filters it leaves out are off."""
    return {**FILTERS_OFF, **values} if FILTERS_OFF.keys() & values.keys() else values
