"""Exactness of a loaded target: which drafts it verifies with the bits of plain decoding.

What is measured depends on how the model is loaded, so it is kept by that.
"""

from dataclasses import replace
from functools import partial

from specchat.engine.api import EngineFacts, ProgressReport
from specchat.engine.loader import LoadedPair
from specchat.llama.exact_passes import (
    choose_kernels,
    depths_of,
    longest_exact_pass,
    longest_without_tinyblas,
)
from specchat.llama.library import build
from specchat.pacing.exactness_cache import ExactnessCache

MOST_SECONDS = {"auto": 2.0, "on": 15.0}
"""How long passes of a new model are compared while it is loaded: what is not reached is not
drafted with "on". With "auto" the result is only shown, so it may not hold up the first answer."""
NOT_EXACT = (
    "no pass over several tokens gives the same bits as single ones here, and --exact is on: use"
    " --exact auto"
)


def facts_with_exactness(pair: LoadedPair, report: ProgressReport) -> EngineFacts:
    """Return a pair's facts with its exact draft length, by which `--exact on` limits drafts.

    It is read from the cache or measured; `report` may stop that.
    """
    facts, loading = pair.facts, pair.loading
    choose_kernels(loading.exact)
    is_wanted = loading.exact == "on" or (loading.exact == "auto" and loading.learn)
    if not is_wanted or facts.speculation_off_reason:
        return facts
    longest = _longest_exact_pass(pair, report)
    facts = replace(facts, exact_draft=longest - 1)
    if loading.exact == "auto":
        return facts
    pair.context.longest_replay = longest
    off = NOT_EXACT if longest == 1 else None
    return replace(
        facts,
        longest_draft=min(facts.longest_draft, longest - 1),
        speculation_off_reason=off,
        draft_off_reason=off or facts.draft_off_reason,
    )


def _longest_exact_pass(pair: LoadedPair, report: ProgressReport) -> int:
    """Read or measure the longest exact pass of the target."""
    loading = pair.loading
    cache = ExactnessCache(loading.target) if loading.learn else None
    way = _way(pair)
    known = cache.read(build(), way) if cache else 0
    if known:
        return known
    most_seconds = MOST_SECONDS[loading.exact]
    longest = longest_exact_pass(pair.context, most_seconds, partial(report, "comparing"))
    if cache:
        cache.write(build(), way, longest)
    return longest


def _way(pair: LoadedPair) -> str:
    """Return how the target is loaded, in words."""
    shape, plan = pair.context.shape, pair.plan
    depth = max(depths_of(pair.context), default=0)
    parts = [
        f"flash attention {'on' if shape.flash else 'off'}",
        "weights repacked" if pair.is_repacked else "weights as in the file",
        f"KV cache in {'/'.join(dict.fromkeys((shape.key_type, shape.value_type)))}",
        f"{depth} tokens deep",
        f"tinyBLAS from {longest_without_tinyblas() + 1} tokens on",
    ]
    if plan.gpu_layers and pair.gpus:
        parts.append(f"{plan.gpu_layers} layers on {', '.join(pair.gpus)}")
    return ", ".join(parts)
