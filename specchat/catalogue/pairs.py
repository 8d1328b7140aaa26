"""The pairs of the catalogue whose files are here, ready to be loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from specchat.catalogue.catalogue_file import (
    DEMO,
    Entry,
    File,
    catalogue_path,
    find_entry,
    load_entries,
    own_catalogue_path,
    read_catalogue,
)
from specchat.catalogue.saved_pairs import is_saved
from specchat.errors import ModelNotFound
from specchat.hub.cache import find_present, size_in_words
from specchat.hub.references import Reference

__all__ = ["DEMO", "Pair", "catalogue_path", "find_pair", "load_pairs", "require_files", "to_pull"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A target with its draft model, by name, and how its makers say to sample it.

    `first_guess` is the share of drafted tokens that others report to be accepted, if any do.
    """

    name: str
    description: str
    target: Path
    draft: Path | None
    sampling: Mapping[str, float]
    first_guess: float | None = None

    def with_draft(self, draft: Path | None) -> Pair:
        """Return it with a draft model, another than which nobody reported anything of."""
        is_same = draft == self.draft
        return replace(self, draft=draft, first_guess=self.first_guess if is_same else None)


def load_pairs(path: Path | None = None) -> dict[str, Pair]:
    """Return the pairs whose files are here, or those of one such file.

    Mistakes in the user's own are left out; CatalogueError tells those of another.
    """
    entries = load_entries(path) if path else read_catalogue().entries
    pairs = [_pair(entry) for entry in entries.values() if not entry.experimental]
    return {pair.name: pair for pair in pairs if pair}


def find_pair(name: str) -> Pair:
    """Return the pair of that name; ModelNotFound says how to get one that is not here."""
    entry = find_entry(name)
    if entry.experimental:
        raise ModelNotFound(
            f"pair {name} needs {entry.experimental}, which specchat cannot use yet:"
            " `specchat list` names others"
        )
    require_files(entry)
    pair = _pair(entry)
    if pair is None:
        size = f" ({size_in_words(entry.num_bytes)})" if entry.num_bytes else ""
        raise ModelNotFound(f"pair {name} is not here yet: `specchat pull {name}` fetches it{size}")
    return pair


def to_pull(name: str) -> Reference | None:
    """Return the catalogue's file of that name, with its repository or without; None for others."""
    listed = (each for entry in load_entries().values() for each in entry.references)
    wanted = name.lower()
    return next((each for each in listed if wanted in {str(each).lower(), each.name.lower()}), None)


def require_files(entry: Entry) -> None:
    """Raise ModelNotFound where a file that a pair names by its path is not there."""
    for file in entry.files:
        if isinstance(file, Path) and not file.is_file():
            mending = f", or `specchat rm {entry.name}` forgets the pair" * is_saved(entry.name)
            raise ModelNotFound(
                f"pair {entry.name} needs {file}, which is not there: put it back, or change its"
                f" path in {own_catalogue_path()}{mending}"
            )


def _pair(entry: Entry) -> Pair | None:
    """Return what can be loaded, or None where a file is not here."""
    target, draft = _here(entry.target), _here(entry.draft)
    if target is None or (entry.draft and draft is None):
        return None
    guess = entry.first_guess.get("acceptance")
    return Pair(entry.name, entry.description, target, draft, entry.sampling, guess)


def _here(file: File | None) -> Path | None:
    return find_present(file) if isinstance(file, Reference) else file
