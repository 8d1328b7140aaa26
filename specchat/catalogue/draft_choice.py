"""Choosing a draft model for a target among the local models, with the reasons.

A draft must be much smaller than its target. Among models with the target's vocabulary, the
catalogue's pairings come first, then models of the same family (by architecture and name) and a
suitable size. If there are none, a small model with another vocabulary is taken, provided most of
its tokens are common.

A prediction head comes before models of the same family. It belongs to a model in any quantization:
the names in its file and its sizes say to which. Whether it fits a fine-tuned version is measured
while it drafts.
"""

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from specchat.catalogue.catalogue_file import read_catalogue
from specchat.catalogue.entry import File
from specchat.catalogue.header_cache import HeaderCache
from specchat.catalogue.known_heads import known_heads
from specchat.catalogue.local_models import (
    LocalModel,
    derived_folder,
    find_local_models,
    model_at,
    models_in,
)
from specchat.catalogue.model_names import are_trained_alike, model_words
from specchat.errors import SpecchatError
from specchat.gguf.common_vocabulary import common_vocabulary
from specchat.gguf.model_files import read_pair
from specchat.gguf.origin import DraftOrigin, Fingerprints, fingerprints
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

HEAD_POINTS, DERIVED_POINTS, KIN_POINTS = 100.0, 50.0, 25.0
"""Points for a head in a file of its own, more than for any draft model but the catalogue's; for a
draft derived from the target, which was measured; and for one derived from a model like it."""
BESIDE = 1.0
"""Further points for a head in the target's folder."""
SIZE = re.compile(r"\d+(?:\.\d+)?[bm]")
OTHER_MODEL = "a prediction head for another model"


@dataclass(frozen=True, slots=True)
class Draft:
    """A suitable draft model, its share of the target's size, and the reason to take it.

    The draft with the most points is the best. If `is_derived`, it was made from the target, or
    from a model like it, and predicted to pay.
    """

    model: LocalModel
    share: float
    why: str
    points: float
    is_derived: bool = False
    is_head: bool = False
    is_named: bool = False
    """Whether it is a head that names the target's model, or that the catalogue knows for it."""


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
    beside = models_in(target.absolute().parent, with_heads=True)
    local = {model.path.resolve(): model for model in find_local_models(with_heads=True)}
    models = {**local, **{model.path.resolve(): model for model in beside}}
    models.pop(target.resolve(), None)
    if twin := local.get(target.resolve()):
        own = replace(own, name=twin.name)  # with its repository, or Ollama's name
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


def find_target(head: Path) -> LocalModel | None:
    """Return a model on this machine that a prediction head drafts for, None if there is none."""
    own = model_at(head, with_heads=True)
    if own is None:
        return None
    words = model_words(own.name)
    with HeaderCache() as cache:
        for model in find_local_models():
            facts = cache.of(model.path)
            is_named = words <= model_words(facts.name, model.name)
            if facts.kind == "chat" and is_named and _Search(model, cache).takes(own):
                return model
    return None


class _Search:
    """A search for drafts of one target."""

    def __init__(self, target: LocalModel, cache: HeaderCache) -> None:
        self._target, self._cache = target, cache
        self._facts = cache.with_vocabulary(target.path)
        self._paired = [
            entry.draft
            for entry in read_catalogue().entries.values()  # mistakes in it are reported elsewhere
            if _is_file(entry.target, target)
        ]

        names = _file_name(target), self._facts.name
        self._known_heads = [head.reference for head in known_heads(*names)]

    def among(self, models: Iterable[LocalModel]) -> Drafts:
        """Return the drafts among some models."""
        if self._facts.vocabulary is None:
            return Drafts()
        fitting: list[Draft] = []
        unfit: list[tuple[LocalModel, str]] = []
        for model in models:
            found = self._judged(model)
            if isinstance(found, Draft):
                fitting.append(found)
            else:
                unfit.append((model, found))
        others = [model for model, reason in unfit if reason == OTHER_VOCABULARY]
        if not fitting and (other := self._best_of_other_vocabularies(others)):
            fitting = [other]
            unfit = [rejected for rejected in unfit if rejected[0] != other.model]
        fitting.sort(key=lambda draft: (-draft.points, draft.share, draft.model.name))
        if any(draft.is_named for draft in fitting):
            strange = [draft for draft in fitting if draft.is_head and not draft.is_named]
            fitting = [draft for draft in fitting if draft not in strange]
            unfit += [(draft.model, OTHER_MODEL) for draft in strange]
        num_heads = sum(draft.is_head for draft in fitting)
        if num_heads > 1 and fitting[0].is_head:
            more = f"; {num_heads} heads fit it: `specchat tune` measures which is fastest"
            fitting[0] = replace(fitting[0], why=fitting[0].why + more)
        has_derived = bool(fitting) and fitting[0].is_derived
        is_discouraged = None in self._paired and not has_derived
        advice = "the catalogue knows no draft that pays" if is_discouraged else ""
        advice = "it has a prediction head of its own" if self._facts.has_head else advice
        return Drafts(tuple(fitting), tuple(unfit), advice)

    def takes(self, head: LocalModel) -> bool:
        """Return True if a prediction head is one for the target."""
        return isinstance(self._head(head, self._share(head)), Draft)

    def shipped(self) -> Iterator[LocalModel]:
        """Yield the drafts in the catalogue that were derived from this model, whatever file."""
        for entry in read_catalogue().entries.values():
            model = model_at(entry.draft) if isinstance(entry.draft, Path) else None
            origin = self._cache.of(model.path).origin if model else None
            if model and origin and self._is_kin(origin.target):
                yield model

    def _judged(self, model: LocalModel) -> Draft | str:
        """Return a model as a draft, or why it cannot draft."""
        facts, share = self._cache.of(model.path), self._share(model)
        if facts.origin:
            return self._derived(model, facts.origin, share)
        if facts.is_head:
            return self._head(model, share)
        if reason := self._reason_against(model, share):
            return reason
        is_paired = self._is_paired(model)
        points = math.inf if is_paired else self._points(model, share)
        pairing = "the catalogue pairs them, " if is_paired else ""
        why = f"{self._where(model)}: {pairing}same vocabulary, {self._size_text(share)}"
        return Draft(model, share, why, points)

    def _derived(self, model: LocalModel, origin: DraftOrigin, share: float) -> Draft | str:
        """Return a derived file as a draft, or why it cannot draft."""
        is_own = origin.target_sha256 in self._fingerprints
        if not (is_own or self._is_kin(origin.target)):
            return f"derived from another target, {origin.target}"
        if not origin.is_predicted_to_gain:
            return "no speedup was predicted for it"
        is_head = self._cache.of(model.path).is_head
        if not is_own and share >= 1:
            return f"too large, {self._size_text(share)}"
        if not is_own and (reason := self._why_unfit(model, is_head=is_head)):
            return reason
        source = "it" if is_own else f"{origin.target}, whose weights are others"
        gain = f"predicted {speedup_text(origin.speedup, 2)}"
        why = f"derived from {source}, {gain}, {origin.method}"
        points = DERIVED_POINTS if is_own else KIN_POINTS
        points += min(origin.speedup, KIN_POINTS - 1.0)
        return Draft(model, share, why, points, is_derived=True, is_head=is_head, is_named=is_head)

    def _head(self, model: LocalModel, share: float) -> Draft | str:
        """Return a prediction head as a draft, or why it is not one for the target."""
        is_beside, is_paired = self._is_beside(model), self._is_paired(model)
        names = _file_name(model), self._cache.of(model.path).name
        is_known = is_paired or any(_is_file(head, model) for head in self._known_heads)
        is_alike = is_known or are_trained_alike((model.name, names[1]), self._names)
        name = next(filter(model_words, names), "")
        is_named = is_known or (is_alike and self._has_words_of(name))
        if not (is_named or (is_beside and is_alike)):
            return OTHER_MODEL
        if reason := self._why_unfit(model, is_head=True):
            return reason
        points = HEAD_POINTS + self._likeness(model) + BESIDE * is_beside
        why = f"{self._where(model)}: a prediction head for it"
        points = math.inf if is_paired else points
        return Draft(model, share, why, points, is_head=True, is_named=is_named)

    def _why_unfit(self, model: LocalModel, *, is_head: bool) -> str:
        """Return why a head, or a model derived from one like the target, does not fit it."""
        if not is_head:
            own, other = self._facts.vocabulary, self._cache.with_vocabulary(model.path).vocabulary
            return "" if own == other else OTHER_VOCABULARY
        try:
            read_pair(self._target.path, model.path)
        except SpecchatError as error:
            return str(error)
        return ""

    def _is_paired(self, model: LocalModel) -> bool:
        return any(draft and _is_file(draft, model) for draft in self._paired)

    def _is_beside(self, model: LocalModel) -> bool:
        """Return True for a file in the target's folder, but for Ollama's, which has all models."""
        folders = {each.path.absolute().parent for each in (model, self._target)}
        return len(folders) == 1 and model.tool != "Ollama"

    def _is_kin(self, name: str) -> bool:
        """Return True if a name is that of a model like the target, and trained as it is."""
        return self._has_words_of(name) and are_trained_alike([name], self._names)

    def _has_words_of(self, name: str) -> bool:
        """Return True if the words of a name are among the target's: its family and its size."""
        words = model_words(name)
        return any(map(str.isalpha, words)) and words <= self._words

    def _reason_against(self, model: LocalModel, share: float) -> str | None:
        """Return why a model cannot draft. Sizes come first, as reading vocabularies is slow."""
        if share > LARGEST_SHARE:
            return f"too large, {self._size_text(share)}"
        facts = self._cache.with_vocabulary(model.path)
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

    @cached_property
    def _fingerprints(self) -> Fingerprints:
        """The target's fingerprints, one of which derived drafts record."""
        return fingerprints(read_header(self._target.path))

    def _likeness(self, model: LocalModel) -> float:
        facts = self._cache.of(model.path)
        own, others = self._family, _family(model_words(facts.name, _file_name(model)))
        shared = len(own & others) / max(1, len(own | others))
        is_kin = facts.architecture != "" and facts.architecture == self._facts.architecture
        return FAMILY * is_kin + NAMES * shared

    @cached_property
    def _names(self) -> tuple[str, ...]:
        """The target's names: in its file, that of its file, and that with its repository."""
        return self._facts.name, self._target.path.name, self._target.name

    @cached_property
    def _words(self) -> frozenset[str]:
        return model_words(*self._names)

    @cached_property
    def _family(self) -> frozenset[str]:
        return _family(model_words(self._facts.name, _file_name(self._target)))

    def _where(self, model: LocalModel) -> str:
        if self._is_beside(model):
            return "beside it"
        named = {"hub": "the Hugging Face cache", "derived": "specchat's derived files"}
        return f"from {named.get(model.tool or '', model.tool)}"

    def _size_text(self, share: float) -> str:
        """Return a draft's size as text, as a share of the target or of its active experts."""
        size = percent(share) if share > PERCENT_SHARE else f"1/{1 / share:.0f}"
        return f"{size} of {'the active experts' if self._facts.active_share < 1 else 'its size'}"


def _family(words: frozenset[str]) -> frozenset[str]:
    """Return words without sizes."""
    return frozenset(word for word in words if not SIZE.fullmatch(word))


def _file_name(model: LocalModel) -> str:
    """Return the name of a model's file, or Ollama's name: its files have opaque ones."""
    return model.name.rpartition("/")[2]


def _is_file(file: File, model: LocalModel) -> bool:
    """Return True if a model is a pair's file, wherever it is: compares name and size."""
    if isinstance(file, Reference):
        has_name = file.name.lower() == model.path.name.lower()
        return has_name and file.size in {None, model.num_bytes}
    return file.resolve() == model.path.resolve()
