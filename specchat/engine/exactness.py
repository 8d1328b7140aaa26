"""Exactness of a loaded target: which drafts it verifies with the bits of plain decoding.

What is measured depends on how the model is loaded, so it is kept by that.
"""

from dataclasses import replace
from functools import partial

from specchat.engine.api import EngineFacts, ProgressReport
from specchat.engine.loader import LoadedPair
from specchat.llama.exact_costs import exact_costs, longest_cheap
from specchat.llama.exact_passes import (
    LONGEST_PASS,
    depths_of,
    has_choice,
    leave_out_tinyblas,
    longest_exact_pass,
    without_tinyblas,
)
from specchat.llama.library import build
from specchat.pacing.exactness_cache import MOST_TRIES, Exactness, ExactnessCache

MOST_SECONDS = {"auto": 2.0, "on": 15.0}
"""How long passes of a new model are compared while it is loaded: what is not reached is not
drafted with "on". With "auto" it only decides about kernels, so it may not hold up the first answer
for long."""
MOST_SECONDS_OF_COSTS = 4.0
NOT_EXACT = (
    "no pass over several tokens gives the same bits as single ones here, and --exact is on: use"
    " --exact auto"
)


def facts_with_exactness(pair: LoadedPair, report: ProgressReport) -> EngineFacts:
    """Return a pair's facts with its exact draft length, by which `--exact on` limits drafts.

    It is read from the cache or measured; `report` may stop that.
    """
    facts, loading = pair.facts, pair.loading
    is_wanted = loading.exact == "on" or (loading.exact == "auto" and loading.learn)
    if not is_wanted or facts.speculation_off_reason:
        return facts
    found = _exactness(pair, report)
    leave_out_tinyblas(found.longest)
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
    """Read or measure the target's longest exact pass, and what exact kernels cost.

    With "auto", exact kernels are only taken where they are cheap.
    """
    loading = pair.loading
    cache = ExactnessCache(loading.target) if loading.learn else None
    way = f"--exact {loading.exact}, {_way(pair)}"
    known = cache.read(build(), way) if cache else None
    if known and known.tries >= MOST_TRIES:
        return known
    most_seconds, on_share = MOST_SECONDS[loading.exact], partial(report, "comparing")
    with without_tinyblas(LONGEST_PASS):
        longest, is_complete = longest_exact_pass(pair.context, most_seconds, on_share)
    costs = exact_costs(pair.context, longest, MOST_SECONDS_OF_COSTS)
    is_complete &= bool(costs) or longest == 1 or not has_choice()
    if loading.exact == "auto":
        longest = longest_cheap(costs, longest)
    found = Exactness(longest, tuple(costs.items())).after(known, is_complete=is_complete)
    if cache:
        cache.write(build(), way, found)
    return found


def _way(pair: LoadedPair) -> str:
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
