"""How well a pair fits this machine, and which one to begin with, from sizes alone.

Rough, because it must be quick and the files need not be here: weights, and what a context of
usual length takes beside them. Loading a pair plans to the byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from specchat.catalogue.entries import Entry
from specchat.catalogue.machine import Machine
from specchat.catalogue.presence import bytes_of_pair

__all__ = ["CONTEXT", "Fit", "judge", "need_of", "need_of_size", "recommend", "size_of"]

Fit: TypeAlias = Literal[
    "fits the GPU", "fits in memory", "part of it on the GPU", "too large", "not known"
]

CONTEXT = 8192
CONTEXT_BYTES, CONTEXT_SHARE = 2e9, 0.07
"""What so many tokens take for a target and a draft model, and the buffers they are computed in:
so many bytes, but no more than the weights, and so much more for each byte of these."""
LARGEST_ON_CPU = 6e9
"""Bytes of weights: a CPU reads them all for every token, and larger models are slow to read."""
GB = 1e9


def size_of(entry: Entry) -> float | None:
    """Return the bytes of a pair's files: as known, else roughly; None where nobody said."""
    return bytes_of_pair(entry) or (entry.about_gb * GB if entry.about_gb else None)


def need_of(entry: Entry) -> float | None:
    """Return the bytes of memory a pair takes with a context of 8192 tokens, as far as is known."""
    told = [gb for length, gb in sorted(entry.memory_gb.items()) if length <= CONTEXT]
    size = size_of(entry)
    return told[-1] * GB if told else need_of_size(size) if size else None


def need_of_size(num_bytes: float) -> float:
    """Return the bytes of memory that models of this size take with such a context, roughly."""
    return num_bytes * (1 + CONTEXT_SHARE) + min(CONTEXT_BYTES, num_bytes)


def judge(need: float | None, machine: Machine) -> Fit:
    """Say how well models that need so many bytes fit a machine."""
    if need is None or machine.free is None:
        return "not known"
    if machine.gpus and need <= machine.free_on_gpus:
        return "fits the GPU"
    if machine.gpus and need <= machine.free_in_all:
        return "part of it on the GPU"
    return "fits in memory" if need <= machine.free else "too large"


def recommend(entries: Iterable[Entry], machine: Machine) -> Entry | None:
    """Return the pair to begin with: the largest of the recommended ones that runs well here.

    One that is whole on the GPU before one on the CPU, where larger ones are slow; None where no
    pair fits.
    """
    usable = (each for each in entries if each.is_recommended and not each.experimental)
    sizes = {each.name: (size_of(each) or 0, each) for each in usable}
    fits = {name: judge(need_of(each), machine) for name, (_, each) in sizes.items()}
    on_gpu = [sizes[name] for name, fit in fits.items() if fit == "fits the GPU"]
    quick = [name for name, (size, _) in sizes.items() if size <= LARGEST_ON_CPU]
    in_memory = [sizes[name] for name in quick if fits[name] not in {"too large", "not known"}]
    return max(on_gpu or in_memory, key=lambda found: found[0], default=(0, None))[1]
