"""How well a pair fits this machine, and which one to begin with, from sizes alone.

Rough, because it must be quick and the files need not be here: weights, and what a context of
usual length takes beside them. Loading a pair plans to the byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from specchat.catalogue.catalogue_file import Entry
from specchat.catalogue.installed import bytes_of_pair
from specchat.planning.machine import Machine

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
    if need is None:
        return "not known"
    if machine.gpus and need <= machine.room_on_gpus:
        return "fits the GPU"
    if machine.free is None:
        return "not known"
    if machine.gpus and need <= machine.room_in_all:
        return "part of it on the GPU"
    return "fits in memory" if need <= machine.free else "too large"


def recommend(entries: Iterable[Entry], machine: Machine) -> Entry | None:
    """Return the pair to begin with: the largest of the recommended ones that runs well here.

    One that is whole on the GPU before one on the CPU, where larger ones are slow; where none of
    them fits, the largest of all other pairs of the hub that does. The smallest of the recommended
    ones where nobody knows what is free; None where no pair fits.
    """
    usable = [each for each in entries if each.references and not each.experimental]
    recommended = [each for each in usable if each.is_recommended]
    found = _largest_that_fits(recommended, machine) or _largest_that_fits(usable, machine)
    if found is None and machine.free is None:
        return min(recommended, key=_order_of_size, default=None)
    return found


def _largest_that_fits(entries: Iterable[Entry], machine: Machine) -> Entry | None:
    fits = [(judge(need_of(each), machine), each) for each in entries]
    on_gpu = [each for fit, each in fits if fit == "fits the GPU"]
    in_memory = [each for fit, each in fits if fit not in {"too large", "not known"}]
    quick = [each for each in in_memory if _order_of_size(each) <= LARGEST_ON_CPU]
    return max(on_gpu or quick, key=_order_of_size, default=None)


def _order_of_size(entry: Entry) -> float:
    return size_of(entry) or 0.0
