"""models.toml: what it says of each pair, before anybody looks whether the files are here.

It comes with specchat; a file of the same form in the user's config folder adds pairs and replaces
those of the same name. Reading it needs neither NumPy nor huggingface_hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TypeAlias

import platformdirs

from specchat.catalogue.references import MAIN, Reference
from specchat.catalogue.tables import Table, read_table
from specchat.decoding.options import Sampling
from specchat.errors import InvalidOption, ModelNotFound
from specchat.settings.kinds import Choice, Number, Switch, Text, Whole

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

WITHOUT_DRAFT = {"none", "mtp-embedded"}
TEXT = Text()
TIERS = Choice(("small", "medium", "large"))
AMOUNT = Number(0, is_above=True)
SHARE = Number(0, 1)
FILE_KEYS = {"repository", "revision", "file", "bytes", "sha256"}
GUESS_KEYS = {"acceptance"}
PAIR_KEYS = {
    "about_gb", "description", "draft", "first_guess", "kind", "licence", "memory_gb",
    "recommended", "sampling", "target", "tier",
}  # fmt: skip

File: TypeAlias = Path | Reference
"""A file on this machine, or one of the hub."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the catalogue says of a pair. `about_gb` stands in where exact sizes are not known.

    `memory_gb` is what both models take with caches and buffers, by the context's length in tokens.
    `first_guess` tells the reader what others report: `acceptance`, a share of the drafted tokens.
    A recommended pair is one to begin with, for those whom nothing more special brings here.
    """

    name: str
    description: str
    target: File
    draft: File | None
    sampling: Mapping[str, float] = field(default_factory=dict, hash=False)
    kind: str = "simple"
    tier: str = ""
    licence: str = ""
    about_gb: float | None = None
    memory_gb: Mapping[int, float] = field(default_factory=dict, hash=False)
    first_guess: Mapping[str, float] = field(default_factory=dict, hash=False)
    is_recommended: bool = False

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
    """Read a catalogue whose paths begin in a folder; CatalogueError tells the line it is wrong."""
    content = read_table(path)
    content.require_known({"file", "pair"})
    files = {name: _reference(each) for name, each in content.tables("file")}
    return {name: _entry(name, each, files, folder) for name, each in content.tables("pair")}


def _entry(name: str, told: Table, files: Mapping[str, File], folder: Path) -> Entry:
    told.require_known(PAIR_KEYS)
    has_draft = "draft" in told.values
    kind = told.take("kind", Choice(tuple(KINDS)), "simple" if has_draft else "none")
    if has_draft == (kind in WITHOUT_DRAFT):
        raise told.wrong(f"kind {kind} goes with{'out' * has_draft} a draft", "kind")
    return Entry(
        name=name,
        description=told.require("description", TEXT),
        target=_file(told, "target", files, folder),
        draft=_file(told, "draft", files, folder) if has_draft else None,
        sampling=_sampling(told.inner("sampling")),
        kind=kind,
        tier=told.take("tier", TIERS, ""),
        licence=told.take("licence", TEXT, ""),
        about_gb=told.take("about_gb", AMOUNT),
        memory_gb=_memory(told.inner("memory_gb")),
        first_guess=_first_guess(told.inner("first_guess")),
        is_recommended=told.take("recommended", Switch(), default=False),
    )


def _file(told: Table, key: str, files: Mapping[str, File], folder: Path) -> File:
    """Return what stands for a file: a table of its own, the name of one, or a path."""
    if isinstance(told.values.get(key), dict):
        return _reference(told.inner(key))
    name = told.require(key, Text("a table, the name of a file, or a path in quotes"))
    if name in files:
        return files[name]
    if "/" not in name and not name.lower().endswith(".gguf"):
        raise told.wrong(f"there is no [file.{name}], and it is no path of a GGUF file", key)
    try:
        return folder / Path(name).expanduser()
    except RuntimeError:
        raise told.wrong(f"nobody knows whose home folder is in {name!r}", key) from None


def _reference(told: Table) -> Reference:
    told.require_known(FILE_KEYS)
    repository, file = told.require("repository", TEXT), told.require("file", TEXT)
    revision = told.take("revision", TEXT, MAIN)
    size, sha256 = told.take("bytes", Whole(1)), told.take("sha256", TEXT)
    try:
        return Reference(repository, file, revision, size, sha256)
    except ValueError as error:
        raise told.wrong(str(error)) from None


def _sampling(told: Table) -> Mapping[str, float]:
    told.require_known({option.name for option in fields(Sampling)} - {"logit_bias"})
    values = {name: told.take(name, Number()) for name in told.values}
    try:
        Sampling(**values)
    except InvalidOption as error:
        raise told.wrong(f"sampling: {error}") from None
    return values


def _memory(told: Table) -> Mapping[int, float]:
    for length in told.values:
        if not (length.isascii() and length.isdigit()):
            raise told.wrong(f"memory_gb: {length!r} is no length of a context in tokens", length)
    return {int(length): told.take(length, AMOUNT) for length in told.values}


def _first_guess(told: Table) -> Mapping[str, float]:
    told.require_known(GUESS_KEYS)
    return {key: told.take(key, SHARE) for key in told.values}
