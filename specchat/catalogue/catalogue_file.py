"""models.toml: the pairs there are, before anybody looks whether their files are here.

It comes with specchat; a file of the same form in the user's config folder adds pairs, replaces
those of the same name or changes them. Reading it needs neither NumPy nor huggingface_hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from specchat.catalogue.entry import Entry, File
from specchat.catalogue.entry_schema import PairReader, read_file_table
from specchat.catalogue.toml_tables import read_table
from specchat.errors import CatalogueError, ModelNotFound
from specchat.hub.references import MAIN, Reference

__all__ = [
    "DEMO",
    "Catalogue",
    "Entry",
    "File",
    "catalogue_path",
    "find_entry",
    "known",
    "load_entries",
    "own_catalogue_path",
    "read_catalogue",
]

DEMO = "demo"
"""The pair that comes with specchat."""

PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The pairs that are told of without a mistake, the files that have names, and the mistakes.

    A mistake is a line of its own, in the order of the file. `is_whole` says that all of the file
    was understood but for these.
    """

    entries: Mapping[str, Entry]
    files: Mapping[str, Reference | None]
    mistakes: tuple[str, ...] = ()
    is_whole: bool = True

    @property
    def complaint(self) -> str:
        """The first mistake and how many more there are, in one line; empty where there is none."""
        more = len(self.mistakes) - 1
        others = f"; and {more} more: `specchat doctor` lists them all" if more > 0 else ""
        return "".join(self.mistakes[:1]) + others

    def require_sound(self) -> None:
        """Raise CatalogueError, in one line, where there are mistakes."""
        if self.mistakes:
            raise CatalogueError(self.complaint)


def catalogue_path() -> Path:
    """Return models.toml: in the package when installed, beside it in a clone."""
    installed = PACKAGE / "models.toml"
    return installed if installed.exists() else PACKAGE.parent / "models.toml"


def own_catalogue_path() -> Path:
    """Return the user's own models.toml, which need not be there."""
    return Path(platformdirs.user_config_path("specchat", appauthor=False)) / "models.toml"


def read_catalogue() -> Catalogue:
    """Return what models.toml and then the user's own say; the mistakes are those of the latter.

    Raises CatalogueError where the one that comes with specchat is wrong.
    """
    own = own_catalogue_path()
    shipped = _read(catalogue_path(), PACKAGE, Catalogue({}, {}))
    shipped.require_sound()
    if not own.exists():
        return shipped
    try:
        return _read(own, own.parent, shipped)
    except CatalogueError as error:
        return Catalogue(shipped.entries, shipped.files, (str(error),), is_whole=False)


def load_entries(path: Path | None = None) -> Mapping[str, Entry]:
    """Return what models.toml says, and then the user's own; or what one such file says.

    CatalogueError tells the first mistake, and how many more there are.
    """
    found = _read(path, path.parent, Catalogue({}, {})) if path else read_catalogue()
    found.require_sound()
    return found.entries


def find_entry(name: str) -> Entry:
    """Return the entry of that name; ModelNotFound lists those there are.

    Mistakes elsewhere in the user's own file hinder nobody. Where it cannot be read at all, nobody
    knows what it would say of a pair: CatalogueError tells why, but for the demo pair.
    """
    found = read_catalogue()
    if name in found.entries and (found.is_whole or name == DEMO):
        return found.entries[name]
    found.require_sound()
    raise ModelNotFound(
        f"there is no pair named {name!r}: known are {', '.join(found.entries)};"
        " or name files with --target and --draft"
    )


def known(reference: Reference) -> Reference:
    """Return the catalogue's reference to a file of main, which may be pinned, where it has one."""
    listed = (each for entry in read_catalogue().entries.values() for each in entry.references)
    is_open = reference.revision == MAIN
    return next((each for each in listed if is_open and str(each) == str(reference)), reference)


def _read(path: Path, folder: Path, others: Catalogue) -> Catalogue:
    """Read a file whose paths begin in a folder, over what others said."""
    content = read_table(path)
    content.require_known({"file", "pair"})
    named = {name: read_file_table(each) for name, each in content.tables("file")}
    files = {**others.files, **named}
    reader = PairReader(files, folder, others.entries)
    read = {name: reader.read(name, each) for name, each in content.tables("pair")}
    entries = {**others.entries, **read}
    sound = {name: entry for name, entry in entries.items() if entry}
    return Catalogue(sound, files, tuple(content.mistakes.lines()))
