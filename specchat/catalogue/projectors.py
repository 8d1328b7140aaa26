"""Projectors (mmproj) on this machine, by the model that reads images with them."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from specchat.errors import ModelNotFound, SpecchatError
from specchat.hub.references import Reference
from specchat.options.declarations import NO_PROJECTOR

if TYPE_CHECKING:  # the first frame of the chat needs none of it, where there is no projector
    from specchat.catalogue.header_cache import HeaderCache, HeaderFacts

NAMES = "*[mM][mM][pP][rR][oO][jJ]*.gguf"
"""The names of projectors, by llama.cpp's convention."""
BLOBS, REPOSITORY = "blobs", "models--"
"""The folder of Ollama's files, and how those of the hub's repositories begin."""
OF_ANY = frozenset({"mmproj", "model", "vision", "projector"})
"""Words in such names that tell of no model."""
FIRST = ("Q8_0", "F16", "FP16", "BF16")
"""The quantizations to take first: no other is as small without a loss that shows."""


def chosen_projector(given: Path | None, target: Path) -> Path | None:
    """Return the projector for a target: the one given, if it is for it, else the one beside it.

    NO_PROJECTOR is none. Raises ModelNotFound for a file that is not there.
    """
    if given is None:
        return projector_for(target)
    if given == NO_PROJECTOR:
        return None
    from specchat.catalogue.model_lookup import typed_path

    path = typed_path(str(given))
    if path is None:
        raise ModelNotFound(f"{given}: no such file: it was to be the projector")
    return path if is_for(path, target) else projector_for(target)


def projector_for(target: Path) -> Path | None:
    """Return the projector that came with a target; None if none is here.

    It is of the same repository, of the same model of Ollama, or beside it in its folder. There it
    bears the target's name, unless the folder has no other model.
    """
    found = list(_beside(target))
    if not found:
        return None
    from specchat.catalogue.header_cache import HeaderCache

    with HeaderCache() as cache:
        facts = cache.of(target)
        fitting = [path for path in found if _fits(path, facts)]
        named = [path for path in fitting if _is_named(path, target, facts)]
        is_alone = not _is_shared(target) or _has_one_model(target.parent, cache)
        unnamed = [path for path in fitting if is_alone and not _words(path)]
        return min(named or unnamed, key=_rank, default=None)


def is_for(projector: Path, target: Path) -> bool:
    """Return True if a projector fits a target, and bears the name of no other model."""
    from specchat.catalogue.header_cache import HeaderCache

    with HeaderCache() as cache:
        facts = cache.of(target)
    is_named = not _words(projector) or _is_named(projector, target, facts)
    return is_named and _fits(projector, facts)


def missing_projector(target: Reference) -> tuple[Reference, int | None] | None:
    """Return the projector that a target lacks here, and its size if the hub states it.

    It is the catalogue's, or one in the target's repository. None if there is none, if one is here,
    if the target reads text only, or if the hub cannot be asked. The file of the target may be
    missing, too.
    """
    from specchat.catalogue.catalogue_file import read_catalogue
    from specchat.hub.cache import find_present
    from specchat.hub.listing import files_soon
    from specchat.hub.offline import is_offline

    if is_offline() or not _may_lack_one(target):
        return None
    entries = read_catalogue().entries.values()
    named = [entry.projector for entry in entries if entry.target == target]
    found = {projector: projector.size for projector in named if projector} or {
        Reference(target.repository, file.path, target.revision): file.num_bytes
        for file in files_soon(target.repository, target.revision)
        if _may_go_with(file.path, target.file)
    }
    is_here = any(map(find_present, found))
    best = min(found, key=lambda reference: _rank(reference.file), default=None)
    return (best, found[best]) if best and not is_here else None


def _may_lack_one(target: Reference) -> bool:
    """Return True unless a file is no target, by its name until it is here, or has a projector."""
    from specchat.catalogue.header_cache import HeaderCache
    from specchat.catalogue.local_models import may_be_model
    from specchat.gguf.draft_kinds import is_name_of_head
    from specchat.hub.cache import find_present

    path = find_present(target)
    if path is None:
        return may_be_model(target.name) and not is_name_of_head(target.name)
    with HeaderCache() as cache:
        facts = cache.of(path)
    return facts.kind == "chat" and not facts.is_head and projector_for(path) is None


def _may_go_with(file: str, target: str) -> bool:
    """Return True if a file in a repository is a projector, in a folder that a target is in."""
    from specchat.catalogue.model_names import model_words

    folder, _, name = file.rpartition("/")
    is_above = f"{target.rpartition('/')[0]}/".startswith(f"{folder}/" if folder else "")
    return is_above and fnmatchcase(name, NAMES) and _words(Path(name)) <= model_words(target)


def _rank(file: Path | str) -> tuple[int, str]:
    """Return the rank of a projector among others of its model, the smallest for the best one."""
    from specchat.catalogue.model_names import quantisation_in

    quantisation = quantisation_in(str(file))
    rank = FIRST.index(quantisation) if quantisation in FIRST else len(FIRST)
    return rank, str(file)


def _beside(target: Path) -> Iterable[Path]:
    if target.parent.name == BLOBS:
        from specchat.catalogue.local_models import projectors_of_blob

        return projectors_of_blob(target)
    if repository := _repository(target):
        return repository.glob(f"snapshots/*/**/{NAMES}")
    return target.parent.glob(NAMES)


def _repository(target: Path) -> Path | None:
    """Return the folder of the hub's repository that a target is in; None if it is in none."""
    return next((path for path in target.parents if path.name.startswith(REPOSITORY)), None)


def _is_shared(target: Path) -> bool:
    """Return True if other models' files may be where a target's are."""
    return target.parent.name != BLOBS and _repository(target) is None


def _has_one_model(folder: Path, cache: "HeaderCache") -> bool:
    """Return True if all models in a folder are quantizations of one."""
    from specchat.catalogue.local_models import models_in
    from specchat.catalogue.model_names import model_words

    chats = [model.path for model in models_in(folder) if cache.of(model.path).kind == "chat"]
    return len({model_words(path.name) for path in chats}) == 1


def _is_named(projector: Path, target: Path, facts: "HeaderFacts") -> bool:
    """Return True if the words in a projector's name are all in the target's names."""
    from specchat.catalogue.model_names import model_words

    words = _words(projector)
    return bool(words) and words <= model_words(target.name, facts.name)


def _words(projector: Path) -> frozenset[str]:
    from specchat.catalogue.model_names import model_words

    is_blob = projector.parent.name == BLOBS
    return frozenset() if is_blob else model_words(projector.name) - OF_ANY


def _fits(projector: Path, facts: "HeaderFacts") -> bool:
    from specchat.gguf.projector import why_unfit
    from specchat.gguf.reader import read_header

    try:
        return facts.kind == "chat" and why_unfit(read_header(projector), facts.width) is None
    except (SpecchatError, OSError):
        return False
