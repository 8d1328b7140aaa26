"""The shared cache of huggingface_hub: where its files lie, and how one is put there.

The layout is huggingface_hub's own (blobs/<etag>, snapshots/<commit>/<file>, refs/<revision>), so
that what is pulled here is there for other programs, and the other way round. huggingface_hub
itself is not imported to look something up: a list of what is here must not wait for it.
"""

from __future__ import annotations

import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from specchat.errors import DownloadFailed
from specchat.hub.pins import pinned
from specchat.hub.references import Reference, is_commit, is_sha256

__all__ = [
    "PART",
    "blob_path",
    "cache_root",
    "find_present",
    "keep_ref",
    "link",
    "lock_path",
    "part_path",
    "pointer_path",
    "repository_folder",
    "require_space",
    "size_in_words",
]

PART = ".specchat-part"
SPARE = 64 << 20
"""Bytes to leave free on the disk."""

UNITS = ("bytes", "kB", "MB", "GB")


def cache_root() -> Path:
    """Return the folder of the cache, by the environment variables of huggingface_hub."""
    found = os.environ.get("HF_HUB_CACHE", os.environ.get("HUGGINGFACE_HUB_CACHE"))
    if found is None:
        shared = os.environ.get("XDG_CACHE_HOME", "~/.cache")
        found = f"{os.environ.get('HF_HOME', f'{shared}/huggingface')}/hub"
    return Path(os.path.expandvars(Path(found).expanduser()))


def repository_folder(repository: str) -> Path:
    """Return the folder of a repository."""
    return cache_root() / f"models--{repository.replace('/', '--')}"


def blob_path(reference: Reference, etag: str) -> Path:
    """Return where the bytes of a file lie."""
    return repository_folder(reference.repository) / "blobs" / etag


def part_path(reference: Reference, etag: str) -> Path:
    """Return where the bytes lie that have arrived so far."""
    return blob_path(reference, etag + PART)


def lock_path(reference: Reference, etag: str) -> Path:
    """Return the file that huggingface_hub locks while it fetches those bytes."""
    folder = repository_folder(reference.repository)
    return cache_root() / ".locks" / folder.name / f"{etag}.lock"


def pointer_path(reference: Reference) -> Path:
    """Return where a file of a commit is found under its own name."""
    snapshot = repository_folder(reference.repository) / "snapshots" / reference.revision
    return snapshot.joinpath(*reference.file.split("/"))


def find_present(reference: Reference) -> Path | None:
    """Return where a file lies, with all its parts, if it is here; nobody is asked.

    What is pinned must have the size and lie under the sha256 that the pin says.
    """
    places = [_present(pinned(part)) for part in reference.parts]
    folders = {place and place.parent for place in places}
    return places[0] if len(folders) == 1 else None  # the parts of one commit, or nothing


def _present(reference: Reference) -> Path | None:
    revision = _commit(reference)
    if revision is None:
        return None
    pointer = pointer_path(Reference(reference.repository, reference.file, revision))
    try:
        size = pointer.stat().st_size
        blob = pointer.readlink().name if pointer.is_symlink() else ""
    except OSError:
        return None
    is_other = reference.sha256 and is_sha256(blob) and blob != reference.sha256
    return None if is_other or reference.size not in {None, size} else pointer


def _commit(reference: Reference) -> str | None:
    """Return the commit of a revision, as far as the cache knows it."""
    if is_commit(reference.revision):
        return reference.revision
    ref = repository_folder(reference.repository).joinpath("refs", *reference.revision.split("/"))
    with suppress(OSError, ValueError):
        commit = ref.read_text("utf-8").strip()
        return commit if is_commit(commit) else None
    return None


def keep_ref(reference: Reference, commit: str) -> None:
    """Keep which commit a branch or a tag stands for, as huggingface_hub does."""
    folder = repository_folder(reference.repository)
    (folder / "snapshots" / commit).mkdir(parents=True, exist_ok=True)
    if not is_commit(reference.revision):
        ref = folder.joinpath("refs", *reference.revision.split("/"))
        ref.parent.mkdir(parents=True, exist_ok=True)
        fresh = _beside(ref)
        fresh.write_text(commit, "utf-8")
        fresh.replace(ref)


def link(reference: Reference, etag: str) -> Path:
    """Let a file of a commit be found under its own name; its bytes move where links cannot be."""
    from huggingface_hub.file_download import are_symlinks_supported

    blob, pointer = blob_path(reference, etag), pointer_path(reference)
    pointer.parent.mkdir(parents=True, exist_ok=True)
    if not are_symlinks_supported(cache_root()):
        blob.replace(pointer)
        return pointer
    fresh = _beside(pointer)
    fresh.symlink_to(os.path.relpath(blob, pointer.parent))
    fresh.replace(pointer)
    return pointer


def _beside(path: Path) -> Path:
    """Return a name of its own for what will replace a path when it is whole."""
    return path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")


def require_space(num_bytes: int) -> None:
    """Raise DownloadFailed unless the cache can be written and has room for so many bytes more."""
    if not num_bytes:
        return
    root = cache_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=root):
            free = shutil.disk_usage(root).free
    except OSError as error:
        raise DownloadFailed(
            f"{root} cannot be written ({error.strerror}): name another folder with HF_HOME"
        ) from None
    if num_bytes + SPARE > free:
        raise DownloadFailed(
            f"no room: {size_in_words(num_bytes)} to fetch, {size_in_words(free)} free at {root}:"
            " free some, or name a folder on a larger disk with HF_HOME"
        )


def size_in_words(num_bytes: float) -> str:
    """Return a size as the hub writes it: in units of 1000."""
    power = min(3, max(0, len(str(int(num_bytes))) - 1) // 3)
    size = num_bytes / 1000**power
    decimals = max(0, 3 - len(str(int(size)))) if power else 0
    return f"{size:.{decimals}f} {UNITS[power]}"
