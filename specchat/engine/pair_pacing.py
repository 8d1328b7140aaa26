"""The pacing of a loaded pair: costs of passes and acceptance, kept from answer to answer."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from specchat import drafter_registry
from specchat.decoding.ports import LanguageModel
from specchat.engine.loaded_pair import LoadedPair
from specchat.llama import tinyblas
from specchat.llama.context import Context
from specchat.llama.draft_context import DraftContext
from specchat.llama.library import build
from specchat.options.declarations import GenerateOptions, LoadOptions
from specchat.pacing.knowledge import LONGEST_KNOWN, Knowledge, SplitTarget
from specchat.pacing.pacer import LearningPacer
from specchat.passes.learned_cache import OWN_HEAD, LearnedCache, LearnedPair, file_key
from specchat.passes.pass_costs import ON_GPU, PLAIN, PassCosts, Stair, usual_stair
from specchat.passes.pass_measurement import (
    DRAFT_LENGTHS,
    HEAD_LENGTHS,
    NUM_ON_GPU,
    NUM_REPEATS,
    TARGET_LENGTHS,
    PassTimes,
    measure_passes,
    measure_plain,
)
from specchat.planning.host_resources import repacks_weights
from specchat.planning.measured_times import note_pass
from specchat.planning.plan_words import layers_on_cpu
from specchat.requests.progress import ProgressReport

Pacers: TypeAlias = dict[tuple[str, bool, int, bool], LearningPacer]
"""The pacers of answers by the origin of their draft passes, whether they are greedy, the place of
their text, and whether they share their passes."""
ALONE = (0,)
"""The company of an answer by itself, whose number is not known."""
TARGET = "target"
KERNELS = "without tinyBLAS"
"""The part of a subject that answers may change."""
MILLISECOND = 1e-3
LEAST_JOINT_GAIN = 1.03
"""How much faster several answers must decode together than in turns, where each waits for none."""
MOST_SECONDS = 1.2
"""How long the passes of a new model may be measured: of a pair, two and a half seconds in all."""


class PairPacing:
    """The figures of a pair, read from the cache or measured, and the pacers that use them."""

    def __init__(self, pair: LoadedPair) -> None:
        """Read what the cache has on a pair."""
        self._pair = pair
        self._draft_key = file_key(pair.loading.draft)  # the file may be gone when it is saved
        self.cache = LearnedCache(pair.loading.target, build()) if pair.loading.learn else None
        self._longest_draft = pair.context.longest_draft
        self.subject = _subject(pair)
        self._times: dict[str, PassTimes] = {}
        self._others: dict[int, tuple[Knowledge, Pacers, dict[str, PassTimes]]] = {}
        self.knowledge: Knowledge
        self.pacers: Pacers
        self._begin_with(self.cache.pair(self.subject) if self.cache else LearnedPair())

    def follow_kernels(self) -> None:
        """Continue with the figures of the kernels in use, or else learn them."""
        before, now = self.subject[KERNELS], tinyblas.longest_without()
        if now == before:
            return
        self._others[before] = self.knowledge, self.pacers, self._times
        self.subject = subject = {**self.subject, KERNELS: now}
        if now in self._others:
            self.knowledge, self.pacers, self._times = self._others.pop(now)
            return
        self._times = {}
        record = self.cache.pair(subject) if self.cache else LearnedPair()
        if not record.target:
            record = self.knowledge.as_record()
            record.target, record.drafts = [], {}
        self._begin_with(record)

    def _begin_with(self, learned: LearnedPair) -> None:
        pair = self._pair
        self.knowledge = Knowledge(learned, _usual_stair(pair))
        self.knowledge.split = _split_target(pair)
        kind = pair.files.kind if pair.draft_context else None
        self.knowledge.drafts_blocks = bool(kind and kind.drafts_blocks)
        if self.knowledge.drafts_blocks:
            longest = getattr(pair.draft_context, "longest_block", self.knowledge.longest)
            self.knowledge.longest = min(self.knowledge.longest, longest)
        self.knowledge.reads_accepted = bool(kind and kind.rereads_accepted)
        self.pacers = {}

    def pacer(
        self,
        name: str,
        options: GenerateOptions,
        place: int = 0,
        company: Sequence[int] = ALONE,
        *,
        is_replay: bool = False,
    ) -> LearningPacer | None:
        """Return the pacer that learns from answer to answer; None for a fixed draft length.

        `company` are the numbers of the answers that share its passes, itself among them. What is
        accepted in a replay is no news of the drafter.
        """
        if options.draft_length != "auto":
            return None
        is_greedy = options.is_greedy
        needs = drafter_registry.DRAFTERS[name].needs
        origin = drafter_registry.pass_origin(needs) if needs else ""
        kind = origin, is_greedy, place, len(company) > 1
        if kind not in self.pacers:
            knowledge = self.knowledge
            if len(company) > 1:
                always_pads = self._pair.context.rollback_kind.pads_together
                knowledge = knowledge.shared(always_pads=always_pads)
            pacer = LearningPacer(knowledge, is_greedy=is_greedy, pass_origin=origin)
            self.pacers[kind] = pacer
        pacer = self.pacers[kind]
        pacer.is_replay = is_replay
        pacer.join(company)
        return pacer

    def seconds(self, num_tokens: int) -> float:
        """Return what a pass takes, relative to others."""
        return self.knowledge.target.seconds(num_tokens, 0)

    def seconds_apart(self, num_tokens: int, depth: int) -> float:
        """Return the seconds of a pass of one answer now, 0 if passes were not measured.

        How fast the machine is now, the latest passes of answers by themselves have shown.
        """
        knowledge = self.knowledge
        is_known = knowledge.target.is_known
        return knowledge.verifying.expected(num_tokens, depth) if is_known else 0.0

    def pass_costs(self, depth: int) -> dict[int, float]:
        """Return the seconds of a target pass at a depth, by its number of tokens."""
        verifying = self.knowledge.verifying
        if not verifying.is_known:
            return {}
        counts = range(1, self._longest_draft + 2)
        return {count: verifying.seconds(count, depth) for count in counts}

    def best_at_once(self, most: int) -> int:
        """Return how many answers decode fastest together, by what passes over as many tokens cost.

        As many as possible while that is not known.
        """
        costs = self.knowledge.target
        if not costs.is_known:
            return most
        rates = {count: count / costs.seconds(count, 0) for count in range(1, most + 1)}
        best = max(rates, key=lambda count: rates[count])
        return best if rates[best] > LEAST_JOINT_GAIN * rates[1] else 1

    def save(self) -> None:
        """Save what was learned."""
        if self.cache:
            learned = self.knowledge.as_record()
            described = _described(learned, self._pair, self._draft_key)
            self.cache.keep_pair(self.subject, described)

    @property
    def is_settled(self) -> bool:
        """Whether the passes of both models were measured."""
        knows_draft = self.knowledge.costs_of(self._origin).is_known
        return self.knowledge.target.is_known and (knows_draft or not self._pair.draft_context)

    @property
    def _origin(self) -> str:
        return drafter_registry.pass_origin(self._pair.draft_kind)

    def measure(self, pair: LoadedPair, report: ProgressReport) -> None:
        """Measure the costs of passes, unless they are known, with a pair whose memory is empty.

        `report` may stop that, and the next call continues from there. What a busy machine took is
        thrown away.
        """
        most_rows = pair.context.longest_draft + 1
        lengths: Sequence[int] = [length for length in TARGET_LENGTHS if length <= most_rows]
        prepare: Callable[[int], None] | None = None
        context: DraftContext = pair.context
        measured = [(TARGET, context, self.knowledge.target, lengths, most_rows, prepare)]
        if draft := pair.draft_context:
            lengths = DRAFT_LENGTHS
            if pair.files.kind and pair.files.kind.is_chain_head:
                lengths, prepare = HEAD_LENGTHS, partial(_let_states_wait, pair.context, draft)
            costs = self.knowledge.costs_of(self._origin)
            measured.append((self._origin, draft, costs, lengths, 1, prepare))
        unknown = [entry for entry in measured if not entry[2].is_known]
        for number, (name, context, costs, lengths, most_rows, prepare) in enumerate(unknown):

            def on_share(share: float, done: int = number) -> None:
                report("measuring", (done + share) / len(unknown))

            size = context.model.vocabulary.size
            repeats = NUM_ON_GPU if pair.uses_gpus else NUM_REPEATS
            limits = (lengths, most_rows, MOST_SECONDS)
            times = self._times.setdefault(name, PassTimes())
            is_measured = measure_passes(
                context, costs, size, *limits, on_share, prepare, times, repeats
            )
            if is_measured and name == TARGET:
                try:
                    measure_plain(context, costs, size, partial(on_share, 1.0))
                except BaseException:  # stopped: nothing is known until all is, lest it be kept
                    costs.begin_with({})
                    raise
            del self._times[name]
            if not is_measured:  # the machine is busy: another time
                continue
            self.knowledge.begin_anew()
            self.pacers = {}
            self.save()
            is_usual = pair.plan.is_repacked and pair.chooses_threads
            if self.cache and name == TARGET and is_usual:
                note_pass(pair.plan.reads, pair.devices, costs.seconds(PLAIN, 0))
        pair.context.prefill([])


def _usual_stair(pair: LoadedPair) -> Stair:
    """Return what passes usually cost with this kind of file on this kind of kernel."""
    header = pair.context.model.sizes.header
    return usual_stair(
        header.quantisation,
        is_on_gpu=bool(pair.plan.gpu_layers) and not pair.plan.on_host,
        is_repacked=pair.is_repacked and repacks_weights(),
        active_share=header.active_share,
    )


def _split_target(pair: LoadedPair) -> SplitTarget | None:
    """Return why a target's passes cost what they do, if it is split between CPU and GPUs.

    On GPUs alone they would cost what passes usually do there or, of a mixture, what they read.
    """
    plan, sizes = pair.plan, pair.context.model.sizes
    whole = sizes.num_layers + 1
    layers = [layers_on_cpu(plan, whole)] * (plan.gpu_layers < whole)
    on_cpu = layers + [str(plan.on_host)] * plan.is_placed
    if not plan.gpu_layers or not on_cpu:
        return None
    shape, devices = pair.context.shape, (1,) * whole
    reads = {
        count: sum(sizes.reads(shape, devices, num_tokens=count).num_bytes) for count in ON_GPU
    }
    stair = {count: max(cost, reads[count] / reads[1]) for count, cost in ON_GPU.items()}
    others = ", and each token reads other experts" * (sizes.header.active_share < 1)
    cause = f"because {' and '.join(on_cpu)} are on the CPU{others}"
    return SplitTarget(cause, PassCosts(LONGEST_KNOWN, stair))


def _let_states_wait(target: Context, head: LanguageModel, num_tokens: int) -> None:
    """Prepare a head for a pass over some tokens, as it would be within an answer.

    A single token mostly follows one that was just drafted: it is read with the head's own state,
    while the head's weights are still in the processor's caches. Several tokens were accepted
    together, and the target's states for them are waiting.
    """
    tokens = [index % target.model.vocabulary.size for index in range(num_tokens + 1)]
    target.prefill([])
    target.evaluate(tokens, 1)
    head.prefill(tokens[:1])
    for _ in range(2 if num_tokens == 1 else 0):
        head.evaluate(tokens[1:], 1)


def _round_trip_class(seconds: float) -> int:
    """Return how slow the network to the workers is, in powers of two of a millisecond.

    Every pass waits for the network, so costs are measured again on another one.
    """
    return round(math.log2(max(seconds, MILLISECOND) / MILLISECOND))


def _subject(pair: LoadedPair) -> dict[str, Any]:
    """Return what identifies this pair and this way of loading it."""
    loading = pair.loading
    paths = [path for path in (loading.target, loading.draft) if path]
    options = loading.values(LoadOptions)
    left_out = ("learn", "exact", "head", "cache_ram", "cache_disk", "at_once", "projector")
    for name in (*left_out, "draft_projector"):
        del options[name]
    files = [[str(path.resolve()), path.stat().st_size] for path in paths]
    plan, shape = pair.plan, pair.context.shape
    planned = {
        "ctx": 0,
        "flash_attention": shape.flash,
        "is_repacked": pair.is_repacked,
        "ubatch": shape.ubatch,
        "gpus": pair.gpus if pair.uses_gpus else (),
        "gpu_layers": plan.gpu_layers,
        "draft_gpu_layers": plan.draft_gpu_layers,
        "cache_type": plan.cache_type,
    }
    if plan.on_host:
        planned["on_cpu"] = str(plan.on_host)
    else:
        del options["on_cpu"]
    if loading.workers:
        planned["round trip"] = _round_trip_class(pair.workers.round_trip)
    else:
        del options["workers"]
    return {
        **options,
        **planned,
        "draft": files[1:] or (["head"] if pair.draft_context else []),
        KERNELS: tinyblas.longest_without(),
    }


def _described(learned: LearnedPair, pair: LoadedPair, draft_key: str) -> LearnedPair:
    """Return what was learned, with what lets it be found and shown before the pair is loaded."""
    kind = pair.files.kind if pair.draft_context else None
    learned.draft = draft_key or OWN_HEAD * bool(kind)
    learned.draft_kind = kind.name if kind else ""
    threads = f"{pair.num_threads} thread{'s' * (pair.num_threads != 1)}"
    layers = f"{pair.plan.gpu_layers} layers on {', '.join(pair.gpus)}"
    if pair.plan.on_host:
        layers += f" but for {pair.plan.on_host}"
    learned.way = f"{layers}, {threads}" if pair.plan.gpu_layers and pair.gpus else threads
    return learned
