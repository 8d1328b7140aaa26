"""The models in a repository of the hub: its quantizations, and which of them to take.

On a GPU the best is the largest one that fits it, up to 8 bits a weight: more gain nothing that
readers notice. On a CPU decoding takes as long as reading the weights, so 4 bits come first.
"""

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from specchat.catalogue.fit import Fit, judge, need_of_size
from specchat.catalogue.local_models import NO_MODEL
from specchat.catalogue.model_names import quantisation_in
from specchat.errors import DownloadFailed, ModelNotFound
from specchat.gguf.split_files import split_names
from specchat.hub.client import is_offline
from specchat.hub.hub_errors import RetryPolicy
from specchat.hub.listing import ListedFile, list_files
from specchat.hub.names import HubName
from specchat.hub.references import Reference
from specchat.planning.device import Machine
from specchat.wording import size_text

USUAL = "Q4_K_M"
"""The first choice among the quantizations with 4 bits, and where nothing else decides."""
ENOUGH_BITS = 8
ORDER_ON_CPU = (4, 5, 6, 8, 3, 2, 1, 16, 32)
"""Bits a weight, the best compromise of speed and quality first."""
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

    @property
    def label(self) -> str:
        """What follows the repository's name to name this model."""
        return self.quantisation or self.reference.name

    def fit(self, machine: Machine) -> Fit:
        """Return how well the model fits a machine."""
        return judge(need_of_size(self.num_bytes) if self.num_bytes else None, machine)


def list_models(name: HubName, on_note: Callable[[str], None]) -> list[RemoteModel]:
    """Return the models of a repository, from the hub. Raises ModelNotFound and DownloadFailed."""
    if is_offline():
        raise DownloadFailed(
            f"offline, so {name.repository} cannot be listed: name a file that is here"
            " (`specchat list`), or pull again without --offline"
        )
    policy = RetryPolicy(name, LIST_WAITS, threading.Event(), on_note)
    models = models_of(name, policy.run(lambda: list_files(name.repository, name.revision)))
    if not models:
        where = f"{name.repository}/{name.folder}" if name.folder else name.repository
        raise ModelNotFound(
            f"{where} has no GGUF model: look for a repository whose name ends in GGUF, often by"
            " another organization"
        )
    return models


def models_of(name: HubName, files: Iterable[ListedFile]) -> list[RemoteModel]:
    """Return the models among a repository's files, in their order.

    Left out are what cannot be used alone (projectors, adapters, heads, parts but the first), and
    what is outside the folder of the name.
    """
    sizes = {each.path: each.num_bytes for each in files}
    found = []
    for path in sizes:
        parent, _, file = path.rpartition("/")
        parts = [f"{parent}/{part}".removeprefix("/") for part in split_names(file)]
        is_inside = not name.folder or f"{parent}/".startswith(f"{name.folder}/")
        is_alone = NO_MODEL.search(file) or ADAPTER.search(file)
        if is_alone or not is_inside or path != parts[0] or not sizes.keys() >= set(parts):
            continue
        of_parts = [sizes[part] for part in parts]
        total = sum(size or 0 for size in of_parts) if all(of_parts) else None
        reference = Reference(name.repository, path, name.revision)
        found.append(RemoteModel(reference, quantisation_in(file), total))
    return found


def named(name: HubName, models: Sequence[RemoteModel]) -> RemoteModel:
    """Return the model whose quantization a name states; it may also state a part of its file.

    Raises ModelNotFound, which lists the models, if there is none or more than one.
    """
    wanted = name.quantisation.lower().removesuffix(".gguf")
    stems = {each: each.reference.name.lower().removesuffix(".gguf") for each in models}
    same = [each for each in models if wanted in {each.quantisation.lower(), stems[each]}]
    longer = [each for each in models if re.search(rf"(^|[-_.]){re.escape(wanted)}([-_.]|$)",
                                                   stems[each])]  # fmt: skip
    found = same or longer
    if len(found) == 1:
        return found[0]
    several = f"has several: name one with its file, {name.repository}/FILE; it has"
    problem = several if found else "is not in the repository, which has"
    shown = ", ".join(each.reference.file if found else each.label
                      for each in (found or models)[:MOST_SHOWN])  # fmt: skip
    raise ModelNotFound(f"{name} {problem} {shown or 'no GGUF model'}")


def best_of(models: Sequence[RemoteModel], machine: Machine) -> RemoteModel | None:
    """Return the best model for a machine; None if none fits, or if there is none."""
    fits = {each: each.fit(machine) for each in models}
    on_gpu = [each for each in models if fits[each] == "fits the GPU"]
    quick = [each for each in on_gpu if _bits(each) <= ENOUGH_BITS] or on_gpu
    if quick:
        return max(quick, key=lambda each: (each.num_bytes or 0, each.quantisation == USUAL))
    usable = [each for each in models if fits[each] != "too large"]
    return min(usable, key=_place_on_cpu, default=None)


def rows(models: Sequence[RemoteModel], machine: Machine) -> list[str]:
    """Return a line for each model: quantization, size and fit, the smallest first."""
    by_size = sorted(models, key=lambda each: (each.num_bytes or 0, each.reference.file))
    width = max((len(each.label) for each in models), default=0)
    return [
        f"{each.label:<{width}}  {size_text(each.num_bytes) if each.num_bytes else '?':>8}"
        f"  {_fit_text(each.fit(machine))}".rstrip()
        for each in by_size
    ]


def _fit_text(fit: Fit) -> str:
    return "" if fit == "unknown" else fit


def _place_on_cpu(model: RemoteModel) -> tuple[int, bool, int]:
    bits = _bits(model)
    place = ORDER_ON_CPU.index(bits) if bits in ORDER_ON_CPU else len(ORDER_ON_CPU)
    return place, model.quantisation != USUAL, -(model.num_bytes or 0)


def _bits(model: RemoteModel) -> int:
    """Return the bits a weight of a model, as its quantization says; 0 if it does not."""
    found = re.search(r"\d+", model.quantisation)
    return int(found[0]) if found else 0
