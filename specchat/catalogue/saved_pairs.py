"""Saved pairs: local files under a name, in the user's own models.toml."""

import re
from pathlib import Path

from specchat.catalogue.catalogue_file import load_entries, own_catalogue_path
from specchat.errors import InvalidOption, ModelNotFound
from specchat.settings.pair_file import drop_pair, has_pair, write_pair

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]{0,62}[A-Za-z0-9])?")


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
        if file is not None and not file.is_file():
            raise ModelNotFound(f"{file}: no such file, so the pair is not saved")


def save_pair(name: str, target: Path, draft: Path | None) -> Path:
    """Save a pair under a name, replacing a saved one; return the file it is in.

    Raises as `require_savable` does, and SettingsError if the file cannot be written.
    """
    require_savable(name, target, draft)
    path = own_catalogue_path()
    with_draft = f", with {draft.stem} as draft" if draft else ""
    description = f"Saved here: {target.stem}{with_draft}"
    files = {"target": target, "draft": draft}
    paths = {key: file.absolute().as_posix() for key, file in files.items() if file}
    write_pair(path, name, {"description": description, **paths})
    return path


def is_saved(name: str) -> bool:
    """Return True for the name of a pair of local files in the user's own models.toml."""
    entry = load_entries().get(name)
    return entry is not None and not entry.references and has_pair(own_catalogue_path(), name)


def forget_pair(name: str) -> None:
    """Remove a saved pair from the user's models.toml; its files stay."""
    drop_pair(own_catalogue_path(), name)
