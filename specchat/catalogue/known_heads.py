"""The published prediction heads that the catalogue knows, and targets that lack theirs."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from specchat.catalogue.catalogue_file import read_catalogue
from specchat.catalogue.entry import HEAD_KINDS, KnownHead
from specchat.catalogue.header_cache import HeaderCache
from specchat.catalogue.local_models import find_local_models, models_in
from specchat.catalogue.model_names import are_trained_alike, model_title, model_words
from specchat.errors import SpecchatError
from specchat.gguf.model_files import read_pair
from specchat.hub.cache import find_present
from specchat.hub.references import Reference


def all_known_heads() -> list[KnownHead]:
    """Return the published heads in pairs of the catalogue, then the others; each file once."""
    catalogue = read_catalogue()
    of_pairs = [
        KnownHead(model_title(entry.target.name), entry.kind, entry.draft, entry.licence)
        for entry in catalogue.entries.values()
        if entry.kind in HEAD_KINDS and isinstance(entry.draft, Reference)
    ]
    heads = [*of_pairs, *catalogue.heads.values()]
    return list({str(head.reference): head for head in reversed(heads)}.values())[::-1]


def known_heads(*names: str) -> list[KnownHead]:
    """Return the published heads for the model with these names, in any quantization.

    A name without a number, such as "target", is none by which a model is known.
    """
    wanted = [words for name in names if not all(map(str.isalpha, words := model_words(name)))]
    return [
        head
        for head in all_known_heads()
        if model_words(head.model) in wanted and are_trained_alike([head.model], names)
    ]


def missing_head(target: Path, cache: HeaderCache) -> KnownHead | None:
    """Return the published head that an installed target lacks; None if it has one."""
    facts = cache.of(target)
    names = target.name, facts.name
    if facts.kind != "chat" or facts.has_head or facts.origin:
        return None
    known = known_heads(*names)
    is_here = not known or any(find_present(head.reference) for head in known)
    return None if is_here or _has_head(names, target, cache) else known[0]


def _has_head(names: Sequence[str], target: Path, cache: HeaderCache) -> bool:
    """Return True if a head on this machine is named as a target is, not only as its kin are.

    One beside the target need not name it, if its sizes are the target's.
    """
    wanted = [words for words in map(model_words, names) if words]
    files = {*find_local_models(with_heads=True), *models_in(target.parent, with_heads=True)}
    for model in files:
        words = model_words(model.name.rpartition("/")[2])
        is_named = words in wanted or (not words and model.path.parent == target.parent)
        is_head = is_named and (facts := cache.of(model.path)).is_head
        is_alike = is_head and are_trained_alike((model.name, facts.name), names)
        if is_alike and (words or _fits(target, model.path)):
            return True
    return False


def _fits(target: Path, head: Path) -> bool:
    with suppress(SpecchatError):
        read_pair(target, head)
        return True
    return False
