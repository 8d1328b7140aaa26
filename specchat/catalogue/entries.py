"""models.toml: what it says of each pair, before anybody looks whether the files are here.

It comes with specchat; a file of the same form in the user's config folder adds pairs and replaces
those of the same name. Reading it needs neither NumPy nor huggingface_hub.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import platformdirs

from specchat.catalogue.references import MAIN, Reference
from specchat.errors import CatalogueError, ModelNotFound

__all__ = [
    "DEMO",
    "Entry",
    "File",
    "catalogue_path",
    "find_entry",
    "known",
    "load_entries",
    "own_catalogue_path",
]

DEMO = "demo"
"""The pair that comes with specchat."""

PACKAGE = Path(__file__).resolve().parent.parent
KINDS = {
    "simple": "",
    "none": "",
    "mtp": "a multi-token-prediction head as draft",
    "mtp-embedded": "the target's own multi-token-prediction head as draft",
    "eagle": "an EAGLE head as draft",
}
"""What drafts for a target; what specchat cannot do yet has words that say what it is."""

FILE_KEYS = {"repository", "revision", "file", "bytes", "sha256"}
PAIR_KEYS = {
    "description", "tier", "licence", "kind", "target", "draft", "sampling", "about_gb",
}  # fmt: skip

File: TypeAlias = Path | Reference
"""A file on this machine, or one of the hub."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the catalogue says of a pair. `about_gb` stands in where exact sizes are not known."""

    name: str
    description: str
    target: File
    draft: File | None
    sampling: Mapping[str, float] = field(default_factory=dict, hash=False)
    kind: str = "simple"
    tier: str = ""
    licence: str = ""
    about_gb: float | None = None

    @property
    def experimental(self) -> str:
        """What specchat would have to be able to do for this pair; empty where it can."""
        return KINDS[self.kind]

    @property
    def files(self) -> tuple[File, ...]:
        """The target, and the draft model if there is one."""
        return tuple(each for each in (self.target, self.draft) if each is not None)

    @property
    def references(self) -> tuple[Reference, ...]:
        """The files of the hub that it needs."""
        return tuple(each for each in self.files if isinstance(each, Reference))

    @property
    def num_bytes(self) -> int | None:
        """The size of all files of the hub, where it is known exactly."""
        sizes = [reference.size for reference in self.references]
        return sum(size for size in sizes if size) if all(sizes) else None


def catalogue_path() -> Path:
    """Return models.toml: in the package when installed, beside it in a clone."""
    installed = PACKAGE / "models.toml"
    return installed if installed.exists() else PACKAGE.parent / "models.toml"


def own_catalogue_path() -> Path:
    """Return the user's own models.toml, which need not be there."""
    return Path(platformdirs.user_config_path("specchat", appauthor=False)) / "models.toml"


def load_entries(path: Path | None = None) -> dict[str, Entry]:
    """Return what models.toml says, and then the user's own; or what one such file says."""
    if path:
        return _read(path, path.parent)
    own = own_catalogue_path()
    entries = _read(catalogue_path(), PACKAGE)
    return {**entries, **_read(own, own.parent)} if own.exists() else entries


def find_entry(name: str) -> Entry:
    """Return the entry of that name; ModelNotFound lists those there are."""
    entries = load_entries()
    if name not in entries:
        raise ModelNotFound(
            f"there is no pair named {name!r}: known are {', '.join(entries)};"
            " or name files with --target and --draft"
        )
    return entries[name]


def known(reference: Reference) -> Reference:
    """Return the catalogue's reference to a file of main, which may be pinned, where it has one."""
    listed = (each for entry in load_entries().values() for each in entry.references)
    is_open = reference.revision == MAIN
    return next((each for each in listed if is_open and str(each) == str(reference)), reference)


def _read(path: Path, folder: Path) -> dict[str, Entry]:
    """Read a catalogue whose paths begin in a folder; CatalogueError says what is wrong with it."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
        files = {name: _reference(name, each) for name, each in content.get("file", {}).items()}
        entries = [_entry(name, each, files, folder) for name, each in content["pair"].items()]
    except FileNotFoundError:
        raise CatalogueError(f"{path} is missing: install specchat again") from None
    except OSError as error:
        raise CatalogueError(f"{path} cannot be read: {error.strerror}") from None
    except KeyError as error:
        raise CatalogueError(f"{path} has no table {error}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise CatalogueError(f"{path}: {error}") from None
    return {entry.name: entry for entry in entries}


def _entry(name: str, told: dict[str, Any], files: Mapping[str, File], folder: Path) -> Entry:
    try:
        return _checked(name, told, files, folder)
    except KeyError as error:
        raise ValueError(f"pair {name}: {error} is missing") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"pair {name}: {error}") from None


def _checked(name: str, told: dict[str, Any], files: Mapping[str, File], folder: Path) -> Entry:
    _require_known(told, PAIR_KEYS)
    draft = told.get("draft")
    kind = told.get("kind", "simple" if draft else "none")
    if kind not in KINDS:
        raise ValueError(f"there is no kind {kind!r}: known are {', '.join(KINDS)}")
    return Entry(
        name=name,
        description=told["description"],
        target=_file(told["target"], files, folder),
        draft=_file(draft, files, folder) if draft else None,
        sampling=dict(told.get("sampling", {}).items()),
        kind=kind,
        tier=told.get("tier", ""),
        licence=told.get("licence", ""),
        about_gb=told.get("about_gb"),
    )


def _file(told: Any, files: Mapping[str, File], folder: Path) -> File:
    """Return what stands for a file: a table of its own, the name of one, or a path."""
    if isinstance(told, dict):
        return _reference("", told)
    return files.get(told) or folder / Path(told).expanduser()


def _reference(name: str, told: dict[str, Any]) -> Reference:
    try:
        _require_known(told, FILE_KEYS)
        return Reference(
            told["repository"],
            told["file"],
            told.get("revision", MAIN),
            told.get("bytes"),
            told.get("sha256"),
        )
    except KeyError as error:
        raise ValueError(f"file {name}: {error} is missing") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"file {name}: {error}") from None


def _require_known(told: Mapping[str, Any], known: set[str]) -> None:
    for key in told:
        if key not in known:
            raise ValueError(f"there is no {key!r} here: known are {', '.join(sorted(known))}")
