"""The memory of models with their contexts: exact from their headers, else an estimate."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.catalogue.entry import Entry
from specchat.catalogue.fit import CONTEXT, GB, need_of
from specchat.gguf.reader import read_header
from specchat.options import LONGEST_DRAFT
from specchat.planning.context_shape import ContextShape, shape_context
from specchat.planning.memory import HOST, Sizes


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes that models need together with contexts of `ctx` tokens."""

    ctx: int
    num_bytes: int
    is_exact: bool


def memory_of(target: Path, draft: Path | None = None) -> list[Memory]:
    """Return the memory of a pair with the default context and with the target's longest.

    Raises as `read_header` does.
    """
    sizes = [Sizes(read_header(path)) for path in (target, draft) if path]
    longest = sizes[0].header.training_context or CONTEXT
    return [
        Memory(ctx, _total(sizes, ctx), is_exact=True)
        for ctx in sorted({min(CONTEXT, longest), longest})
    ]


def memory_of_entry(entry: Entry) -> list[Memory]:
    """Return the catalogue's figures for a pair, else an estimate from its size."""
    if entry.memory_gb:
        return [
            Memory(ctx, int(gb * GB), is_exact=False) for ctx, gb in sorted(entry.memory_gb.items())
        ]
    need = need_of(entry)
    return [Memory(CONTEXT, int(need), is_exact=False)] if need else []


def _total(models: Sequence[Sizes], ctx: int) -> int:
    """Return the bytes of a target and its draft model on one device."""
    total = 0
    for number, model in enumerate(models):
        shape = shape_context(
            model.layout,
            ContextShape(ctx),
            flash_attention="auto",
            rollback_length=0 if number else LONGEST_DRAFT,
            is_on_gpu=False,
        )
        (need,) = model.needs(shape, (HOST,) * (model.num_layers + 1))
        total += need.total
    return total
