"""The longest draft that a loaded target verifies with the bits of plain decoding."""

from collections.abc import Callable
from dataclasses import replace

from specchat.engine.api import EngineFacts
from specchat.engine.loaded_pair import LoadedPair
from specchat.llama import tinyblas
from specchat.llama.library import build
from specchat.passes.exact_passes import LONGEST_COMPARED, depths_of
from specchat.passes.exactness_measurement import ExactnessMeasurement
from specchat.passes.learned_cache import LearnedCache

NOT_EXACT = (
    "--exact is on, but no pass over several tokens gives the same bits as single-token passes"
    " here: use --exact auto"
)
NOT_MEASURED = (
    "the answer must be exact, and which drafts are exact here is not measured yet:"
    " `specchat check` measures it"
)
MOST_SECONDS_NEEDED = 10.0
"""How long passes are compared where an answer waits for that."""


class ExactDrafts:
    """The drafts of a pair that are exact: read from the cache, or measured on request.

    With `--exact on` nothing is drafted until they are known. Exact kernels are used from the
    start, so measuring changes no text. With "auto", answers that must repeat use them too.
    """

    def __init__(self, pair: LoadedPair) -> None:
        """Read what the cache has on a pair."""
        loading = pair.loading
        self._is_wanted = loading.exact != "off" and not pair.facts.speculation_off_reason
        self._exact, self._way = loading.exact, f"--exact {loading.exact}, {way_of(pair)}"
        self._cache = LearnedCache(loading.target, build()) if loading.learn else None
        self.exactness = self._cache.exactness().get(self._way) if self._cache else None
        self.is_settled = not self._is_wanted or bool(self.exactness and self.exactness.is_final)
        self._measurement: ExactnessMeasurement | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether nothing may be drafted until it is known which drafts are exact."""
        return self._is_wanted and self._exact == "on" and self.exactness is None

    def measure(
        self, pair: LoadedPair, on_share: Callable[[float], None], *, is_needed: bool
    ) -> None:
        """Measure with a pair whose memory is empty; an exception from `on_share` stops this.

        If it `is_needed`, an answer waits for it: costs are then left for later.
        """
        limit = MOST_SECONDS_NEEDED if is_needed else None
        if self._measurement is None or self._measurement.most_seconds != limit:
            self._measurement = ExactnessMeasurement(
                self._exact, self.exactness, most_seconds=limit
            )
        self.exactness = self._measurement.run(pair.context, tinyblas, on_share)
        self._measurement = None
        self.is_settled = self.exactness.is_final
        if self._cache:
            self._cache.keep_exactness(self._way, self.exactness)

    def apply(self, pair: LoadedPair, facts: EngineFacts) -> EngineFacts:
        """Choose the kernels by what is known, and return the facts with the exact drafts."""
        if not self._is_wanted:
            return facts
        is_on, passes = self._exact == "on", self.exactness
        if is_on:
            tinyblas.leave_out(LONGEST_COMPARED)
        elif passes:
            tinyblas.leave_out(passes.usual)
        facts = replace(facts, repeatable_draft=None)
        if passes:
            if passes.longest > 1 or passes.is_final:
                facts = replace(facts, repeatable_draft=passes.longest - 1)
            facts = replace(facts, exact_draft=passes.usual - 1, exact_cost=passes.largest_cost)
        if not is_on:
            return facts
        longest = passes.longest if passes else 1
        for context in (pair.context, *(text for text, _ in pair.beside)):
            context.longest_replay = longest
        off = None if longest > 1 else NOT_EXACT if passes else NOT_MEASURED
        return replace(
            facts,
            longest_draft=min(facts.longest_draft, longest - 1),
            speculation_off_reason=off,
            draft_off_reason=off or facts.draft_off_reason,
        )


def way_of(pair: LoadedPair) -> str:
    """Return the loading options that exactness depends on, as `specchat show` prints them."""
    shape, plan = pair.context.shape, pair.plan
    depth = max(depths_of(pair.context), default=0)
    parts = [
        f"flash attention {'on' if shape.flash else 'off'}",
        "weights repacked" if pair.is_repacked else "weights as in the file",
        f"KV cache in {shape.cache_type}",
        f"{depth} tokens deep",
    ]
    if shape.flash and not plan.is_on_gpus:  # it adds up as many parts of a text as threads
        parts.append(f"{pair.num_threads} threads")
    if shape.num_texts > 1:  # each in a cache of its own
        parts.append("several texts")
    if plan.gpu_layers and pair.gpus:
        parts.append(f"{plan.gpu_layers} layers on {', '.join(pair.gpus)}")
    if plan.on_host:
        parts.append(f"{plan.on_host} on the CPU")
    return ", ".join(parts)
