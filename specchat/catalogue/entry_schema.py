"""From the tables of a models.toml to its entries: what may stand there, and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeAlias

from specchat.catalogue.entry import KINDS, WITHOUT_DRAFT, Entry, File
from specchat.catalogue.toml_tables import Table
from specchat.decoding.sampling_options import Sampling
from specchat.errors import InvalidOption
from specchat.hub.references import MAIN, Reference
from specchat.settings.kinds import Choice, Kind, Number, Switch, Text, Whole

__all__ = ["PairReader", "read_file_table"]

TEXT = Text()
AMOUNT, SHARE, ANY_NUMBER = Number(0, is_above=True), Number(0, 1), Number()
KEYS: dict[str, Kind] = {
    "description": TEXT,
    "kind": Choice(tuple(KINDS)),
    "tier": Choice(("small", "medium", "large")),
    "licence": TEXT,
    "about_gb": AMOUNT,
    "recommended": Switch(),
}
"""The rules of a pair's values that are no tables."""
FILES, TABLES = ("target", "draft"), ("sampling", "memory_gb", "first_guess")
FILE_KEYS = {"repository", "revision", "file", "bytes", "sha256"}
GUESS_KEYS = {"acceptance"}
SAMPLING_KEYS = {option.name for option in fields(Sampling)} - {"logit_bias"}
FILTERS_OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""Makers name the filters that they want: a pair that names one goes without the others."""
UNKNOWN: dict[str, Any] = {"about_gb": None, "memory_gb": {}, "first_guess": {}}
"""What is known of a pair no longer holds with another draft model."""

Files: TypeAlias = Mapping[str, Reference | None]
"""The files that pairs may name; None stands for one whose table is wrong."""


def read_file_table(told: Table) -> Reference | None:
    """Return the file of the hub that a table names; None where the table is wrong."""
    told.require_known(FILE_KEYS)
    num_before = len(told.mistakes)
    repository, file = told.require("repository", TEXT), told.require("file", TEXT)
    revision = told.take("revision", TEXT, MAIN)
    size, sha256 = told.take("bytes", Whole(1)), told.take("sha256", TEXT)
    if len(told.mistakes) > num_before:
        return None
    try:
        return Reference(repository, file, revision, size, sha256)
    except ValueError as error:
        told.blame(str(error))
        return None


class PairReader:
    """Makes entries of the tables of one file."""

    def __init__(self, files: Files, folder: Path, others: Mapping[str, Entry]) -> None:
        """Take the files that pairs may name, where paths begin, and the pairs known before."""
        self._files, self._folder, self._others = files, folder, others

    def read(self, name: str, told: Table) -> Entry | None:
        """Return a pair; None where something is wrong with it, or with a file that it names.

        A pair that is known already, and has no target here, is changed in what is named.
        """
        num_before = len(told.mistakes)
        told.require_known({*KEYS, *FILES, *TABLES})
        other = self._others.get(name) if "target" not in told.values else None
        for key in ("description", "target") if other is None else ():
            if key not in told.values:
                told.blame(f"{key!r} is missing")
        given = self._given(told)
        given |= _drafting(told, given, other)
        is_broken = any(key in told.values and given[key] is None for key in FILES)
        if is_broken or len(told.mistakes) > num_before:
            return None
        if other is None:
            return Entry(name=name, **given)
        return replace(other, **{**(UNKNOWN if given["draft"] != other.draft else {}), **given})

    def _given(self, told: Table) -> dict[str, Any]:
        """Return what a table names, by the fields of an entry."""
        given = {key: told.take(key, kind) for key, kind in KEYS.items() if key in told.values}
        if "recommended" in given:
            given["is_recommended"] = given.pop("recommended")
        given |= {key: self._file(told, key) for key in FILES if key in told.values}
        readers = {"sampling": _sampling, "memory_gb": _memory, "first_guess": _first_guess}
        return given | {
            key: read(told.inner(key)) for key, read in readers.items() if key in told.values
        }

    def _file(self, told: Table, key: str) -> File | None:
        """Return what stands for a file: a table of its own, the name of one, or a path."""
        if isinstance(told.values[key], dict):
            return read_file_table(told.inner(key))
        name = told.take(key, Text("a table, the name of a file, or a path in quotes"))
        if name is None or name in self._files:
            return self._files.get(name)
        if "/" not in name and not name.lower().endswith(".gguf"):
            told.blame(f"there is no [file.{name}], and it is no path of a GGUF file", key)
            return None
        try:
            return self._folder / Path(name).expanduser()
        except RuntimeError:
            told.blame(f"nobody knows whose home folder is in {name!r}", key)
            return None


def _drafting(told: Table, given: Mapping[str, Any], other: Entry | None) -> dict[str, Any]:
    """Return the draft and the kind of a pair, which depend on each other and on what was known."""
    names_draft = "draft" in told.values
    usual = "simple" if names_draft else "none"
    if other and not (names_draft and other.kind in WITHOUT_DRAFT):
        usual = other.kind
    kind = given.get("kind") or usual
    has_draft = names_draft or (
        other is not None and kind not in WITHOUT_DRAFT and bool(other.draft)
    )
    if has_draft == (kind in WITHOUT_DRAFT):
        told.blame(f"kind {kind} goes with{'out' * has_draft} a draft", "kind")
    kept = other.draft if other and has_draft else None
    return {"kind": kind, "draft": given["draft"] if names_draft else kept}


def _sampling(told: Table) -> Mapping[str, float]:
    told.require_known(SAMPLING_KEYS)
    values = {name: told.take(name, ANY_NUMBER) for name in told.values if name in SAMPLING_KEYS}
    known = {name: value for name, value in values.items() if value is not None}
    try:
        Sampling(**known)
    except InvalidOption as error:
        told.blame(f"sampling: {error}")
    return {**FILTERS_OFF, **known} if FILTERS_OFF.keys() & known.keys() else known


def _memory(told: Table) -> Mapping[int, float]:
    needs = {}
    for length in told.values:
        if length.isascii() and length.isdigit():
            needs[int(length)] = told.take(length, AMOUNT)
        else:
            told.blame(f"memory_gb: {length!r} is no length of a context in tokens", length)
    return needs


def _first_guess(told: Table) -> Mapping[str, float]:
    told.require_known(GUESS_KEYS)
    return {key: told.take(key, SHARE) for key in told.values}
