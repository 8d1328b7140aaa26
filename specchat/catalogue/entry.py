"""What models.toml says of a pair, before anybody looks whether the files are here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from specchat.hub.references import Reference

__all__ = ["KINDS", "WITHOUT_DRAFT", "Entry", "File"]

KINDS = {
    "simple": "",
    "none": "",
    "mtp": "a multi-token-prediction head as draft",
    "mtp-embedded": "the target's own multi-token-prediction head as draft",
    "eagle": "an EAGLE head as draft",
}
"""What drafts for a target; what specchat cannot do yet has words that say what it is."""

WITHOUT_DRAFT = {"none", "mtp-embedded"}

File: TypeAlias = Path | Reference
"""A file on this machine, or one of the hub."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the catalogue says of a pair. `about_gb` stands in where exact sizes are not known.

    `memory_gb` is what both models take with caches and buffers, by the context's length in tokens.
    `first_guess` is what others report of such a pair: `acceptance`, a share of the drafted tokens.
    A recommended pair is one to begin with, for those whom nothing more special brings here.
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
    first_guess: Mapping[str, float] = field(default_factory=dict, hash=False)
    is_recommended: bool = False

    @property
    def experimental(self) -> str:
        """What specchat would have to be able to do for this pair; empty where it can."""
        return KINDS[self.kind]

    @property
    def files(self) -> tuple[File, ...]:
        """The target, and the draft model if there is one."""
        return tuple(each for each in (self.target, self.draft) if each is not None)

    @property
    def references(self) -> tuple[Reference, ...]:
        """The files of the hub that it needs."""
        return tuple(each for each in self.files if isinstance(each, Reference))

    @property
    def num_bytes(self) -> int | None:
        """The size of all files of the hub, where it is known exactly."""
        sizes = [reference.size for reference in self.references]
        return sum(size for size in sizes if size) if all(sizes) else None
