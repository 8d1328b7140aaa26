"""How much memory a pair needs, whether it fits this machine, and which pair to start with.

The headers of installed files give the memory exactly. Before that, it is estimated as the size of
the weights plus the default context.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from specchat.catalogue.entry import Entry
from specchat.gguf.model_files import read_pair
from specchat.hub.pins import pinned
from specchat.hub.references import Reference
from specchat.options.declarations import LoadOptions
from specchat.planning.context_shape import ContextShape
from specchat.planning.device import Device, Machine, planned_gpus
from specchat.planning.forecast import free_rooms
from specchat.planning.measured_times import with_bandwidths
from specchat.planning.memory import HOST, Sizes
from specchat.planning.planner import Planner
from specchat.planning.text_copies import num_states, room_for_states
from specchat.planning.token_time import LEAST_BYTES
from specchat.wording import size_text

Fit: TypeAlias = Literal[
    "fits the GPU", "fits in memory", "partly on the GPU", "too large", "unknown"
]

CONTEXT = 8192
CONTEXT_BYTES, CONTEXT_SHARE = 2e9, 0.07
"""The memory of such a context for two models: some bytes, at most the size of the weights, plus a
share of the weights."""
LEAST_RATE = 6.0
"""Tokens per second of a pair that is recommended: people read about 5."""
CORE_BANDWIDTH = 8e9
"""Bytes of weights that a core is taken to get through per second, until passes show more."""
GB = 1e9


def size_of(entry: Entry) -> float:
    """Return the size of a pair's files, exact or rough, 0 if unknown."""
    return entry.num_bytes or GB * (entry.about_gb or 0)


def size_of_pair(num_bytes: int | None, about_gb: float | None) -> str:
    """Return a size for display: exact, rough, or a question mark."""
    if num_bytes is None:
        return f"~{about_gb:g} GB" if about_gb else "?"
    return size_text(num_bytes) if num_bytes else "-"


def need_of(entry: Entry) -> float | None:
    """Return the memory that a pair needs with a context of 8192 tokens, None if unknown."""
    sizes = [gb for length, gb in sorted(entry.memory_gb.items()) if length <= CONTEXT]
    size = size_of(entry)
    return sizes[-1] * GB if sizes else need_of_size(size) if size else None


def need_of_size(num_bytes: float) -> float:
    """Return the estimated memory of models of this size with such a context."""
    return num_bytes * (1 + CONTEXT_SHARE) + min(CONTEXT_BYTES, num_bytes)


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory that models need together, with contexts of `ctx` tokens."""

    ctx: int
    num_bytes: int
    is_exact: bool


def memory_of(target: Path, draft: Path | None = None) -> list[Memory]:
    """Return the memory of a pair with the default context and with the longest one.

    Raises as `read_pair` does.
    """
    model, drafting = read_pair(target, draft)
    sizes, draft_sizes = Sizes(model), Sizes(drafting) if drafting else None
    longest = sizes.header.training_context or CONTEXT
    memories = []
    for ctx in sorted({min(CONTEXT, longest), longest}):
        plan = Planner(sizes, draft_sizes, (), LoadOptions(ctx=ctx)).first()
        memories.append(Memory(ctx, plan.needs[HOST].total, is_exact=True))
    return memories


@dataclass(frozen=True, slots=True)
class States:
    """The states that are kept to go back in a text: the bytes of one, and how many there are."""

    num_bytes: int
    num_kept: int


def states_of(target: Path, draft: Path | None, room: int) -> States | None:
    """Return the states of a target, beside those of its draft, that fit the room for copies.

    Returns None for a target that any tail can be removed from. Raises as `read_pair` does.
    """
    models = [Sizes(header) for header in read_pair(target, draft) if header]
    shape = ContextShape(min(CONTEXT, models[0].header.training_context or CONTEXT))
    size, *others = (0 if model.kind.is_head else model.state(shape) for model in models)
    num_saving = 1 + sum(other > 0 for other in others)
    return States(size, num_states(room_for_states(room, num_saving), size)) if size else None


def memory_of_entry(entry: Entry) -> list[Memory]:
    """Return the catalogue's figures for a pair, or else an estimate from its size."""
    sizes = {ctx: gb * GB for ctx, gb in sorted(entry.memory_gb.items())}
    if not sizes and (need := need_of(entry)):
        sizes = {CONTEXT: need}
    return [Memory(ctx, int(size), is_exact=False) for ctx, size in sizes.items()]


def judge(need: float | None, machine: Machine) -> Fit:
    """Return how well models that need this much memory fit a machine."""
    on_gpus, in_all = free_rooms(replace(machine, free=machine.free or 0))
    if need is not None and need <= on_gpus:
        return "fits the GPU"
    if need is None or machine.free is None:
        return "unknown"
    if need > in_all:
        return "too large"
    return "partly on the GPU" if on_gpus else "fits in memory"


def recommend(entries: Iterable[Entry], machine: Machine) -> Entry | None:
    """Return the pair to start with: the largest recommended one that runs well, or None.

    Pairs that fit the GPU come before those on the CPU, which run well if they are predicted to be
    faster than people read. If no recommended pair does, the largest other one is returned, or else
    the fastest that fits; if the free memory is not known, the smallest recommended one.
    """
    usable = [entry for entry in entries if entry.references]
    recommended = [entry for entry in usable if entry.is_recommended]
    best = _largest_that_runs_well(recommended, machine) or _largest_that_runs_well(usable, machine)
    best = best or min(_in_memory(usable, machine), key=_bytes_per_token, default=None)
    if best is None and machine.free is None:
        return min(recommended, key=size_of, default=None)
    return best


def _in_memory(entries: Iterable[Entry], machine: Machine) -> list[Entry]:
    return [
        entry for entry in entries if judge(need_of(entry), machine) not in {"too large", "unknown"}
    ]


def _largest_that_runs_well(entries: Iterable[Entry], machine: Machine) -> Entry | None:
    quick = [
        entry
        for entry in _in_memory(entries, machine)
        if _bandwidth(need_of(entry), machine) >= LEAST_RATE * _bytes_per_token(entry)
    ]
    on_gpu = [entry for entry in quick if judge(need_of(entry), machine) == "fits the GPU"]
    return max(on_gpu or quick, key=size_of, default=None)


def predicted_rate(entry: Entry, machine: Machine) -> float:
    """Return about how many tokens per second a pair decodes without drafts; 0.0 if unknown."""
    return rate_of_size(_bytes_per_token(entry), need_of(entry), machine)


def rate_of_size(bytes_per_token: float, need: float | None, machine: Machine) -> float:
    """Return the tokens per second at which a target is read, 0.0 if unknown.

    That of a pair that is split between GPUs and processors is not known before it is loaded, and
    that of a tiny one does not follow from its size.
    """
    is_whole = judge(need, machine) in {"fits the GPU", "fits in memory"}
    if bytes_per_token < LEAST_BYTES or not is_whole:
        return 0.0
    return _bandwidth(need, machine) / bytes_per_token


def _bandwidth(need: float | None, machine: Machine) -> float:
    """Return the bytes per second at which a pair's weights are read where it fits."""
    if judge(need, machine) != "fits the GPU":
        return _bandwidth_of_host(machine)
    return min(gpu.bandwidth for gpu in with_bandwidths(planned_gpus(machine.gpus or ())))


def _bytes_per_token(entry: Entry) -> float:
    """Return the bytes that a pass over one token reads, 0.0 if unknown."""
    target = entry.target
    parts = [pinned(part).size for part in target.parts] if isinstance(target, Reference) else []
    size = sum(filter(None, parts)) if parts and all(parts) else size_of(entry)
    return size * entry.active_share


def _bandwidth_of_host(machine: Machine) -> float:
    """Return the bytes per second at which processors get through weights here."""
    (host,) = with_bandwidths([Device("CPU", "", "cpu")])
    few = machine.num_cores * CORE_BANDWIDTH
    return host.measured_bandwidth or min(host.bandwidth, few or host.bandwidth)
