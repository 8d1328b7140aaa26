"""What the headers of local models said, kept so that a list need not read them all again.

A small file in the user's cache folder, by path, size and time of change. What cannot be read there
is read from the models again, and what cannot be written is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

import platformdirs

from specchat.errors import SpecchatError
from specchat.gguf.header import Value
from specchat.gguf.reader import read_beginning, read_header
from specchat.gguf.vocabulary_facts import VocabularyFacts, vocabulary_of
from specchat.private_files import DamagedFile, read_json, write_json

__all__ = ["Kind", "Note", "Notes", "notes_path"]

FORMAT = 1
MOST_NOTES = 4000
LONGEST_NAME = 200

Kind: TypeAlias = Literal["chat", "embedding", "adapter", "projector", "other", "damaged"]
"""What a GGUF file is; only the first kind can answer."""

KINDS: dict[str, Kind] = {"adapter": "adapter", "mmproj": "projector", "imatrix": "other"}
"""By general.type."""
PROJECTORS = frozenset({"clip"})
EMBEDDINGS = frozenset(
    {
        *("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "eurobert"),
        *("jina-bert-v2", "jina-bert-v3", "gemma-embedding", "t5encoder"),
    }
)
OTHERS = frozenset(
    {
        *("eagle3", "dflash", "wavtokenizer-dec", "flux", "sd1", "sd3", "sdxl", "aura"),
        *("ltxv", "hyvid", "wan", "hidream", "cosmos", "lumina2", "qwen_image"),
    }
)
"""Architectures of heads, and of models of sound and images, which GGUF files hold too."""


@dataclass(frozen=True, slots=True)
class Note:
    """What is kept of a header; `vocabulary` is None until somebody asked for it.

    `active_share` is the share of a mixture's experts that works on a token, 1 for other models.
    """

    kind: Kind
    architecture: str = ""
    name: str = ""
    active_share: float = 1.0
    vocabulary: VocabularyFacts | None = None


@dataclass(frozen=True, slots=True)
class _Kept:
    """A note, and the size and time of change of the file it was read from."""

    stamp: tuple[int, int]
    note: Note


@dataclass(frozen=True, slots=True)
class _Cache:
    """The content of the cache file: notes by path."""

    format: int = FORMAT
    models: dict[str, _Kept] = field(default_factory=dict)


class Notes:
    """The notes of all models, read from the file and written back when `with` ends."""

    def __init__(self) -> None:
        """Read what was kept."""
        self._known = _read()
        self._is_changed = False

    def __enter__(self) -> Self:
        """Let `with` write them."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Keep what was learned."""
        if self._is_changed:
            _write(self._known)

    def of(self, path: Path) -> Note:
        """Return what a model's header says at its beginning: quick, even for many of them."""
        return self._kept(path) or self._keep(path, _first_note(path))

    def with_vocabulary(self, path: Path) -> Note:
        """Return what the whole header says; `vocabulary` is None where it cannot be read."""
        note = self.of(path)
        if note.vocabulary is None and note.kind == "chat":
            try:
                facts = vocabulary_of(read_header(path))
            except SpecchatError:
                return self._keep(path, replace(note, kind="damaged"))
            return self._keep(path, replace(note, vocabulary=facts))
        return note

    def _kept(self, path: Path) -> Note | None:
        kept = self._known.get(str(path))
        with suppress(OSError):
            return kept.note if kept and kept.stamp == _stamp(path) else None
        return None

    def _keep(self, path: Path, note: Note) -> Note:
        with suppress(OSError):
            self._known[str(path)] = _Kept(_stamp(path), note)
            self._is_changed = True
        return note


def notes_path() -> Path:
    """Return the file that keeps them."""
    return Path(platformdirs.user_cache_path("specchat", appauthor=False)) / "headers.json"


def _first_note(path: Path) -> Note:
    try:
        metadata = read_beginning(path)
    except SpecchatError:
        return Note("damaged")
    architecture = metadata.get("general.architecture")
    name = metadata.get("general.name")
    return Note(
        kind="other" if _is_head_only(path, metadata) else _kind(metadata),
        architecture=architecture if isinstance(architecture, str) else "",
        name=name[:LONGEST_NAME] if isinstance(name, str) else "",
        active_share=_active_share(metadata),
    )


def _kind(metadata: Mapping[str, Value]) -> Kind:
    architecture = metadata.get("general.architecture")
    pooling = metadata.get(f"{architecture}.pooling_type", 0)
    if architecture in PROJECTORS:
        return "projector"
    if architecture in EMBEDDINGS or (isinstance(pooling, int) and pooling > 0):
        return "embedding"
    told = metadata.get("general.type")
    kind = KINDS.get(told) if isinstance(told, str) else None
    return kind or ("other" if architecture in OTHERS else "chat")


def _is_head_only(path: Path, metadata: Mapping[str, Value]) -> bool:
    """Whether a file is a prediction head alone; its tensors are read only if it has a head."""
    if not metadata.get(f"{metadata.get('general.architecture')}.nextn_predict_layers"):
        return False
    try:
        return read_header(path).is_head_only
    except SpecchatError:
        return False


def _active_share(metadata: Mapping[str, Value]) -> float:
    architecture = metadata.get("general.architecture")
    count = metadata.get(f"{architecture}.expert_count", 0)
    used = metadata.get(f"{architecture}.expert_used_count", 0)
    is_mixture = isinstance(count, int) and isinstance(used, int) and 0 < used < count
    return used / count if is_mixture else 1.0  # type: ignore[operator]  # both are numbers then


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _read() -> dict[str, _Kept]:
    with suppress(DamagedFile):
        cache = read_json(notes_path(), _Cache)
        return cache.models if cache and cache.format == FORMAT else {}
    return {}


def _write(known: Mapping[str, _Kept]) -> None:
    """Keep the newest notes, as far as the file can be written."""
    with suppress(OSError):
        write_json(notes_path(), _Cache(models=dict(list(known.items())[-MOST_NOTES:])))
