"""The catalogue: the pairs and the prediction heads of models.toml, installed or not.

A models.toml in the user's config folder adds pairs and heads, and replaces or changes those of the
same name. Reading the files needs neither NumPy nor huggingface_hub.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path

from specchat.catalogue.entry import Entry, KnownHead
from specchat.catalogue.entry_schema import (
    read_entry,
    read_file_table,
    read_head,
    read_table,
)
from specchat.errors import CatalogueError, ModelNotFound, nearest
from specchat.hub.references import MAIN, Reference
from specchat.system.private_files import FOLDERS

DEMO = "demo"
"""The pair that ships with specchat."""

TRIAL = "smollm2-135m"
"""The smallest real pair: a quick download for trying things out."""

PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The valid pairs, the named files, the valid heads, and one line for each mistake.

    `is_whole` is False if the user's file could not be read at all.
    """

    entries: Mapping[str, Entry]
    files: Mapping[str, Reference | None]
    heads: Mapping[str, KnownHead] = field(default_factory=dict)
    mistakes: tuple[str, ...] = ()
    is_whole: bool = True

    @property
    def complaint(self) -> str:
        """The first mistake and the number of others, in one line; empty if there are none."""
        more = len(self.mistakes) - 1
        others = f"; and {more} more: `specchat doctor` lists them all" if more > 0 else ""
        return "".join(self.mistakes[:1]) + others

    def require_sound(self) -> None:
        """Raise CatalogueError, in one line, if there are mistakes."""
        if self.mistakes:
            raise CatalogueError(self.complaint)


def own_catalogue_path() -> Path:
    """Return the path of the user's own models.toml, which may not exist."""
    return FOLDERS.user_config_path / "models.toml"


def read_catalogue() -> Catalogue:
    """Return the pairs of specchat's models.toml and the user's, with the mistakes in the latter.

    Raises CatalogueError for mistakes in specchat's own models.toml.
    """
    own, shipped = own_catalogue_path(), _shipped()
    if not os.path.exists(own):
        return shipped
    try:
        return _read(own, own.parent, shipped)
    except CatalogueError as error:
        mistakes = (str(error),)
        return replace(shipped, mistakes=mistakes, is_whole=False)


def load_entries(path: Path | None = None) -> Mapping[str, Entry]:
    """Return the entries of specchat's models.toml and the user's, or those of one other file.

    Raises CatalogueError if there are mistakes.
    """
    catalogue = _read(path, path.parent, Catalogue({}, {})) if path else read_catalogue()
    catalogue.require_sound()
    return catalogue.entries


def find_entry(name: str) -> Entry:
    """Return the entry of that name. Raises ModelNotFound, which names the most similar one.

    Mistakes in other entries of the user's file do not matter. If the whole file is unreadable, it
    might redefine any pair, so all pairs but the demo pair raise CatalogueError.
    """
    catalogue = read_catalogue()
    if name in catalogue.entries and (catalogue.is_whole or name == DEMO):
        return catalogue.entries[name]
    catalogue.require_sound()
    raise ModelNotFound(
        f"there is no pair named {name!r}{nearest(name, catalogue.entries)}:"
        " `specchat list` names them all; --target and --draft take files"
    )


def known(reference: Reference) -> Reference:
    """Return the catalogue's own reference to a file of a main branch, which may be pinned."""
    catalogue = read_catalogue()
    entries = catalogue.entries.values()
    of_pairs = (other for entry in entries for other in entry.references)
    projectors = (entry.projector for entry in entries if entry.projector)
    heads = (head.reference for head in catalogue.heads.values())
    listed = chain(of_pairs, projectors, heads)
    is_open = reference.revision == MAIN
    return next((other for other in listed if is_open and str(other) == str(reference)), reference)


@cache
def _shipped() -> Catalogue:
    """Return the pairs that ship with specchat; reading them takes 12 ms."""
    installed = PACKAGE / "models.toml"
    path = installed if installed.exists() else PACKAGE.parent / "models.toml"  # in a clone
    shipped = _read(path, PACKAGE, Catalogue({}, {}))
    shipped.require_sound()
    return shipped


def _read(path: Path, folder: Path, others: Catalogue) -> Catalogue:
    """Return the entries of a file merged over others; its paths are relative to a folder."""
    content = read_table(path)
    content.require_known({"file", "pair", "head"})
    named = {name: read_file_table(table) for name, table in content.tables("file")}
    files = {**others.files, **named}
    entries: dict[str, Entry | None] = {**others.entries}
    for name, table in content.tables("pair"):
        entries[name] = read_entry(name, table, files, folder, others.entries)
    sound = {name: entry for name, entry in entries.items() if entry}
    heads = {name: read_head(table) for name, table in content.tables("head")}
    known_heads = {**others.heads, **{name: head for name, head in heads.items() if head}}
    return Catalogue(sound, files, known_heads, tuple(content.mistake_lines()))
