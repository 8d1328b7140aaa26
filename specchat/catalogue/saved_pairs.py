"""Saved pairs: files of this machine under a name, in the user's own models.toml."""

from __future__ import annotations

import re
from pathlib import Path

from specchat.catalogue.catalogue_file import load_entries, own_catalogue_path
from specchat.errors import InvalidOption, ModelNotFound
from specchat.settings.pair_file import drop_pair, has_pair, write_pair

__all__ = ["forget_pair", "is_saved", "require_savable", "save_pair"]

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]{0,62}[A-Za-z0-9])?")


def require_savable(name: str, target: Path, draft: Path | None) -> None:
    """Raise what saving a pair under a name would raise, before it is loaded.

    InvalidOption for a name that cannot be or is another pair's, ModelNotFound for a file that is
    not there, SettingsError where the user's models.toml cannot be read.
    """
    if not NAME.fullmatch(name):
        raise InvalidOption(f"{name!r} is no name for a pair: letters, digits and . _ : - are")
    if name in load_entries() and not has_pair(own_catalogue_path(), name):
        raise InvalidOption(f"there is a pair named {name} in the catalogue: choose another name")
    for file in (target, draft):
        if file is not None and not file.is_file():
            raise ModelNotFound(f"{file}: no such file, so the pair is not saved")


def save_pair(name: str, target: Path, draft: Path | None) -> Path:
    """Keep a pair under a name, in place of a saved one of that name; return the file it is in.

    Raises as `require_savable` does, and SettingsError where the file cannot be written.
    """
    require_savable(name, target, draft)
    path = own_catalogue_path()
    with_draft = f", with {draft.stem} as draft" if draft else ""
    told = {"description": f"Saved here: {target.stem}{with_draft}"}
    files = {"target": target, "draft": draft}
    paths = {key: file.absolute().as_posix() for key, file in files.items() if file}
    write_pair(path, name, {**told, **paths})
    return path


def is_saved(name: str) -> bool:
    """Say whether a name is that of a pair of the user's own whose files did not come by it."""
    entry = load_entries().get(name)
    return entry is not None and not entry.references and has_pair(own_catalogue_path(), name)


def forget_pair(name: str) -> None:
    """Take a saved pair out of the user's models.toml; its files stay."""
    drop_pair(own_catalogue_path(), name)
