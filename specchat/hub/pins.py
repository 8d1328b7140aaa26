"""Pins: the commit, size and sha256 of each file when it was first pulled.

A file that the catalogue does not pin is pinned at its first download, so that a later one fetches
the same bytes. The pin counts as unchecked until the bytes have been verified: an interrupted
download resumes with the same file even if the repository changes meanwhile, but false metadata
from one hub does not tie the user to it.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from specchat.hub.references import Reference, is_commit
from specchat.system.private_files import FOLDERS, read_json, set_aside, updating


@dataclass(frozen=True, slots=True)
class _Pin:
    """The pin of a file; `file` is its name if the repository spells it in another case.

    It is checked once the file's bytes have been found to match its sha256.
    """

    revision: str
    bytes: int | None = None
    sha256: str | None = None
    file: str | None = None
    is_checked: bool = True


_Pins: TypeAlias = dict[str, _Pin]


def pins_path() -> Path:
    """Return the path of the file that holds all pins."""
    return FOLDERS.user_data_path / "pins.json"


def pinned(reference: Reference) -> Reference:
    """Return a reference with its pinned commit, size and sha256, or unchanged without a pin.

    The file's name then has the repository's spelling.
    """
    pin = read_json(pins_path(), _Pins, {}).get(_key(reference))
    if pin is None:
        return reference
    is_same = pin.file is not None and pin.file.lower() == reference.file.lower()
    with suppress(ValueError):
        return replace(
            reference,
            file=pin.file if is_same and pin.file else reference.file,
            revision=pin.revision,
            size=reference.size or pin.bytes,
            sha256=reference.sha256 or pin.sha256,
        )
    return reference


def is_checked(reference: Reference) -> bool:
    """Return False if a reference has an unchecked pin."""
    pin = read_json(pins_path(), _Pins, {}).get(_key(reference))
    return pin is None or pin.is_checked


def keep_pin(asked: Reference, resolved: Reference, *, is_checked: bool = True) -> None:
    """Save what the hub found as the pin of a reference that lacks a full pin. Raises OSError."""
    if is_commit(asked.revision) and asked.sha256 and asked.file == resolved.file:
        return
    name = resolved.file if asked.file != resolved.file else None
    with updating(pins_path(), _Pins) as pins:
        pins[_key(asked)] = _Pin(
            resolved.revision, resolved.size, resolved.sha256, name, is_checked
        )


def drop_pin(reference: Reference) -> None:
    """Remove a reference's pin. Raises OSError."""
    with updating(pins_path(), _Pins) as pins:
        pins.pop(_key(reference), None)


def kept_references() -> list[Reference]:
    """Return all references that have a pin."""
    references = []
    for key in read_json(pins_path(), _Pins, {}):
        name, _, revision = key.rpartition("@")
        organisation, repository, file = [*name.split("/", 2), "", ""][:3]
        with suppress(ValueError):
            references.append(Reference(f"{organisation}/{repository}", file, revision))
    return references


def set_aside_damaged_pins() -> Path | None:
    """Rename a damaged pins file; return its new path, None if the file is fine."""
    return set_aside(pins_path(), _Pins)


def _key(reference: Reference) -> str:
    return f"{reference}@{reference.revision}"
