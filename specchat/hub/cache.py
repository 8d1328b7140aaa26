"""The shared cache of huggingface_hub: its layout, lookups, and adding a file.

The layout is huggingface_hub's (blobs/<etag>, snapshots/<commit>/<file>, refs/<revision>), so other
programs find what specchat pulled and specchat finds what they did. Lookups do not import
huggingface_hub, because the import is slow and `specchat list` must be fast.
"""

import os
import shutil
import uuid
from pathlib import Path
from tempfile import TemporaryFile

from specchat.errors import DownloadFailed
from specchat.gguf.split_files import split_names
from specchat.hub.pins import pinned
from specchat.hub.references import Reference, is_commit, is_sha256
from specchat.system.private_files import read_text
from specchat.wording import size_text

PART = ".specchat-part"
WHEEL = ".specchat-wheel"
SPARE = 64 << 20
"""Bytes to leave free on the disk."""


def cache_root() -> Path:
    """Return the cache folder, which huggingface_hub's environment variables may set."""
    folder = os.environ.get("HF_HUB_CACHE", os.environ.get("HUGGINGFACE_HUB_CACHE"))
    if folder is None:
        shared = os.environ.get("XDG_CACHE_HOME", "~/.cache")
        folder = f"{os.environ.get('HF_HOME', f'{shared}/huggingface')}/hub"
    return Path(os.path.expandvars(os.path.expanduser(folder)))


def repository_folder(repository: str) -> Path:
    """Return the folder of a repository in the cache."""
    return cache_root() / f"models--{repository.replace('/', '--')}"


def blob_path(reference: Reference, etag: str) -> Path:
    """Return the path of the blob that holds a file's bytes."""
    return repository_folder(reference.repository) / "blobs" / etag


def part_path(reference: Reference, etag: str) -> Path:
    """Return the path of a partly downloaded file."""
    return blob_path(reference, etag + PART)


def wheel_folder(reference: Reference, etag: str) -> Path:
    """Return the folder that a wheel with the file is downloaded into."""
    return blob_path(reference, etag + WHEEL)


def lock_path(reference: Reference, etag: str) -> Path:
    """Return the path of the file that huggingface_hub locks during the download."""
    folder = repository_folder(reference.repository)
    return cache_root() / ".locks" / folder.name / f"{etag}.lock"


def pointer_path(reference: Reference) -> Path:
    """Return the path of a commit's file under its own name."""
    snapshot = repository_folder(reference.repository) / "snapshots" / reference.revision
    return snapshot.joinpath(*reference.file.split("/"))


def find_present(reference: Reference) -> Path | None:
    """Return the path of a file if it is in the cache with all its parts; makes no request.

    A pinned file must have the pin's size and sha256.
    """
    paths = [_present(pinned(part)) for part in reference.parts]
    folders = {path and path.parent for path in paths}
    return paths[0] if len(folders) == 1 else None  # all parts of one commit


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


def paths_on_disk(reference: Reference) -> list[Path]:
    """Return all paths in the cache that belong to a file, complete or partly downloaded."""
    pins = [pinned(part) for part in reference.parts]
    first = find_present(reference)
    paths = [first.with_name(part) for part in split_names(first.name)] if first else []
    paths += [pointer_path(part) for part in pins if is_commit(part.revision)]
    for part in pins:
        if part.sha256:
            paths += [part_path(part, part.sha256), *wheel_folder(part, part.sha256).rglob("*")]
    return [path for path in dict.fromkeys(paths) if os.path.isfile(path)]


def _commit(reference: Reference) -> str | None:
    """Return the commit of a revision, None if the cache does not know it."""
    if is_commit(reference.revision):
        return reference.revision
    ref = repository_folder(reference.repository).joinpath("refs", *reference.revision.split("/"))
    commit = read_text(ref)
    return commit if is_commit(commit) else None


def keep_ref(reference: Reference, commit: str) -> None:
    """Record the commit of a branch or tag, as huggingface_hub does."""
    folder = repository_folder(reference.repository)
    (folder / "snapshots" / commit).mkdir(parents=True, exist_ok=True)
    if not is_commit(reference.revision):
        ref = folder.joinpath("refs", *reference.revision.split("/"))
        ref.parent.mkdir(parents=True, exist_ok=True)
        fresh = _beside(ref)
        fresh.write_text(commit, "utf-8")
        fresh.replace(ref)


def link(reference: Reference, etag: str) -> None:
    """Link a file's own name to its blob, or move the blob there if the system has no links."""
    from huggingface_hub.file_download import are_symlinks_supported

    blob, pointer = blob_path(reference, etag), pointer_path(reference)
    pointer.parent.mkdir(parents=True, exist_ok=True)
    if are_symlinks_supported(cache_root()):
        fresh = _beside(pointer)
        fresh.symlink_to(os.path.relpath(blob, pointer.parent))
        fresh.replace(pointer)
    else:
        blob.replace(pointer)


def _beside(path: Path) -> Path:
    """Return a temporary path beside the path that it will replace."""
    return path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")


def require_space(num_bytes: int) -> None:
    """Raise DownloadFailed unless the cache is writable and has room for `num_bytes` more."""
    if not num_bytes:
        return
    root = cache_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=root):
            free = shutil.disk_usage(root).free
    except OSError as error:
        raise DownloadFailed(
            f"{root} is not writable ({error.strerror}): set HF_HOME to another folder"
        ) from None
    if num_bytes + SPARE > free:
        raise DownloadFailed(
            f"not enough disk space in {root}: {size_text(num_bytes)} needed,"
            f" {size_text(free)} free; free some, or set HF_HOME to a folder on a larger disk"
        )
