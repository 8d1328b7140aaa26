"""Removing pulled files, except those that other pairs, settings or tuning use."""

import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from specchat.catalogue.catalogue_file import known, load_entries
from specchat.catalogue.projectors import projector_for
from specchat.catalogue.tuned_settings import tuned_drafts
from specchat.errors import SpecchatError
from specchat.gguf.split_files import split_names
from specchat.hub.cache import PART, find_present, lock_path, paths_on_disk, repository_folder
from specchat.hub.pins import drop_pin, pinned
from specchat.hub.references import MAIN, Reference
from specchat.settings.sources import read_settings

LOCK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Removal:
    """The files to delete with their total size, and the files to keep with what uses them."""

    deleted: tuple[Reference, ...]
    kept: tuple[tuple[Reference, str], ...]
    num_bytes: int


def plan_removal(name: str, references: Sequence[Reference]) -> Removal:
    """Return what removing a pair, or a single file, would delete.

    Projectors that no other model reads images with go with theirs. Raises SettingsError or
    CatalogueError if the files' users cannot be determined.
    """
    files = {reference: paths_on_disk(reference) for reference in references}
    used = _users(name, files)
    going = {reference: paths for reference, paths in files.items() if reference not in used}
    files |= {projector: paths_on_disk(projector) for projector in _left_alone(going)}
    has_pin = {
        reference: any(pinned(part) != part for part in reference.parts) for reference in files
    }
    here = [file for file in files if files[file] or has_pin[file]]
    users = _users(name, files)
    deleted = tuple(reference for reference in here if reference not in users)
    return Removal(
        deleted=deleted,
        kept=tuple((reference, users[reference]) for reference in here if reference in users),
        num_bytes=sum(path.stat().st_size for reference in deleted for path in files[reference]),
    )


@contextmanager
def locked(removal: Removal) -> Iterator[None]:
    """Block downloads of the files to delete. Raises SpecchatError if one is running."""
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
    """Delete files; blobs that other files of the cache share stay."""
    for reference in removal.deleted:
        folder = repository_folder(reference.repository)
        snapshots, blobs = folder / "snapshots", folder / "blobs"
        for path in paths_on_disk(reference):
            blob = path.resolve()
            path.unlink()
            is_shared = any(os.path.realpath(link) == str(blob) for link in snapshots.rglob("*"))
            if blob.parent == blobs.resolve() and not is_shared:
                blob.unlink(missing_ok=True)
        for part in reference.parts:
            drop_pin(part)
        if not any(path.is_file() for path in (*snapshots.rglob("*"), *blobs.glob(f"*{PART}"))):
            shutil.rmtree(folder, ignore_errors=True)


def user_of(path: Path) -> str | None:
    """Return the pair or setting that names a file, or None."""
    for named_path, user in _named_paths(""):
        with suppress(OSError, RuntimeError, ValueError):  # an impossible path
            if named_path.resolve() == path.resolve():
                return user
    return None


def _left_alone(files: Mapping[Reference, Sequence[Path]]) -> Iterator[Reference]:
    """Yield the projectors of files of which no other model in their repository makes use."""
    going = {path for paths in files.values() for path in paths}
    for reference in files:
        path = find_present(reference)
        projector = projector_for(path) if path else None
        if not projector or projector in going:
            continue
        snapshots = repository_folder(reference.repository) / "snapshots"
        rest = set(snapshots.rglob("*.gguf")) - going - {projector}
        if not any(projector_for(other) == projector for other in rest):
            commit, *folders = projector.relative_to(snapshots).parts
            for revision in (reference.revision, MAIN, commit):
                found = known(Reference(reference.repository, "/".join(folders), revision))
                if find_present(found) == projector:
                    yield found
                    break


def _users(name: str, files: Mapping[Reference, Sequence[Path]]) -> dict[Reference, str]:
    """Return the files that anything but the pair of that name uses, each with one user."""
    real = {reference: [path.resolve() for path in paths] for reference, paths in files.items()}
    used: dict[Path, str] = {}
    for path, user in _used_paths(name, {path for paths in real.values() for path in paths}):
        for part in split_names(path.name):
            with suppress(OSError, RuntimeError, ValueError):  # an impossible path
                used.setdefault(path.with_name(part).resolve(), user)
    used_by = {
        reference: [used[path] for path in paths if path in used]
        for reference, paths in real.items()
    }
    return {reference: users[0] for reference, users in used_by.items() if users}


def _used_paths(name: str, deleted: Collection[Path]) -> Iterator[tuple[Path, str]]:
    """Yield the files that pairs, settings and tuning use, each with its user.

    Ignores the pair of that name, and what tuning chose for a deleted target.
    """
    yield from _named_paths(name)
    for target, draft in tuned_drafts():
        if os.path.isfile(target) and target.resolve() not in deleted:
            yield draft, f"{target.name}, for which tuning chose it,"


def _named_paths(name: str) -> Iterator[tuple[Path, str]]:
    """Yield the files that other pairs and settings name; a hub pair counts if it is installed."""
    for entry in load_entries().values():
        paths = entry.paths if entry.name != name else []
        for file, path in zip(entry.files, paths, strict=False):
            if path and (path == file or all(paths)):
                yield path, f"pair {entry.name}"
    settings = read_settings()
    for setting in ("model.target", "model.draft", "model.projector"):
        if settings[setting]:
            where = settings.path if settings.source(setting) == "file" else "the environment"
            yield Path(settings[setting]), f"{setting} in {where}"
