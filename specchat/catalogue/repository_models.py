"""The models in a repository of the hub: its quantizations, and which of them to take.

On a GPU the best is the largest that fits, up to 8 bits a weight: readers notice no gain from more.
On a CPU decoding takes as long as reading the weights, so 4 bits come first; of files of about one
size it is the one whose passes over a few tokens usually cost least, for those verify drafts.
"""

import re
import shlex
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from specchat.catalogue.fit import Fit, judge, need_of_size
from specchat.catalogue.local_models import may_be_model
from specchat.catalogue.model_names import quantisation_in, states
from specchat.errors import DownloadFailed, ModelNotFound
from specchat.gguf.draft_kinds import is_name_of_head, words_of_heads
from specchat.gguf.split_files import split_names
from specchat.hub.client import find
from specchat.hub.hub_errors import RetryPolicy
from specchat.hub.hub_request import NoticeCallback, ignore
from specchat.hub.listing import ListedFile, list_files
from specchat.hub.names import TAG, HubName
from specchat.hub.offline import is_offline
from specchat.hub.references import MAIN, Reference, is_mirror
from specchat.passes.pass_costs import REPACKED_TYPES, PassCosts, usual_stair
from specchat.planning.device import Machine
from specchat.wording import size_text

USUAL = "Q4_K_M"
"""The first choice among the quantizations with 4 bits, and where nothing else decides."""
ENOUGH_BITS = 8
ORDER_ON_CPU = (4, 5, 6, 8, 3, 2, 1, 16, 32)
"""Bits a weight, the best compromise of speed and quality first."""
OBSOLETE = re.compile(r"Q4_0_\d_\d|Q4_[23]", re.IGNORECASE)
"""Quantizations that llama.cpp no longer loads."""
SAME_SIZE = 1.15
"""How many times as large as another a file of about the same size may be."""
DRAFTED = (2, 3, 4)
"""The tokens of the passes by whose cost such files are compared: those of short drafts."""
GGUF_ENDING = re.compile(r"[-_.]gguf$", re.IGNORECASE)
ADAPTER = re.compile(r"(^|[-_./])lora([-_./]|$)", re.IGNORECASE)
MOST_SHOWN = 12
LIST_WAITS = (1.0, 2.0)
"""Seconds between tries to list a repository."""


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model in a repository: its first file, its quantization, and its size with all parts.

    The quantization is empty if the file's name does not state it, the size None if the hub does
    not.
    """

    reference: Reference
    quantisation: str
    num_bytes: int | None

    def fit(self, machine: Machine) -> Fit:
        """Return how well the model fits a machine."""
        return judge(need_of_size(self.num_bytes) if self.num_bytes else None, machine)


def find_remote(
    wanted: HubName,
    machine: Machine,
    on_note: Callable[[str], None],
    choose: Callable[[Sequence[RemoteModel]], RemoteModel] | None = None,
    on_notice: NoticeCallback = ignore,
) -> RemoteModel:
    """Return the model on the hub that a name names, or the best of a repository for a machine.

    `choose` takes one of a repository's models instead. Raises ModelNotFound, which lists the
    models, and DownloadFailed.
    """
    try:
        models = list_models(wanted, on_note, on_notice)
    except DownloadFailed as error:
        if is_mirror() and error.__cause__ and (usual := _by_usual_name(wanted)):
            return usual
        raise
    if wanted.quantisation:
        return named(wanted, models)
    return choose(models) if choose else require_best(wanted, models, machine)


def _by_usual_name(wanted: HubName) -> RemoteModel | None:
    """Return the file that a quantization usually has, on a mirror that lists no repositories."""
    stem = GGUF_ENDING.sub("", wanted.repository.partition("/")[2])
    names = [
        pattern.format(stem, wanted.quantisation.upper()) + ".gguf"
        for pattern in ("{}-{}", "{}.{}")
    ]
    for name in dict.fromkeys([*names, *map(str.lower, names)] if wanted.quantisation else ()):
        with suppress(Exception):  # it has another name, or the error is that of the list
            reference = Reference(wanted.repository, name, wanted.revision)
            return RemoteModel(reference, wanted.quantisation, find(reference).size)
    return None


def require_best(wanted: HubName, models: Sequence[RemoteModel], machine: Machine) -> RemoteModel:
    """Return the best of a repository's models for a machine. Raises ModelNotFound."""
    if best := best_of(models, machine):
        return best
    smallest = min(models, key=lambda model: model.num_bytes or 0)
    raise ModelNotFound(
        f"no model of {wanted} fits this machine: name one to pull it anyway,"
        f" {shlex.quote(full_name(smallest, models))}"
    )


def full_name(model: RemoteModel, models: Sequence[RemoteModel]) -> str:
    """Return the shortest name of one of a repository's models by which `pull` finds it."""
    reference = model.reference
    is_usual = reference.revision == MAIN and _is_unique(model, models)
    return str(
        HubName(reference.repository, quantisation=model.quantisation)
        if is_usual and TAG.fullmatch(model.quantisation)
        else HubName(reference.repository, reference.file, reference.revision)
    )


def _is_unique(model: RemoteModel, models: Sequence[RemoteModel]) -> bool:
    """Return True if no other model states the same quantization."""
    same = [other for other in models if other.quantisation == model.quantisation]
    return bool(model.quantisation) and len(same) == 1


def _label(model: RemoteModel, models: Sequence[RemoteModel]) -> str:
    return model.quantisation if _is_unique(model, models) else model.reference.file


def list_models(
    name: HubName, on_note: Callable[[str], None], on_notice: NoticeCallback = ignore
) -> list[RemoteModel]:
    """Return the models of a repository, from the hub, or its heads if there are no models.

    Raises ModelNotFound and DownloadFailed.
    """
    if is_offline():
        raise DownloadFailed(
            f"offline, so {name.repository} cannot be listed: name a file that is here"
            " (`specchat list`), or pull again without --offline"
        )
    policy = RetryPolicy(name, LIST_WAITS, threading.Event(), on_note)
    files = policy.run(lambda: list_files(name.repository, name.revision, on_notice))
    models = models_of(name, files) or heads_of(name, files)
    if not models:
        where = f"{name.repository}/{name.folder}" if name.folder else name.repository
        raise ModelNotFound(
            f"{where} has no GGUF model: look for a repository whose name ends in GGUF, often by"
            " another organization"
        )
    return models


def models_of(name: HubName, files: Iterable[ListedFile]) -> list[RemoteModel]:
    """Return the models among a repository's files, in their order.

    Files that cannot be used alone (projectors, adapters, heads, later parts) are left out, and so
    are files outside the folder that the name gives.
    """
    return [model for model in _complete(name, files) if not _is_head(model)]


def heads_of(name: HubName, files: Iterable[ListedFile]) -> list[RemoteModel]:
    """Return the prediction heads among a repository's files, by their names and folders.

    Those of up to 8 bits a weight come first, the most exact of them before others.
    """
    heads = [head for head in _complete(name, files) if _is_head(head)]
    return sorted(heads, key=lambda head: (not 0 < _bits(head) <= ENOUGH_BITS, -_bits(head)))


def _is_head(model: RemoteModel) -> bool:
    *folders, file = model.reference.file.split("/")
    return is_name_of_head(file) or any(map(words_of_heads().fullmatch, folders))


def _complete(name: HubName, files: Iterable[ListedFile]) -> list[RemoteModel]:
    """Return models and heads among a repository's files, with all their parts, in their order."""
    sizes = {listed.path: listed.num_bytes for listed in files}
    models = []
    for path in sizes:
        parent, _, file = path.rpartition("/")
        parts = [f"{parent}/{part}".removeprefix("/") for part in split_names(file)]
        is_inside = not name.folder or f"{parent}/".startswith(f"{name.folder}/")
        is_other = not may_be_model(file) or ADAPTER.search(file)
        if is_other or not is_inside or path != parts[0] or not sizes.keys() >= set(parts):
            continue
        of_parts = [sizes[part] for part in parts]
        total = sum(size or 0 for size in of_parts) if all(of_parts) else None
        reference = Reference(name.repository, path, name.revision)
        quantisation = quantisation_in(file) or quantisation_in(f"-{parent.rpartition('/')[2]}")
        models.append(RemoteModel(reference, quantisation, total))
    return models


def named(name: HubName, models: Sequence[RemoteModel]) -> RemoteModel:
    """Return the model whose quantization a name states; it may also state a part of its file.

    Raises ModelNotFound, which lists the models, if there is none or more than one.
    """
    wanted = name.quantisation.removesuffix(".gguf")
    stems = {model: model.reference.name.lower().removesuffix(".gguf") for model in models}
    same = [
        model for model in models if wanted.lower() in {model.quantisation.lower(), stems[model]}
    ]
    matching = same or [model for model in models if states(model.reference.file, wanted)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        files = ", ".join(model.reference.file for model in matching[:MOST_SHOWN])
        raise ModelNotFound(
            f"{name} has several: name one with its file, {name.repository}/FILE; it has {files}"
        )
    labels = ", ".join(_label(model, models) for model in models[:MOST_SHOWN])
    raise ModelNotFound(f"{name} is not in the repository, which has {labels}")


def best_of(models: Sequence[RemoteModel], machine: Machine) -> RemoteModel | None:
    """Return the best model for a machine; None if none fits, or if there is none."""
    best = _best_by_bits(models, machine)
    return best and min(
        _alike(best, models, machine), key=lambda model: _cost_of_passes(model, machine)
    )


def why_preferred(best: RemoteModel, models: Sequence[RemoteModel], machine: Machine) -> str:
    """Return why the best model is not that of the usual number of bits; empty if it is."""
    other = _best_by_bits(models, machine)
    if other is None or other == best:
        return ""
    cost, of_other = (_cost_of_passes(model, machine) for model in (best, other))
    return (
        f"{best.quantisation} rather than {other.quantisation}: checking {DRAFTED[0]} to"
        f" {DRAFTED[-1]} tokens usually costs {cost:.1f} times checking one here,"
        f" not {of_other:.1f}"
    )


def _best_by_bits(models: Sequence[RemoteModel], machine: Machine) -> RemoteModel | None:
    """Return the best model by its size and its bits a weight alone."""
    fits = {model: model.fit(machine) for model in models if _can_load(model)}
    on_gpu = [model for model, fit in fits.items() if fit == "fits the GPU"]
    quick = [model for model in on_gpu if 0 < _bits(model) <= ENOUGH_BITS] or on_gpu
    if quick:
        return max(quick, key=lambda model: (model.num_bytes or 0, model.quantisation == USUAL))
    usable = [model for model, fit in fits.items() if fit != "too large"]
    return min(usable, key=_rank_on_cpu, default=None)


def _alike(best: RemoteModel, models: Sequence[RemoteModel], machine: Machine) -> list[RemoteModel]:
    """Return the best model, then others of about its size, the fastest kernels first."""
    size, types = best.num_bytes or 0, REPACKED_TYPES
    others = [
        model
        for model in models
        if model != best
        and size / SAME_SIZE <= (model.num_bytes or 0) <= size * SAME_SIZE
        and _can_load(model)
        and model.fit(machine) == best.fit(machine)
    ]
    others.sort(key=lambda model: [*types, model.quantisation].index(model.quantisation))
    return [best, *others] if size else [best]


def _can_load(model: RemoteModel) -> bool:
    return not OBSOLETE.fullmatch(model.quantisation)


def _cost_of_passes(model: RemoteModel, machine: Machine) -> float:
    """Return what passes over a few tokens usually cost here, on average, relative to one."""
    stair = usual_stair(
        model.quantisation,
        is_on_gpu="GPU" in model.fit(machine),
        is_repacked=machine.repacks_weights,
    )
    costs = PassCosts(max(DRAFTED), stair).row(0)
    return sum(costs[count] for count in DRAFTED) / len(DRAFTED)


def rows(models: Sequence[RemoteModel], machine: Machine) -> list[str]:
    """Return a line for each model: quantization, size and fit, the smallest first."""
    by_size = sorted(models, key=lambda model: (model.num_bytes or 0, model.reference.file))
    labels = {model: _label(model, models) for model in models}
    width = max(map(len, labels.values()), default=0)
    return [
        f"{labels[model]:<{width}}  {size_text(model.num_bytes) if model.num_bytes else '?':>8}"
        f"  {_fit_text(model.fit(machine))}".rstrip()
        for model in by_size
    ]


def _fit_text(fit: Fit) -> str:
    return "" if fit == "unknown" else fit


def _rank_on_cpu(model: RemoteModel) -> tuple[int, bool, int]:
    bits = _bits(model)
    rank = ORDER_ON_CPU.index(bits) if bits in ORDER_ON_CPU else len(ORDER_ON_CPU)
    return rank, model.quantisation != USUAL, -(model.num_bytes or 0)


def _bits(model: RemoteModel) -> int:
    """Return the bits a weight of a model, as its quantization says; 0 if it does not."""
    match = re.search(r"\d+", model.quantisation)
    return int(match[0]) if match else 0
