"""Deleting what was pulled: what goes, and what stays because another pair needs it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from specchat.catalogue.catalogue_file import load_entries
from specchat.catalogue.file_users import users_by_path
from specchat.errors import SpecchatError
from specchat.hub.cache import (
    PART,
    cache_root,
    find_present,
    lock_path,
    part_path,
    pointer_path,
    repository_folder,
)
from specchat.hub.pins import drop_pin, pinned
from specchat.hub.references import Reference, is_commit

__all__ = ["Removal", "holding", "plan_removal", "remove"]


MOMENT = 0.1
"""Seconds to try for a lock."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What would go, and the files that stay, each with who needs it, in words."""

    going: tuple[Reference, ...]
    staying: tuple[tuple[Reference, str], ...]
    num_bytes: int


def plan_removal(name: str, references: Sequence[Reference]) -> Removal:
    """Say what removing a pair, or a file by itself, would take away."""
    here = [each for each in dict.fromkeys(references) if _paths(each) or _has_pin(each)]
    needed = {**_used_by_path(name, here), **_used_by_pairs(name)}
    going = tuple(each for each in here if each not in needed)
    return Removal(
        going=going,
        staying=tuple((each, needed[each]) for each in here if each in needed),
        num_bytes=sum(path.stat().st_size for each in going for path in _paths(each)),
    )


@contextmanager
def holding(removal: Removal) -> Iterator[None]:
    """Keep downloads of what goes waiting; SpecchatError where one of them is on its way."""
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

    parts = [pinned(part) for reference in removal.going for part in reference.parts]
    locks = {lock_path(part, part.sha256): part for part in parts if part.sha256}
    with ExitStack() as stack:
        for lock, part in locks.items():
            if lock.parent.is_dir():
                try:
                    stack.enter_context(WeakFileLock(lock, timeout=MOMENT))
                except TimeoutError:  # filelock's Timeout is one
                    raise SpecchatError(
                        f"{part} is being pulled, so nothing was deleted: stop that first"
                    ) from None
        yield


def remove(removal: Removal) -> None:
    """Delete what goes, the bytes too where nothing else in the cache is made of them."""
    pointers = {path for each in removal.going for path in _pointers(each)}
    if pointers:
        _delete(pointers)
    for reference in removal.going:
        for path in _paths(reference):
            path.unlink(missing_ok=True)
        for part in reference.parts:
            drop_pin(part)
    for repository in {reference.repository for reference in removal.going}:
        _tidy(repository_folder(repository))


def _used_by_pairs(name: str) -> dict[Reference, str]:
    """Return the files of the other pairs of the catalogue that are here, each with its pair."""
    return {
        reference: f"pair {entry.name}"
        for entry in load_entries().values()
        if entry.name != name and all(find_present(each) for each in entry.references)
        for reference in entry.references
    }


def _used_by_path(name: str, references: Sequence[Reference]) -> dict[Reference, str]:
    """Return the files that somebody uses by a path into the cache, each with who it is."""
    files = {each: [path.resolve() for path in _paths(each)] for each in references}
    users = users_by_path(name, {path for paths in files.values() for path in paths})
    used = {each: [users[path] for path in paths if path in users] for each, paths in files.items()}
    return {each: who[0] for each, who in used.items() if who}


def _paths(reference: Reference) -> list[Path]:
    """Return what is here of a file: under its own name, or the beginning of it."""
    return [*_pointers(reference), *_beginnings(reference)]


def _pointers(reference: Reference) -> list[Path]:
    found = [path for part in reference.parts if (path := find_present(part))]
    pinned_parts = [pinned(part) for part in reference.parts]
    named = [pointer_path(part) for part in pinned_parts if is_commit(part.revision)]
    return list(dict.fromkeys(path for path in [*found, *named] if path.exists()))


def _has_pin(reference: Reference) -> bool:
    return any(pinned(part) != part for part in reference.parts)


def _beginnings(reference: Reference) -> list[Path]:
    known = [pinned(part) for part in reference.parts]
    paths = [part_path(part, part.sha256) for part in known if part.sha256]
    return [path for path in paths if path.is_file()]


def _delete(pointers: set[Path]) -> None:
    """Let huggingface_hub delete, which knows what else in its cache shares the bytes."""
    from huggingface_hub import scan_cache_dir

    root = cache_root()
    info = scan_cache_dir(root)
    wanted = {root.resolve() / pointer.relative_to(root) for pointer in pointers}
    files = [
        file
        for repository in info.repos
        for revision in repository.revisions
        for file in revision.files
        if file.file_path in wanted
    ]
    if len(files) < len(wanted):
        told = str(info.warnings[0]) if info.warnings else "not all of it is found there"
        raise SpecchatError(f"the cache {root} is damaged, so nothing was deleted: {told}")
    info.delete_files(*files).execute()


def _tidy(folder: Path) -> None:
    """Delete a repository's folder where no file is left in it."""
    snapshots = (folder / "snapshots").rglob("*")
    parts = (folder / "blobs").glob(f"*{PART}")
    if not any(path.is_file() for path in (*snapshots, *parts)):
        shutil.rmtree(folder, ignore_errors=True)
