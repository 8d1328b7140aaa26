"""Choosing a draft model for a target among the local models, with the reasons.

A draft must be much smaller than its target. Among models with the target's vocabulary, the
catalogue's pairings come first, then models of the same family (by architecture and name) and a
suitable size. If there are none, a small model with another vocabulary is taken, provided most of
its tokens are common.
"""

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from specchat.catalogue.catalogue_file import read_catalogue
from specchat.catalogue.entry import File
from specchat.catalogue.header_cache import HeaderCache, HeaderFacts
from specchat.catalogue.local_models import (
    LocalModel,
    derived_folder,
    find_local_models,
    model_at,
    models_in,
)
from specchat.catalogue.model_names import QUANTISATION
from specchat.errors import SpecchatError
from specchat.gguf.common_vocabulary import common_vocabulary
from specchat.gguf.draft_kinds import is_name_of_head
from specchat.gguf.model_files import read_pair
from specchat.gguf.origin import DraftOrigin, Fingerprints, fingerprints, require_origin
from specchat.gguf.reader import read_header
from specchat.gguf.vocabulary_facts import mismatch
from specchat.hub.references import Reference
from specchat.wording import percent, speedup_text

LARGEST_SHARE = 1 / 2
"""A draft model larger than this share of its target costs more time than it saves."""
GOOD_SHARES = (1 / 20, 1 / 6)
"""The range of good shares. Its end is also the limit for drafts with another vocabulary, which are
accepted less often."""
OTHER_VOCABULARY = "another vocabulary"
PERCENT_SHARE = 0.4
"""Shares above this are shown in percent, smaller ones as fractions."""

FAMILY, NAMES = 0.5, 2.0
"""Points for the same architecture, and for names with the same words. A size outside the good
range by a factor of two costs one point."""

HEAD_POINTS, DERIVED_POINTS = 100.0, 50.0
"""Points for a head in a file beside its target, more than for any draft model but the catalogue's;
and for a draft derived from the target, which was measured."""

WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)?b?")
SIZE = re.compile(r"\d+(?:\.\d+)?b")
IGNORED_WORDS = frozenset({"gguf", "ggml", "of", "latest"})


@dataclass(frozen=True, slots=True)
class Draft:
    """A suitable draft model, its share of the target's size, and the reason to take it.

    The draft with the most points is the best. If `is_derived`, it was made from the target and
    predicted to pay.
    """

    model: LocalModel
    share: float
    why: str
    points: float
    is_derived: bool = False


@dataclass(frozen=True, slots=True)
class Drafts:
    """The drafts that suit a target, best first, and the rejected ones, each with a reason.

    `advice` is a reason to use none of them, or empty.
    """

    fitting: tuple[Draft, ...] = ()
    unfit: tuple[tuple[LocalModel, str], ...] = ()
    advice: str = ""

    @property
    def best(self) -> Draft | None:
        """The draft to use, or None."""
        return self.fitting[0] if self.fitting and not self.advice else None


def find_drafts(target: Path) -> Drafts:
    """Return the drafts among the models beside the target and all other local models.

    Returns no drafts for an unreadable target: loading it reports the reason.
    """
    own = model_at(target)
    if own is None:
        return Drafts()
    beside = models_in(target.absolute().parent)
    models = {model.path.resolve(): model for model in (*find_local_models(), *beside)}
    models.pop(target.resolve(), None)
    with HeaderCache() as cache:
        search = _Search(own, cache)
        models |= {model.path.resolve(): model for model in search.shipped()}
        return search.among(models.values())


def find_derived_draft(target: Path) -> Draft | None:
    """Return the best draft derived from a target on this machine, None if none pays."""
    model, derived = model_at(target), models_in(derived_folder())
    if model is None or not derived:
        return None
    with HeaderCache() as cache:
        best = _Search(model, cache).among(derived).best
    return best if best and best.is_derived else None


class _Search:
    """A search for drafts of one target."""

    def __init__(self, target: LocalModel, cache: HeaderCache) -> None:
        self._target, self._cache = target, cache
        self._facts = cache.with_vocabulary(target.path)
        self._paired = [
            entry.draft
            for entry in read_catalogue().entries.values()  # mistakes in it are reported elsewhere
            if not entry.experimental and _is_file(entry.target, target)
        ]

    def among(self, models: Iterable[LocalModel]) -> Drafts:
        """Return the drafts among some models."""
        if self._facts.vocabulary is None:
            return Drafts()
        fitting, unfit = self._heads_beside()
        for model in models:
            share = self._share(model)
            if reason := self._reason_against(model, share):
                unfit.append((model, reason))
            else:
                fitting.append(self._draft(model, share))
        others = [model for model, reason in unfit if reason == OTHER_VOCABULARY]
        if not fitting and (other := self._best_of_other_vocabularies(others)):
            fitting = [other]
            unfit = [rejected for rejected in unfit if rejected[0] != other.model]
        fitting.sort(key=lambda draft: (-draft.points, draft.share, draft.model.name))
        has_derived = bool(fitting) and fitting[0].is_derived
        is_discouraged = None in self._paired and not has_derived
        advice = "the catalogue knows no draft that pays" if is_discouraged else ""
        advice = "it has a prediction head of its own" if self._facts.has_head else advice
        return Drafts(tuple(fitting), tuple(unfit), advice)

    def shipped(self) -> Iterator[LocalModel]:
        """Yield the drafts in the catalogue that were derived from this model, whatever file."""
        for entry in read_catalogue().entries.values():
            model = model_at(entry.draft) if isinstance(entry.draft, Path) else None
            origin = self._cache.of(model.path).origin if model else None
            is_named = origin is not None and origin.target == self._facts.name
            if model and origin and is_named and origin.target_sha256 in self._fingerprints:
                yield model

    def _draft(self, model: LocalModel, share: float) -> Draft:
        if origin := self._cache.of(model.path).origin:
            gain = (
                f"predicted {speedup_text(origin.speedup, 2)}"
                if origin.speedup
                else "no prediction"
            )
            why = f"derived from it, {gain}, {origin.method}"
            points = DERIVED_POINTS + min(origin.speedup, DERIVED_POINTS - 1.0)
            return Draft(model, share, why, points, is_derived=True)
        is_paired = any(draft and _is_file(draft, model) for draft in self._paired)
        points = math.inf if is_paired else self._points(model, share)
        pairing = "the catalogue pairs them, " if is_paired else ""
        why = f"{self._where(model)}: {pairing}same vocabulary, {self._size_text(share)}"
        return Draft(model, share, why, points)

    def _heads_beside(self) -> tuple[list[Draft], list[tuple[LocalModel, str]]]:
        """Return the suitable prediction heads beside the target, and the others with reasons."""
        fitting: list[Draft] = []
        unfit: list[tuple[LocalModel, str]] = []
        for path in sorted(self._target.path.absolute().parent.glob("*.gguf")):
            if not is_name_of_head(path.name):
                continue
            model = LocalModel(path.name, path, None, path.stat().st_size)
            try:
                header, head = read_pair(self._target.path, path)
                if head:
                    require_origin(header, head)
            except SpecchatError as error:
                unfit.append((model, str(error)))
            else:
                points = HEAD_POINTS + self._likeness(model)
                share = model.num_bytes / self._target.num_bytes
                fitting.append(Draft(model, share, "beside it: a prediction head for it", points))
        return fitting, unfit

    def _reason_against(self, model: LocalModel, share: float) -> str | None:
        """Return why a model cannot draft. Sizes come first, as reading vocabularies is slow."""
        if share > LARGEST_SHARE and not self._cache.of(model.path).origin:
            return f"too large, {self._size_text(share)}"
        facts = self._cache.with_vocabulary(model.path)
        if facts.origin:
            return self._reason_against_derived(facts.origin)
        if facts.kind not in {"chat", "damaged"}:
            return f"not a model to draft with: {facts.kind}"
        own, other = self._facts.vocabulary, facts.vocabulary
        if own is None or other is None:
            return "its file is damaged"
        if not other.size or other.kind == "none":
            return "it has no vocabulary"
        if own == other:
            return None
        if own.size != other.size and not mismatch(own, other, ()):
            with suppress(SpecchatError):
                headers = read_header(self._target.path), read_header(model.path)
                if common_vocabulary(*headers) is None:
                    return None
        return OTHER_VOCABULARY

    def _best_of_other_vocabularies(self, models: list[LocalModel]) -> Draft | None:
        """Return the best draft with another vocabulary, None if none can pay."""
        shares = {
            model: share for model in models if (share := self._share(model)) <= GOOD_SHARES[1]
        }
        points = {model: self._points(model, share) for model, share in shares.items()}
        for model in sorted(points, key=lambda model: (-points[model], model.name)):
            with suppress(SpecchatError):  # too few common tokens
                common = common_vocabulary(read_header(self._target.path), read_header(model.path))
                why = f"{self._where(model)}: {common}, {self._size_text(shares[model])}"
                return Draft(model, shares[model], why, points[model])
        return None

    def _share(self, model: LocalModel) -> float:
        """Return a model's size as a share of the target, or of the experts that a token uses."""
        return model.num_bytes / (self._target.num_bytes * self._facts.active_share)

    def _points(self, model: LocalModel, share: float) -> float:
        low, high = GOOD_SHARES
        too_far = max(0.0, math.log2(share / high), math.log2(low / share))  # factors of two
        return self._likeness(model) - too_far

    def _reason_against_derived(self, origin: DraftOrigin) -> str | None:
        if origin.target_sha256 not in self._fingerprints:
            return f"derived from another target, {origin.target}"
        return None if origin.is_predicted_to_gain else "no speedup was predicted for it"

    @cached_property
    def _fingerprints(self) -> Fingerprints:
        """The target's fingerprints, one of which derived drafts record."""
        return fingerprints(read_header(self._target.path))

    def _likeness(self, model: LocalModel) -> float:
        facts = self._cache.of(model.path)
        own, others = _words(self._target, self._facts), _words(model, facts)
        shared = len(own & others) / max(1, len(own | others))
        is_kin = facts.architecture != "" and facts.architecture == self._facts.architecture
        return FAMILY * is_kin + NAMES * shared

    def _where(self, model: LocalModel) -> str:
        is_beside = model.path.absolute().parent == self._target.path.absolute().parent
        if is_beside and model.tool != "Ollama":  # its files have opaque names
            return "beside it"
        named = {"hub": "the Hugging Face cache", "derived": "specchat's derived files"}
        return f"from {named.get(model.tool or '', model.tool)}"

    def _size_text(self, share: float) -> str:
        """Return a draft's size as text, as a share of the target or of its active experts."""
        size = percent(share) if share > PERCENT_SHARE else f"1/{1 / share:.0f}"
        return f"{size} of {'the active experts' if self._facts.active_share < 1 else 'its size'}"


def _words(model: LocalModel, facts: HeaderFacts) -> frozenset[str]:
    """Return the words of a model's names that identify its family, without sizes."""
    words: set[str] = set()
    for name in (facts.name, model.name.rpartition("/")[2].removesuffix(".gguf")):
        words |= set(WORD.findall(QUANTISATION.sub("", name.lower())))
    return frozenset(word for word in words - IGNORED_WORDS if not SIZE.fullmatch(word))


def _is_file(file: File, model: LocalModel) -> bool:
    """Return True if a model is a pair's file, wherever it is: compares name and size."""
    if isinstance(file, Reference):
        has_name = file.name.lower() == model.path.name.lower()
        return has_name and file.size in {None, model.num_bytes}
    return file.resolve() == model.path.resolve()
