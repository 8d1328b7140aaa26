"""An entry of models.toml: a pair, installed or not."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from specchat.gguf.split_files import size_with_parts
from specchat.hub.cache import find_present, paths_on_disk
from specchat.hub.pins import pinned
from specchat.hub.references import Reference
from specchat.wording import size_text

EMBEDDED = "mtp-embedded"
"""The kind of a pair whose target drafts with the head in its file."""
WITHOUT_DRAFT = {"none", EMBEDDED}
HEAD_KINDS = {
    "mtp": "an MTP head",
    "assistant": "an assistant",
    "eagle": "an EAGLE-3 draft",
    "dspark": "a DSpark draft",
    "dflash": "a DFlash draft",
}
"""The kinds of prediction heads in files of their own, with a description: the `catalogue_kind`s of
`gguf.draft_kinds`, which is imported only once headers are read."""
PAIR_KINDS = ("simple", *sorted(WITHOUT_DRAFT), *HEAD_KINDS)
"""The kinds of drafts for a target."""

File: TypeAlias = Path | Reference
"""A file on this machine, or one on the hub."""


@dataclass(frozen=True, slots=True)
class KnownHead:
    """A published prediction head, and the model that it drafts for in any quantization."""

    model: str
    kind: str
    reference: Reference
    licence: str = ""

    @property
    def num_bytes(self) -> int | None:
        """The size of its file, None if it is not known before the download."""
        return pinned(self.reference).size

    @property
    def facts(self) -> Mapping[str, str | int | None]:
        """Its name, its kind and its size, as in the JSON of commands."""
        return {"name": str(self.reference), "kind": self.kind, "bytes": self.num_bytes}

    @property
    def title(self) -> str:
        """What it is, in words, with its size if that is known."""
        size = f" ({size_text(self.num_bytes)})" if self.num_bytes else ""
        return f"{HEAD_KINDS[self.kind]}{size}"

    @property
    def offer(self) -> str:
        """What it is, and the command that gets it."""
        return f"{self.title}: `specchat pull {self.reference}` gets it"


@dataclass(frozen=True, slots=True)
class Entry:
    """A pair in the catalogue. `about_gb` is its rough size if the exact size is unknown.

    `memory_gb` is the memory of both models with caches and buffers, by context size in tokens.
    `active_share` is the share of the target's weights that a token reads, below 1 where it has
    experts. `workers` are the addresses of machines that hold layers of the target. `projector`
    makes the target read images; it is in the target's repository.
    """

    name: str
    description: str
    target: File
    draft: File | None
    sampling: Mapping[str, float] = field(default_factory=dict, hash=False)
    kind: str = "simple"
    tier: str = ""
    licence: str = ""
    about_gb: float | None = None
    memory_gb: Mapping[int, float] = field(default_factory=dict, hash=False)
    active_share: float = 1.0
    is_recommended: bool = False
    workers: tuple[str, ...] = ()
    projector: Reference | None = None

    @property
    def files(self) -> tuple[File, ...]:
        """The target, and the draft model if there is one."""
        return tuple(file for file in (self.target, self.draft) if file is not None)

    @property
    def references(self) -> tuple[Reference, ...]:
        """The files that come from the hub."""
        return tuple(file for file in self.files if isinstance(file, Reference))

    @property
    def paths(self) -> list[Path | None]:
        """The path of each file, None if it is not installed."""
        return [
            find_present(file)
            if isinstance(file, Reference)
            else file
            if os.path.isfile(file)
            else None
            for file in self.files
        ]

    @property
    def num_bytes(self) -> int | None:
        """The size of the downloads, else of all files; None if not known exactly."""
        pins = [pinned(part).size for reference in self.references for part in reference.parts]
        sizes = pins or self._own_sizes
        return sum(size or 0 for size in sizes) if all(sizes) else None

    @property
    def bytes_here(self) -> int:
        """The bytes on the disk of the files that `num_bytes` counts, complete or not."""
        if not self.references:
            return sum(self._own_sizes)
        cached = [path for reference in self.references for path in paths_on_disk(reference)]
        return sum(path.stat().st_size for path in cached)

    @property
    def _own_sizes(self) -> list[int]:
        return [size_with_parts(file) for file in self.files if isinstance(file, Path)]
