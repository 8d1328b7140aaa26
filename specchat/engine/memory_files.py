"""Texts kept on disk: copies of a pair's memory that outlive its process.

A file belongs to one pair, loaded in one way, and this build of llama.cpp; its name is a hash of
these and of the text. It begins with a line of JSON that describes the arrays after it. Each array
has a checksum, so a damaged file is deleted and its text is read again.
"""

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from specchat.chat.memory_folder import HALF, SUFFIX, deleted_at, memory_folder
from specchat.engine.exact_drafts import way_of
from specchat.engine.loaded_pair import LoadedPair
from specchat.llama.hidden_state_feed import FeedSnapshot
from specchat.llama.library import build
from specchat.llama.memory_snapshot import Checkpoint, MemorySnapshot
from specchat.planning.text_copies import LEAST_STATES
from specchat.system.private_files import make_private

FORMAT = 3
LEAST_TOKENS = 512
"""Shorter texts are read as fast as a file."""
PIECE = 16 * 2**20
"""Bytes written at a time; in between, a stop is noticed."""
LONGEST_HEADER = 2**20
Arrays: TypeAlias = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A file's description: its text, and the lengths that its memory can be rolled back to.

    `way` says how the pair was loaded, as far as the memory's bits depend on it.
    """

    path: Path
    tokens: Sequence[int]
    checkpoints: tuple[int, ...]
    way: str

    @property
    def outline(self) -> MemorySnapshot:
        """A snapshot without its data, to tell how much restoring the file would save."""
        empty = np.empty(0, np.uint8)
        return MemorySnapshot(
            self.tokens,
            empty,
            tuple(Checkpoint(checkpoint, empty) for checkpoint in self.checkpoints),
        )


class MemoryFiles:
    """The files of one pair, at most `limit` bytes of all pairs together."""

    def __init__(self, pair: LoadedPair, limit: int) -> None:
        """Find the files of a pair."""
        self._subject, self._limit = _subject(pair), limit
        self._way = f"{way_of(pair)}, {pair.num_threads} threads"
        self.stored: list[StoredMemory] = []
        for path in sorted(memory_folder().glob(f"{self._subject}-*{SUFFIX}")):
            with suppress(OSError, ValueError, KeyError, TypeError):
                self.stored.append(_outline_of(path))

    def save(
        self,
        target: MemorySnapshot,
        draft: MemorySnapshot | None,
        used_at: float,
        is_stopped: Callable[[], bool] = lambda: False,
        *,
        may_displace: bool = True,
    ) -> bool:
        """Write a text that was last used at this time; return True unless it was stopped.

        A text is not written if its files were deleted since then, nor, unless it may, if it would
        displace other files. A file that holds a beginning of the text is replaced. Of the states
        a few are written. Raises OSError.
        """
        target = target.thinned(LEAST_STATES)
        draft = draft.thinned(LEAST_STATES) if draft else None
        tokens = np.asarray(target.tokens, np.int32)
        name = f"{self._subject}-{hashlib.sha256(tokens.tobytes()).hexdigest()[:16]}{SUFFIX}"
        path = memory_folder() / name
        if used_at <= deleted_at() or path.exists():
            return True
        num_bytes = target.num_bytes + (draft.num_bytes if draft else 0)
        room = self._limit - sum(size for _, size, _ in _all_files())
        if num_bytes > (self._limit if may_displace else room):
            return True
        arrays = {"target": _parts(target), "draft": _parts(draft) if draft else {}}
        make_private(path.parent)
        descriptor, half = tempfile.mkstemp(dir=path.parent, suffix=HALF)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if not _write(file, arrays, self._way, is_stopped):
                    return False
            if used_at > deleted_at():
                Path(half).replace(path)
        finally:
            with suppress(OSError):
                Path(half).unlink()
        self._replace(StoredMemory(path, list(target.tokens), _lengths(target), self._way))
        self._make_room(path)
        return True

    def load(self, stored: StoredMemory) -> tuple[MemorySnapshot, MemorySnapshot | None] | None:
        """Return a file's snapshots; delete it and return None if it is damaged."""
        try:
            arrays = _read(stored.path)
            target = _snapshot(arrays["target"])
            if stored.way != self._way:  # then answers that repeat must read the text again
                target = replace(target, ends=())
            draft = _snapshot(arrays["draft"]) if arrays["draft"] else None
        except (OSError, ValueError, KeyError, TypeError):
            self._forget(stored)
            return None
        with suppress(OSError):
            os.utime(stored.path)
        return target, draft

    def _forget(self, stored: StoredMemory) -> None:
        self.stored = [other for other in self.stored if other.path != stored.path]
        with suppress(OSError):
            stored.path.unlink()

    def _replace(self, new: StoredMemory) -> None:
        """Add a file; delete those whose texts are its beginning."""
        for other in list(self.stored):
            if list(new.tokens[: len(other.tokens)]) == list(other.tokens):
                self._forget(other)
        self.stored.append(new)

    def _make_room(self, newest: Path) -> None:
        """Delete files of any pair, the least recently used first, until all fit the limit."""
        files = _all_files()
        excess = sum(size for _, size, _ in files) - self._limit
        for _, size, path in sorted(files):
            if excess <= 0:
                break
            if path == newest:
                continue
            excess -= size
            with suppress(OSError):
                path.unlink()
        self.stored = [memory for memory in self.stored if memory.path.exists()]


def _all_files() -> list[tuple[float, int, Path]]:
    """Return when each file of any pair was used, its size and its path."""
    files: list[tuple[float, int, Path]] = []
    for path in memory_folder().glob(f"*{SUFFIX}"):
        with suppress(OSError):
            facts = path.stat()
            files.append((facts.st_mtime, facts.st_size, path))
    return files


def _subject(pair: LoadedPair) -> str:
    """Return a hash of everything that a memory depends on besides its text."""
    loading, shape = pair.loading, pair.context.shape
    files = []
    for path in filter(None, (loading.target, loading.draft)):
        facts = path.stat()
        files.append((str(path.resolve()), facts.st_size, facts.st_mtime_ns))
    kept = (shape.cache_type, shape.flash, shape.num_steps_back, shape.num_texts > 1)
    parts = (FORMAT, build(), files, *kept, loading.head)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _lengths(snapshot: MemorySnapshot) -> tuple[int, ...]:
    return tuple([checkpoint.length for checkpoint in snapshot.checkpoints])


def _parts(snapshot: MemorySnapshot) -> Arrays:
    """Return a snapshot as arrays by name."""
    arrays: Arrays = {
        "tokens": np.asarray(snapshot.tokens, np.int32),
        "state": snapshot.data,
        "lengths": np.asarray(_lengths(snapshot), np.int32),
        "ends": np.asarray(snapshot.ends, np.int32),
        "gaps": np.asarray(snapshot.gaps, np.int32).reshape(-1, 2),
    }
    arrays |= {
        f"checkpoint {number}": checkpoint.data
        for number, checkpoint in enumerate(snapshot.checkpoints)
    }
    if isinstance(snapshot.states, FeedSnapshot):
        kept = sorted(snapshot.states.kept.items())
        arrays["numbers"] = np.asarray([snapshot.states.num_taken, snapshot.states.first], np.int32)
        arrays["waiting"] = np.asarray(snapshot.states.waiting, np.float32)
        arrays["places"] = np.asarray([position for position, _ in kept], np.int32)
        arrays |= {f"kept {position}": np.asarray(state, np.float32) for position, state in kept}
    for number, other in enumerate(snapshot.others):
        arrays |= {f"{number}: {name}": array for name, array in _parts(other).items()}
    return arrays


def _snapshot(arrays: Mapping[str, NDArray[Any]]) -> MemorySnapshot:
    """Return the snapshot that arrays stand for."""
    lengths = arrays["lengths"].tolist()
    checkpoints = [
        Checkpoint(length, arrays[f"checkpoint {number}"]) for number, length in enumerate(lengths)
    ]
    states: FeedSnapshot | None = None
    if "numbers" in arrays:
        num_taken, first = arrays["numbers"].tolist()
        kept = {position: arrays[f"kept {position}"] for position in arrays["places"].tolist()}
        states = FeedSnapshot(num_taken, first, arrays["waiting"], kept)
    tokens, ends = arrays["tokens"].tolist(), tuple(arrays["ends"].tolist())
    gaps = tuple([(end, num_saved) for end, num_saved in arrays["gaps"].tolist()])
    others: list[MemorySnapshot] = []
    while f"{len(others)}: tokens" in arrays:
        prefix = f"{len(others)}: "
        own = {name: array for name, array in arrays.items() if name.startswith(prefix)}
        others.append(_snapshot({name.removeprefix(prefix): own[name] for name in own}))
    return MemorySnapshot(
        tokens, arrays["state"], tuple(checkpoints), states, ends, gaps, tuple(others)
    )


def _write(
    file: Any, arrays: Mapping[str, Arrays], way: str, is_stopped: Callable[[], bool]
) -> bool:
    """Write arrays after a line that describes them; return False if stopped."""
    described = [
        [role, name, array.dtype.str, list(array.shape), zlib.crc32(_bytes(array))]
        for role, parts in arrays.items()
        for name, array in parts.items()
    ]
    header: dict[str, Any] = {"format": FORMAT, "way": way, "arrays": described}
    header["tokens"] = arrays["target"]["tokens"].tolist()
    header["lengths"] = arrays["target"]["lengths"].tolist()
    line = json.dumps(header).encode()
    file.write(b"%d\n" % len(line) + line)
    for parts in arrays.values():
        for array in parts.values():
            data = _bytes(array)
            for start in range(0, len(data), PIECE):
                if is_stopped():
                    return False
                file.write(data[start : start + PIECE])
    return True


def _bytes(array: NDArray[Any]) -> memoryview:
    """Return an array's bytes, without a copy where it is contiguous."""
    flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memoryview(flat)


def _header(file: Any) -> dict[str, Any]:
    """Return the description that a file begins with. Raises ValueError."""
    length = int(file.readline(32))
    if not 0 < length <= 16 * LONGEST_HEADER:
        raise ValueError(length)
    header: dict[str, Any] = json.loads(file.read(length))
    if header["format"] != FORMAT:
        raise ValueError(header["format"])
    return header


def _outline_of(path: Path) -> StoredMemory:
    with path.open("rb") as file:
        header = _header(file)
    return StoredMemory(path, header["tokens"], tuple(header["lengths"]), str(header["way"]))


def _read(path: Path) -> dict[str, Arrays]:
    """Return a file's arrays. Raises ValueError if one is not what was written."""
    arrays: dict[str, Arrays] = {"target": {}, "draft": {}}
    with path.open("rb") as file:
        header = _header(file)
        for role, name, kind, shape, checksum in header["arrays"]:
            data_type = np.dtype(kind)
            if data_type.hasobject or any(size < 0 for size in shape):
                raise ValueError(kind)
            count = int(np.prod(shape, dtype=np.int64))
            if count * data_type.itemsize > path.stat().st_size:
                raise ValueError(shape)
            data = np.fromfile(file, np.uint8, count * data_type.itemsize)
            if data.size != count * data_type.itemsize or zlib.crc32(_bytes(data)) != checksum:
                raise ValueError(name)
            arrays[role][name] = data.view(data_type).reshape(shape)
    return arrays
