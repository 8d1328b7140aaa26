"""The installed pairs of the catalogue, ready to be loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from specchat.catalogue.catalogue_file import (
    find_entry,
    load_entries,
    own_catalogue_path,
    read_catalogue,
)
from specchat.catalogue.entry import Entry, File
from specchat.catalogue.saved_pairs import is_saved
from specchat.errors import ModelNotFound
from specchat.hub.cache import find_present, size_in_words
from specchat.hub.references import Reference


@dataclass(frozen=True, slots=True)
class Pair:
    """A named target with its draft model, and the sampling its makers recommend.

    `first_guess` is the acceptance rate that others report, None without a report.
    """

    name: str
    description: str
    target: Path
    draft: Path | None
    sampling: Mapping[str, float]
    first_guess: float | None = None

    def with_draft(self, draft: Path | None) -> Pair:
        """Return the pair with another draft model, for which there is no report."""
        is_same = draft == self.draft
        return replace(self, draft=draft, first_guess=self.first_guess if is_same else None)


def load_pairs(path: Path | None = None) -> dict[str, Pair]:
    """Return the installed pairs of the catalogue, or of one other file.

    Pairs with mistakes in the user's own file are left out; in another file they raise
    CatalogueError.
    """
    entries = load_entries(path) if path else read_catalogue().entries
    pairs = [_pair(entry) for entry in entries.values() if not entry.experimental]
    return {pair.name: pair for pair in pairs if pair}


def find_pair(name: str) -> Pair:
    """Return the pair of that name. Raises ModelNotFound, which says how to install it."""
    entry = find_entry(name)
    if entry.experimental:
        raise ModelNotFound(
            f"pair {name} needs {entry.experimental}, which specchat does not support yet:"
            " `specchat list` shows other pairs"
        )
    require_files(entry)
    pair = _pair(entry)
    if pair is None:
        size = f" ({size_in_words(entry.num_bytes)})" if entry.num_bytes else ""
        raise ModelNotFound(
            f"pair {name} is not installed: `specchat pull {name}` fetches it{size}"
        )
    return pair


def to_pull(name: str) -> Reference | None:
    """Return the catalogue's file of that name, with or without its repository, None for none."""
    listed = (each for entry in load_entries().values() for each in entry.references)
    wanted = name.lower()
    return next((each for each in listed if wanted in {str(each).lower(), each.name.lower()}), None)


def require_files(entry: Entry) -> None:
    """Raise ModelNotFound if a file that a pair names by path is missing."""
    for file in entry.files:
        if isinstance(file, Path) and not file.is_file():
            or_forget = f", or remove the pair with `specchat rm {entry.name}`"
            raise ModelNotFound(
                f"pair {entry.name} needs {file}, which is missing: put it back, or change its path"
                f" in {own_catalogue_path()}{or_forget * is_saved(entry.name)}"
            )


def _pair(entry: Entry) -> Pair | None:
    """Return an entry as a pair, None if a file is not installed."""
    target, draft = _here(entry.target), _here(entry.draft)
    if target is None or (entry.draft and draft is None):
        return None
    guess = entry.first_guess.get("acceptance")
    return Pair(entry.name, entry.description, target, draft, entry.sampling, guess)


def _here(file: File | None) -> Path | None:
    return find_present(file) if isinstance(file, Reference) else file
