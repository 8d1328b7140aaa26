"""The sizes of the catalogue's pairs and how much of them is installed, without a request."""

from pathlib import Path

from specchat.catalogue.entry import Entry, File
from specchat.hub.cache import find_present, part_path, pointer_path, size_in_words
from specchat.hub.pins import pinned
from specchat.hub.references import Reference


def is_pair_here(entry: Entry) -> bool:
    """Return True if all files of a pair are installed."""
    return all(
        file.is_file() if isinstance(file, Path) else find_present(file) is not None
        for file in entry.files
    )


def bytes_of_pair(entry: Entry) -> int | None:
    """Return the size of all files of a pair, None if not known."""
    sizes: list[int | None] = []
    for file in entry.files:
        if isinstance(file, Reference):
            sizes += [pinned(part).size for part in file.parts]
        else:
            sizes.append(file.stat().st_size if file.is_file() else None)
    return sum(size or 0 for size in sizes) if all(sizes) else None


def size_of_pair(num_bytes: int | None, about_gb: float | None) -> str:
    """Return a size for display: exact, rough, or a question mark."""
    if num_bytes is None:
        return f"~{about_gb:g} GB" if about_gb else "?"
    return size_in_words(num_bytes) if num_bytes else "-"


def bytes_here(file: File) -> int:
    """Return the bytes of a file that are on the disk, complete or not."""
    if isinstance(file, Path):
        return file.stat().st_size if file.is_file() else 0
    total = 0
    for part in map(pinned, file.parts):
        places = [pointer_path(part)] + ([part_path(part, part.sha256)] if part.sha256 else [])
        total += next((path.stat().st_size for path in places if path.is_file()), 0)
    return total
