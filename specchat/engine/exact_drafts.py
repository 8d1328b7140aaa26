"""Finds the longest draft that a loaded target verifies with the bits of plain decoding."""

from dataclasses import replace
from functools import partial

from specchat.engine.api import EngineFacts, ProgressReport
from specchat.engine.loader import LoadedPair
from specchat.llama import tinyblas
from specchat.llama.library import build
from specchat.passes.exact_passes import depths_of
from specchat.passes.exactness import Exactness, measure_exactness
from specchat.passes.learned_cache import LearnedCache

NOT_EXACT = (
    "--exact is on, but no pass over several tokens gives the same bits as single-token passes"
    " here: use --exact auto"
)


def facts_with_exactness(pair: LoadedPair, report: ProgressReport) -> EngineFacts:
    """Return a pair's facts with its exact draft length, which limits drafts with `--exact on`.

    The length is read from the cache or measured; `report` may stop the measurement.
    """
    facts, loading = pair.facts, pair.loading
    is_wanted = loading.exact == "on" or (loading.exact == "auto" and loading.learn)
    if not is_wanted or facts.speculation_off_reason:
        return facts
    found = _exactness(pair, report)
    tinyblas.leave_out(found.longest)
    facts = replace(facts, exact_draft=found.longest - 1, exact_cost=found.largest_cost)
    if loading.exact == "auto":
        return facts
    pair.context.longest_replay = found.longest
    off = NOT_EXACT if found.longest == 1 else None
    return replace(
        facts,
        longest_draft=min(facts.longest_draft, found.longest - 1),
        speculation_off_reason=off,
        draft_off_reason=off or facts.draft_off_reason,
    )


def _exactness(pair: LoadedPair, report: ProgressReport) -> Exactness:
    """Read or measure the exactness of the loaded target's passes."""
    exact, on_share = pair.loading.exact, partial(report, "comparing")
    if not pair.loading.learn:
        return measure_exactness(pair.context, tinyblas, exact, None, on_share)
    cache, way = LearnedCache(pair.loading.target, build()), f"--exact {exact}, {_way(pair)}"
    known = cache.exactness().get(way)
    if known is None or not known.is_final:
        known = measure_exactness(pair.context, tinyblas, exact, known, on_share)
        cache.keep_exactness(way, known)
    return known


def _way(pair: LoadedPair) -> str:
    """Return the loading options that exactness depends on, as `specchat show` prints them."""
    shape, plan = pair.context.shape, pair.plan
    depth = max(depths_of(pair.context), default=0)
    parts = [
        f"flash attention {'on' if shape.flash else 'off'}",
        "weights repacked" if pair.is_repacked else "weights as in the file",
        f"KV cache in {'/'.join(dict.fromkeys((shape.key_type, shape.value_type)))}",
        f"{depth} tokens deep",
    ]
    if plan.gpu_layers and pair.gpus:
        parts.append(f"{plan.gpu_layers} layers on {', '.join(pair.gpus)}")
    return ", ".join(parts)
