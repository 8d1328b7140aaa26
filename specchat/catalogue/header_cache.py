"""Facts from the headers of local models, cached so that listing need not read them again.

The cache file is in the user's cache folder; an entry is valid while the model file's size and
modification time are unchanged. A file's first listing reads its whole header, some 20 ms for a
vocabulary of 50,000 tokens: the tensors come after the vocabulary, whose texts have to be walked
through, and without them a file whose end is missing would be listed as a model.
"""

from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from specchat.errors import SpecchatError
from specchat.gguf.draft_kinds import is_head_only, why_no_head
from specchat.gguf.origin import DraftOrigin, origin_of
from specchat.gguf.purpose import Purpose, purpose_of
from specchat.gguf.reader import read_header
from specchat.gguf.unfinished_file import why_unwritten
from specchat.gguf.vocabulary_facts import VocabularyFacts, vocabulary_of
from specchat.system.private_files import FOLDERS, read_json, write_json

FORMAT = 5
"""The cache file's version: raise it when a header gives other facts, so all are read again."""
MAX_MODELS = 4000
MAX_NAME_LENGTH = 200


@dataclass(frozen=True, slots=True)
class HeaderFacts:
    """The cached facts of a header; `vocabulary` is None until it is needed.

    `active_share` is the share of a mixture's experts that a token uses, 1 for other models.
    `width` is that of the states between its layers. `has_head` is true if the model has a
    prediction head that specchat can use, `is_head` if the file holds one without its model.
    `origin` is a derived draft's record.
    """

    kind: Purpose
    architecture: str = ""
    name: str = ""
    active_share: float = 1.0
    width: int = 0
    has_head: bool = False
    is_head: bool = False
    origin: DraftOrigin | None = None
    vocabulary: VocabularyFacts | None = None


_Models: TypeAlias = dict[str, tuple[tuple[int, int], HeaderFacts]]
"""By path: the size and modification time of the file when it was read, and the facts."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """The content of the cache file."""

    format: int
    models: _Models = field(default_factory=dict)


class HeaderCache(AbstractContextManager["HeaderCache"]):
    """The cached facts of all models, written back at the end of a `with` block."""

    def __init__(self) -> None:
        """Read the cache file; a damaged one counts as empty, and one of another format."""
        stored = read_json(header_cache_path(), _Stored, _Stored(FORMAT))
        self._models = stored.models if stored.format == FORMAT else {}
        self._is_changed = False

    def __exit__(self, *_: object) -> None:
        """Write the newest entries back if the file can be written."""
        if self._is_changed:
            newest = dict(list(self._models.items())[-MAX_MODELS:])
            with suppress(OSError):
                write_json(header_cache_path(), _Stored(FORMAT, newest))

    def of(self, path: Path) -> HeaderFacts:
        """Return the facts from a model's header, read once for as long as the file is the same."""
        stamp, facts = self._models.get(str(path), (None, None))
        return facts if facts and stamp == _stamp(path) else self._keep(path, _read_facts(path))

    def with_vocabulary(self, path: Path) -> HeaderFacts:
        """Return the facts with the vocabulary; that is None if it cannot be read."""
        facts = self.of(path)
        if facts.vocabulary is not None or facts.kind != "chat":
            return facts
        try:
            header = read_header(path)
            facts = replace(facts, vocabulary=vocabulary_of(header), origin=origin_of(header))
        except SpecchatError:
            facts = replace(facts, kind="damaged")
        return self._keep(path, facts)

    def _keep(self, path: Path, facts: HeaderFacts) -> HeaderFacts:
        self._models[str(path)] = _stamp(path), facts
        self._is_changed = True
        return facts


def header_cache_path() -> Path:
    """Return the path of the cache file."""
    return FOLDERS.user_cache_path / "headers.json"


def _read_facts(path: Path) -> HeaderFacts:
    try:
        header = read_header(path)
        is_written = why_unwritten(header) is None
    except (SpecchatError, OSError):
        return HeaderFacts("damaged")
    if not is_written:
        return HeaderFacts("damaged")
    is_head = is_head_only(header)
    return HeaderFacts(
        kind="other" if is_head else purpose_of(header),
        architecture=header.text("general.architecture"),
        name=header.text("general.name")[:MAX_NAME_LENGTH],
        active_share=header.active_share,
        width=header.own("embedding_length"),
        has_head=not is_head and why_no_head(header) is None,
        is_head=is_head,
        origin=origin_of(header),
    )


def _stamp(path: Path) -> tuple[int, int]:
    """Return a file's size and modification time, zeros if it does not exist."""
    with suppress(OSError):
        status = path.stat()
        return status.st_size, status.st_mtime_ns
    return 0, 0
