"""Which of the models that are here drafts best for a target, and why, in words.

A draft must have the target's vocabulary and be much smaller. Among those that fit, what the
catalogue pairs with the target comes first; then families, told by architecture and name, and sizes
decide.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from specchat.catalogue.catalogue_file import Entry, File, read_catalogue
from specchat.catalogue.header_cache import Note, Notes
from specchat.catalogue.local_models import LocalModel, find_local_models, model_at, models_in
from specchat.errors import SpecchatError
from specchat.gguf.reader import read_header
from specchat.gguf.vocabulary_facts import LARGEST_SIZE_DIFFERENCE, misfit
from specchat.hub.references import Reference

__all__ = ["LARGEST_SHARE", "Draft", "Drafts", "find_drafts"]

LARGEST_SHARE = 1 / 2
"""A draft larger than this share of its target costs more than it can bring."""
GOOD_SHARES = (1 / 20, 1 / 6)
TOO_LARGE = "too large"
CLEAR_FRACTION = 0.4
"""A larger share is told in percent."""

FAMILY, NAMES = 0.5, 2.0
"""What the same architecture, and the same words in both names, weigh against sizes: one point is
a size off by a factor of two."""

WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)?b?")
SIZE = re.compile(r"\d+(?:\.\d+)?b")
QUANTISATION = re.compile(r"[-_.](?:ud-)?(?:i?q\d\w*|bf16|f16|f32|mxfp4|nvfp4)(?=[-_.]|$)")
NO_WORDS = frozenset({"gguf", "ggml", "of", "latest"})


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft model that fits, its share of the target's size, and why it is a good one."""

    model: LocalModel
    share: float
    why: str


@dataclass(frozen=True, slots=True)
class Drafts:
    """The drafts that fit a target, the best first, and those that do not, each with the reason.

    `advice` says why it is better to go without, where somebody knows that.
    """

    fitting: tuple[Draft, ...]
    unfit: tuple[tuple[LocalModel, str], ...]
    advice: str = ""

    @property
    def best(self) -> Draft | None:
        """The one to take; None where there is none to be had, or better none."""
        return self.fitting[0] if self.fitting and not self.advice else None


@dataclass(frozen=True, slots=True)
class _Known:
    """A pairing of a catalogue: a draft, or None where it knows of none that pays."""

    draft: File | None
    by: str

    def is_it(self, model: LocalModel) -> bool:
        """Say whether a model is the draft that is meant."""
        return self.draft is not None and _is_file(self.draft, model)


def find_drafts(target: Path, models: Iterable[LocalModel] | None = None) -> Drafts:
    """Look for drafts among the models beside a target and all local ones, or those given.

    Nothing is found for a target that is not there or cannot be read: loading it tells why.
    """
    ours = model_at(target)
    if ours is None:
        return Drafts((), ())
    known = _of_the_catalogue(ours)
    if models is None:
        models = [*models_in(target.absolute().parent), *find_local_models()]
    fitting: list[tuple[float, Draft]] = []
    unfit: list[tuple[LocalModel, str]] = []
    with Notes() as notes:
        note = notes.with_vocabulary(target)
        for model in _others(ours, models) if note.vocabulary else ():
            share = model.num_bytes / (ours.num_bytes * note.active_share)
            size = _size_in_words(share, is_mixture=note.active_share < 1)
            if reason := _unfit(target, model, share, notes):
                unfit.append((model, f"{reason}, {size}" if reason == TOO_LARGE else reason))
                continue
            pairing = next((each for each in known if each.is_it(model)), None)
            likeness = _likeness(ours, note, model, notes.of(model.path))
            points = math.inf if pairing else _points(share, likeness)
            why = f"{_where(ours, model)}: {f'{pairing.by}, ' if pairing else ''}same vocabulary"
            fitting.append((points, Draft(model, share, f"{why}, {size}")))
    fitting.sort(key=lambda found: (-found[0], found[1].share, found[1].model.name))
    advice = next((each.by for each in known if each.draft is None), "")
    return Drafts(tuple(draft for _, draft in fitting), tuple(unfit), advice)


def _others(ours: LocalModel, models: Iterable[LocalModel]) -> list[LocalModel]:
    """Return each model but the target itself, once."""
    found: dict[Path, LocalModel] = {}
    for model in models:
        found.setdefault(model.path.resolve(), model)
    found.pop(ours.path.resolve(), None)
    return list(found.values())


def _unfit(target: Path, model: LocalModel, share: float, notes: Notes) -> str:
    """Say why a model cannot draft; sizes first, because vocabularies take time to read."""
    if share > LARGEST_SHARE:
        return TOO_LARGE
    note = notes.of(model.path)
    if note.kind != "chat":
        return f"no model to draft with: {note.kind}"
    mine = notes.with_vocabulary(target).vocabulary
    theirs = notes.with_vocabulary(model.path).vocabulary
    if mine is None or theirs is None:
        return "its file is damaged"
    if not theirs.has_texts:
        return "it has no vocabulary"
    if mine == theirs:
        return ""
    same = (mine.kind, mine.bos, mine.eos) == (theirs.kind, theirs.bos, theirs.eos)
    if same and 0 < abs(mine.size - theirs.size) <= LARGEST_SIZE_DIFFERENCE:
        return _misfit(target, model.path)  # the texts that both have decide
    return "another vocabulary"


def _misfit(target: Path, draft: Path) -> str:
    try:
        return "another vocabulary" if misfit(read_header(target), read_header(draft)) else ""
    except SpecchatError:
        return "its file is damaged"


def _points(share: float, likeness: float) -> float:
    """Return how good a draft is: one point less for each factor of two off a good size."""
    low, high = GOOD_SHARES
    return likeness - max(0.0, math.log2(share / high), math.log2(low / share))


def _likeness(ours: LocalModel, note: Note, model: LocalModel, other: Note) -> float:
    mine, theirs = _words(ours, note), _words(model, other)
    shared = len(mine & theirs) / len(mine | theirs) if mine | theirs else 0.0
    is_kin = note.architecture != "" and note.architecture == other.architecture
    return FAMILY * is_kin + NAMES * shared


def _words(model: LocalModel, note: Note) -> frozenset[str]:
    """Return the words of a model's names that tell families apart, sizes left out."""
    words: set[str] = set()
    for name in (note.name, model.name.rpartition("/")[2].removesuffix(".gguf")):
        words |= set(WORD.findall(QUANTISATION.sub("", name.lower())))
    return frozenset(word for word in words - NO_WORDS if not SIZE.fullmatch(word))


def _where(ours: LocalModel, model: LocalModel) -> str:
    is_beside = model.path.absolute().parent == ours.path.absolute().parent
    if is_beside and model.tool != "Ollama":  # whose files have no names to look for
        return "beside it"
    return f"from {'the cache of the hub' if model.tool == 'hub' else model.tool}"


def _size_in_words(share: float, *, is_mixture: bool) -> str:
    """Say how large a draft is beside its target, or beside the experts that a token takes."""
    size = f"{share:.0%}" if share > CLEAR_FRACTION else f"1/{1 / share:.0f}"
    return f"{size} of {'the experts at work' if is_mixture else 'its size'}"


def _of_the_catalogue(ours: LocalModel) -> list[_Known]:
    entries = read_catalogue().entries.values()  # mistakes are told where a pair is asked for
    fitting = [each for each in entries if not each.experimental and _is_file(each.target, ours)]
    return [_Known(each.draft, _told(each)) for each in fitting]


def _told(entry: Entry) -> str:
    return "the catalogue pairs them" if entry.draft else "the catalogue knows no draft that pays"


def _is_file(file: File, model: LocalModel) -> bool:
    """Say whether a model is the file of a pair, wherever a program put it: by name and size."""
    if isinstance(file, Reference):
        has_name = file.name.lower() == model.path.name.lower()
        return has_name and file.size in {None, model.num_bytes}
    return file.resolve() == model.path.resolve()
