"""Facts from the headers of local models, cached so that a list need not read all of them again.

The file is in the user's cache folder; an entry holds while the model's size and time of change do.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

import platformdirs

from specchat.errors import SpecchatError
from specchat.gguf.header import Value
from specchat.gguf.reader import read_beginning, read_header
from specchat.gguf.vocabulary_facts import VocabularyFacts, vocabulary_of
from specchat.private_files import read_json, write_json

FORMAT = 1
MAX_MODELS = 4000
MAX_NAME_LENGTH = 200

Kind: TypeAlias = Literal["chat", "embedding", "adapter", "projector", "other", "damaged"]
"""What a GGUF file holds; only the first kind can generate text."""

KINDS: dict[str, Kind] = {"adapter": "adapter", "mmproj": "projector", "imatrix": "other"}
"""By general.type."""
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
"""Architectures of prediction heads, and of models of sound and images."""


@dataclass(frozen=True, slots=True)
class HeaderFacts:
    """What is cached of a header; `vocabulary` is None until it was needed.

    `active_share` is the share of a mixture's experts that a token uses, 1 for other models.
    """

    kind: Kind
    architecture: str = ""
    name: str = ""
    active_share: float = 1.0
    vocabulary: VocabularyFacts | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    """Facts, with the size and time of change of the file they are from."""

    stamp: tuple[int, int]
    facts: HeaderFacts


@dataclass(frozen=True, slots=True)
class _CacheFile:
    format: int = FORMAT
    models: dict[str, _Entry] = field(default_factory=dict)


class HeaderCache(AbstractContextManager["HeaderCache"]):
    """The cached facts of all models; written back when `with` ends."""

    def __init__(self) -> None:
        """Read the file; a damaged one counts as empty."""
        found = read_json(header_cache_path(), _CacheFile, _CacheFile())
        self._models = found.models if found.format == FORMAT else {}
        self._is_changed = False

    def __exit__(self, *_: object) -> None:
        """Write the newest entries back, as far as the file can be written."""
        if self._is_changed:
            newest = dict(list(self._models.items())[-MAX_MODELS:])
            with suppress(OSError):
                write_json(header_cache_path(), _CacheFile(models=newest))

    def of(self, path: Path) -> HeaderFacts:
        """Return what the beginning of a model's header says, which is quick to read."""
        entry = self._models.get(str(path))
        with suppress(OSError):
            if entry and entry.stamp == _stamp(path):
                return entry.facts
        return self._keep(path, _read_facts(path))

    def with_vocabulary(self, path: Path) -> HeaderFacts:
        """Return what the whole header says; `vocabulary` is None if it cannot be read."""
        facts = self.of(path)
        if facts.vocabulary is not None or facts.kind != "chat":
            return facts
        try:
            vocabulary = vocabulary_of(read_header(path))
        except SpecchatError:
            return self._keep(path, replace(facts, kind="damaged"))
        return self._keep(path, replace(facts, vocabulary=vocabulary))

    def _keep(self, path: Path, facts: HeaderFacts) -> HeaderFacts:
        with suppress(OSError):
            self._models[str(path)] = _Entry(_stamp(path), facts)
            self._is_changed = True
        return facts


def header_cache_path() -> Path:
    """Return the path of the cache file."""
    return Path(platformdirs.user_cache_path("specchat", appauthor=False)) / "headers.json"


def _read_facts(path: Path) -> HeaderFacts:
    try:
        metadata = read_beginning(path)
    except SpecchatError:
        return HeaderFacts("damaged")
    architecture = metadata.get("general.architecture")
    name = metadata.get("general.name")
    return HeaderFacts(
        kind="other" if _is_head_only(path, metadata) else _kind(metadata),
        architecture=architecture if isinstance(architecture, str) else "",
        name=name[:MAX_NAME_LENGTH] if isinstance(name, str) else "",
        active_share=_active_share(metadata),
    )


def _kind(metadata: Mapping[str, Value]) -> Kind:
    architecture = metadata.get("general.architecture")
    pooling = metadata.get(f"{architecture}.pooling_type", 0)
    if architecture == "clip":
        return "projector"
    if architecture in EMBEDDINGS or (isinstance(pooling, int) and pooling > 0):
        return "embedding"
    named = metadata.get("general.type")
    kind = KINDS.get(named) if isinstance(named, str) else None
    return kind or ("other" if architecture in OTHERS else "chat")


def _is_head_only(path: Path, metadata: Mapping[str, Value]) -> bool:
    """Return True for a prediction head alone; tensors are read only if there is a head."""
    if not metadata.get(f"{metadata.get('general.architecture')}.nextn_predict_layers"):
        return False
    with suppress(SpecchatError):
        return read_header(path).is_head_only
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
