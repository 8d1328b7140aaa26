"""The installed pairs of the catalogue, ready to load, and the pairs that the user saved."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from specchat.catalogue.catalogue_file import (
    find_entry,
    known,
    load_entries,
    own_catalogue_path,
    read_catalogue,
)
from specchat.catalogue.entry import Entry
from specchat.errors import InvalidOption, ModelNotFound
from specchat.hub.cache import find_present
from specchat.hub.names import is_hub_name, parse_name
from specchat.settings.positions import parsed
from specchat.settings.toml_file import as_toml, change_value, load_file, read_file, table_in
from specchat.wording import size_text

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]{0,62}[A-Za-z0-9])?")
PAIR = "pair"
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
NEW_FILE = """\
# Your own pairs: they add to those that ship with specchat, or replace them by name.
# `specchat ask --target FILE --save-as NAME` adds one, `specchat rm NAME` removes it.
"""


@dataclass(frozen=True, slots=True)
class Pair:
    """A named target with its draft model, and the sampling that its makers recommend.

    `workers` are the addresses of machines that hold layers of the target.
    """

    name: str
    description: str
    target: Path
    draft: Path | None
    sampling: Mapping[str, float]
    workers: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name in the catalogue, empty if it is not from there: files have raw names."""
        return self.name if self.description else ""


def load_pairs() -> dict[str, Pair]:
    """Return the installed pairs; invalid ones in the user's own file are left out."""
    entries = read_catalogue().entries.values()
    pairs = map(_pair, entries)
    return {pair.name: pair for pair in pairs if pair}


def find_pair(name: str) -> Pair:
    """Return the pair of that name. Raises ModelNotFound, which says how to install it."""
    entry = find_usable(name)
    pair = _pair(entry)
    if pair is None:
        size = f" ({size_text(entry.num_bytes)})" if entry.num_bytes else ""
        raise ModelNotFound(
            f"pair {name} is not installed: `specchat pull {name}` fetches it{size}"
        )
    return pair


def file_of(name: str) -> Path:
    """Return the file at a path, of a local model, or of a pair's target.

    Raises ModelNotFound, which says how to install a file of the catalogue.
    """
    from specchat.catalogue.model_lookup import NotHere, find_model, find_path

    if path := find_path(name) or _downloaded(name):
        return path
    if model := find_model(name):
        return model.path
    entries = load_entries()
    if name in entries:
        return find_pair(name).target
    for reference in (listed for entry in entries.values() for listed in entry.references):
        if name.lower() in {str(reference).lower(), reference.name.lower()}:
            raise ModelNotFound(
                f"{reference} is not installed: `specchat pull {reference}` fetches it"
            )
    where = f"`specchat pull {shlex.quote(name)}` fetches it from the hub, or "
    raise NotHere(
        f"{name}: no such file or local model: {where * is_hub_name(name)}check the path;"
        " `specchat list` shows all models"
    )


def _downloaded(name: str) -> Path | None:
    """Return the hub's file with this full name or address if it is in the cache."""
    if not is_hub_name(name):
        return None
    with suppress(InvalidOption):
        wanted = parse_name(name)
        return find_present(known(wanted.reference)) if wanted.file else None
    return None


def find_usable(name: str) -> Entry:
    """Return the entry of that name, installed or not.

    Raises ModelNotFound if a file that it names by path is missing.
    """
    entry = find_entry(name)
    for file in entry.files:
        if isinstance(file, Path) and not os.path.isfile(file):
            or_forget = f", or remove the pair with `specchat rm {entry.name}`"
            raise ModelNotFound(
                f"pair {entry.name} needs {file}, which is missing: put it back, or change its path"
                f" in {own_catalogue_path()}{or_forget * is_saved(entry.name)}"
            )
    return entry


def require_savable(name: str, target: Path, draft: Path | None) -> None:
    """Check that a pair can be saved under a name, before it is loaded.

    Raises InvalidOption for an invalid or taken name, ModelNotFound for a missing file, and
    SettingsError if the user's models.toml cannot be read.
    """
    if not NAME.fullmatch(name):
        raise InvalidOption(f"{name!r} is not a valid name: use letters, digits and . _ : -")
    if name in load_entries() and not has_pair(own_catalogue_path(), name):
        raise InvalidOption(f"the catalogue has a pair named {name}: choose another name")
    for file in (target, draft):
        if file is not None and not os.path.isfile(file):
            raise ModelNotFound(f"{file}: no such file, so the pair is not saved")


def save_pair(name: str, target: Path, draft: Path | None, workers: Sequence[str] = ()) -> Path:
    """Save a pair under a name, replacing one saved before; return the path of the catalogue file.

    Raises as `require_savable` does, and SettingsError if the file cannot be written.
    """
    require_savable(name, target, draft)
    path = own_catalogue_path()
    with_draft = f", with {draft.stem} as draft" if draft else ""
    description = f"Saved here: {target.stem}{with_draft}"
    files = {"target": target, "draft": draft}
    paths = {key: file.absolute().as_posix() for key, file in files.items() if file}
    named = {"workers": list(workers)} if workers else {}
    write_pair(path, name, {"description": description, **paths, **named})
    return path


def is_saved(name: str) -> bool:
    """Return True if the user's own models.toml has a pair of local files under that name."""
    entry = load_entries().get(name)
    return entry is not None and not entry.references and has_pair(own_catalogue_path(), name)


def has_pair(path: Path, name: str) -> bool:
    """Return True if a catalogue file has a pair of this name. Raises SettingsError."""
    return name in table_in(load_file(path, read_file(path) or ""), PAIR)


def write_pair(path: Path, name: str, values: Mapping[str, object]) -> None:
    """Write a pair, replacing one of that name; a missing file is created.

    Raises SettingsError if the file cannot be read or written.
    """
    change_value(path, (PAIR, name), dict(values), NEW_FILE, partial(_added, name, values))


def drop_pair(path: Path, name: str) -> None:
    """Remove a pair. Raises SettingsError if the file cannot be read or written."""
    change_value(path, (PAIR, name), None, "", lambda text: text)


def _added(name: str, values: Mapping[str, object], text: str) -> str | None:
    """Return the text with a pair appended; None if all pairs are in one inline table."""
    end = "\r\n" if "\r\n" in text else "\n"
    key = name if BARE_KEY.fullmatch(name) else as_toml(name)
    lines = [f"[{PAIR}.{key}]", *(f"{field} = {as_toml(value)}" for field, value in values.items())]
    start = end if text.endswith("\n") or not text else 2 * end
    added = text + start + end.join(lines) + end
    return None if parsed(added) is None else added


def _pair(entry: Entry) -> Pair | None:
    """Return an entry as a pair, None if a file is not installed."""
    target, draft = [*entry.paths, None][:2]
    if target is None or (entry.draft and draft is None):
        return None
    return Pair(entry.name, entry.description, target, draft, entry.sampling, entry.workers)
