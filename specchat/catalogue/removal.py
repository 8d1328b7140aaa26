"""Removal of pulled files, except those that other pairs, settings or tuning use."""

import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from specchat.catalogue.catalogue_file import load_entries
from specchat.catalogue.tuned_settings import tuned_drafts
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
from specchat.hub.references import Reference, is_commit, split_names
from specchat.settings import read_settings

LOCK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Removal:
    """The files to delete with their size in bytes, and those kept, each with its user."""

    deleted: tuple[Reference, ...]
    kept: tuple[tuple[Reference, str], ...]
    num_bytes: int


def plan_removal(name: str, references: Sequence[Reference]) -> Removal:
    """Return what removing a pair, or a file of its own, would delete.

    Raises SettingsError or CatalogueError if it cannot be known who uses the files.
    """
    here = [each for each in dict.fromkeys(references) if _paths(each) or _has_pin(each)]
    users = {**_users_by_path(name, here), **_pairs_with(name)}
    deleted = tuple(each for each in here if each not in users)
    return Removal(
        deleted=deleted,
        kept=tuple((each, users[each]) for each in here if each in users),
        num_bytes=sum(path.stat().st_size for each in deleted for path in _paths(each)),
    )


@contextmanager
def locked(removal: Removal) -> Iterator[None]:
    """Keep downloads of the deleted files waiting. Raises SpecchatError if one is running."""
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

    parts = [pinned(part) for reference in removal.deleted for part in reference.parts]
    locks = {lock_path(part, part.sha256): part for part in parts if part.sha256}
    with ExitStack() as stack:
        for lock, part in locks.items():
            if lock.parent.is_dir():
                try:
                    stack.enter_context(WeakFileLock(lock, timeout=LOCK_SECONDS))
                except TimeoutError:  # filelock's Timeout is one
                    raise SpecchatError(
                        f"{part} is being pulled, so nothing was deleted: stop the download first"
                    ) from None
        yield


def remove(removal: Removal) -> None:
    """Delete files; their bytes stay if other files of the cache share them."""
    pointers = {path for each in removal.deleted for path in _pointers(each)}
    if pointers:
        _delete(pointers)
    for reference in removal.deleted:
        for path in _paths(reference):
            path.unlink(missing_ok=True)
        for part in reference.parts:
            drop_pin(part)
    for repository in {reference.repository for reference in removal.deleted}:
        _tidy(repository_folder(repository))


def _pairs_with(name: str) -> dict[Reference, str]:
    """Return the installed files of all pairs but one, each with a pair that uses it."""
    return {
        reference: f"pair {entry.name}"
        for entry in load_entries().values()
        if entry.name != name and all(find_present(each) for each in entry.references)
        for reference in entry.references
    }


def _users_by_path(name: str, references: Sequence[Reference]) -> dict[Reference, str]:
    """Return the files that something uses by a path into the cache, each with the user."""
    files = {each: [path.resolve() for path in _paths(each)] for each in references}
    deleted = {path for paths in files.values() for path in paths}
    users = {
        real: user
        for path, user in reversed(list(_used_paths(name, deleted)))
        for real in _real_parts(path)
    }
    found = {
        each: [users[path] for path in paths if path in users] for each, paths in files.items()
    }
    return {each: names[0] for each, names in found.items() if names}


def _used_paths(name: str, deleted: Collection[Path]) -> Iterator[tuple[Path, str]]:
    """Yield the paths that pairs, settings and tuning name, each with its user.

    The pair of that name does not count, nor does what tuning chose for a deleted target.
    """
    for entry in load_entries().values():
        for file in entry.files if entry.name != name else ():
            if isinstance(file, Path):
                yield file, f"pair {entry.name}"
    settings = read_settings()
    for setting in ("model.target", "model.draft"):
        if settings[setting]:
            where = settings.path if settings.source(setting) == "file" else "the environment"
            yield Path(settings[setting]), f"{setting} in {where}"
    for target, draft in tuned_drafts():
        if target.is_file() and target.resolve() not in deleted:
            yield draft, f"{target.name}, for which tuning chose it,"


def _real_parts(path: Path) -> Iterator[Path]:
    """Yield the files of a model with links followed, none for an impossible path."""
    for part in split_names(path.name):
        with suppress(OSError, RuntimeError, ValueError):
            yield path.with_name(part).resolve()


def _paths(reference: Reference) -> list[Path]:
    """Return the paths of a file in the cache, whole and partly downloaded."""
    known = [pinned(part) for part in reference.parts]
    partial = [part_path(part, part.sha256) for part in known if part.sha256]
    return [*_pointers(reference), *(path for path in partial if path.is_file())]


def _pointers(reference: Reference) -> list[Path]:
    found = [path for part in reference.parts if (path := find_present(part))]
    known = [pinned(part) for part in reference.parts]
    named = [pointer_path(part) for part in known if is_commit(part.revision)]
    return list(dict.fromkeys(path for path in [*found, *named] if path.exists()))


def _has_pin(reference: Reference) -> bool:
    return any(pinned(part) != part for part in reference.parts)


def _delete(pointers: set[Path]) -> None:
    """Delete files through huggingface_hub, which knows what else shares their bytes."""
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
        reason = str(info.warnings[0]) if info.warnings else "some files are not listed"
        raise SpecchatError(f"the cache {root} is damaged, so nothing was deleted: {reason}")
    info.delete_files(*files).execute()


def _tidy(folder: Path) -> None:
    """Delete a repository's folder if no file is left in it."""
    snapshots = (folder / "snapshots").rglob("*")
    parts = (folder / "blobs").glob(f"*{PART}")
    if not any(path.is_file() for path in (*snapshots, *parts)):
        shutil.rmtree(folder, ignore_errors=True)
