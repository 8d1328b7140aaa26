"""Timing the ways to place a pair that is larger than the GPUs; plans then take the quickest.

Plans are made with predicted times for the memory that is free. Those that are predicted to be
nearly as quick as the best are loaded one after the other, and answers of a short and of a long
text are timed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import cast

from specchat.cli.model_arguments import show_loading
from specchat.drafter_registry import PLAIN
from specchat.engine.api import Engine, Loading
from specchat.errors import ModelWontLoad, SpecchatError, WorkerUnavailable
from specchat.gguf.model_files import read_pair
from specchat.llama.child_process import ask_for_build
from specchat.options.declarations import CacheType
from specchat.options.worker_address import worker_address
from specchat.planning.device import Device, as_devices, find_machine, gpus_of
from specchat.planning.forecast import devices_of
from specchat.planning.measured_times import keep_steps, planner_here, times_path
from specchat.planning.memory import HOST, Sizes
from specchat.planning.plan import USUAL_DRAFT, Plan
from specchat.planning.plan_ranking import NEVER, MeasuredStep
from specchat.sharing import process_engine
from specchat.wording import rate_text
from specchat.workers.worker_probe import probe_worker

NEAR = 1.3
"""A way is timed if its steps are predicted to take at most this many times as long as the best."""
SHORT_TEXT = 1024
"""The characters of the short text, some 512 tokens; the long one fills up to half a context."""
NUM_TOKENS = 12
STEPS_OF_ANSWER, TOKENS_READ = 128, 512
"""The steps of an answer that share the time of reading this many tokens of its question."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A way to place a pair: what is where, and what was measured, in tokens per second.

    `step_s` has the seconds of a step, and its share of reading the question.
    """

    placement: str
    way: str
    step_s: float
    tokens_per_second: float
    prompt_tokens_per_second: float


@dataclass(slots=True)
class PlacementTuning:
    """Times the ways to place a pair, and keeps what it measured for the plans that follow.

    `timed` has what was measured, also where Ctrl+C or an error ended it, and `failed` why other
    ways could not be; both are empty if there is only one, or if a `problem` kept all of them from
    being planned. Plans take the way that is `used` from
    then on, which may be one that was not timed.
    """

    timed: list[Timed] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    used: str = ""

    def run(self, loading: Loading) -> None:
        """Time each way; what the user has set is kept."""
        model, draft = read_pair(loading.target, loading.draft, with_head=loading.head)
        sizes, of_draft = Sizes(model), Sizes(draft) if draft else None
        try:
            devices = devices_now(loading)
        except SpecchatError as error:  # a worker is gone, for instance
            self.problem = str(error)
            return
        planner = planner_here(sizes, of_draft, devices, loading)
        plans, steps = planner.near(NEAR), dict[str, MeasuredStep]()
        for plan in plans if len(plans) > 1 else ():
            try:
                timed = time_placement(placed(loading, plan), plan)
            except SpecchatError as error:
                self.failed[plan.way] = str(error)
                # a lost worker is a ModelWontLoad that says nothing of this way
                if not isinstance(error, ModelWontLoad) or isinstance(error, WorkerUnavailable):
                    continue
                step_s = NEVER
            else:
                self.timed.append(timed)
                step_s = timed.step_s
            steps[plan.way] = MeasuredStep(step_s, planner.step_reads(plan))
            if self.timed:
                is_complete = len(steps) == len(plans)
                try:
                    keep_steps(sizes, of_draft, planner.gpus, steps, is_complete=is_complete)
                except OSError as error:
                    raise SpecchatError(f"cannot write {times_path()}: {error.strerror}") from None
                self.used = planner_here(sizes, of_draft, devices, loading).first().way

    def lines(self) -> Iterator[str]:
        """Yield what was measured, the quickest first, and why other ways could not be."""
        if self.problem:
            yield f"placements were not timed: {self.problem}"
        known = dict[str, str]()
        for each in sorted(self.timed, key=lambda each: each.step_s):
            rates = rate_text(each.tokens_per_second), rate_text(each.prompt_tokens_per_second)
            known[each.way] = f"{each.placement}: {rates[0]}, prompts {rates[1]}"
        known |= {way: f"{way}: not timed, {reason}" for way, reason in self.failed.items()}
        if self.used:
            known.setdefault(self.used, f"{self.used}: not timed yet")
        for way, line in known.items():
            yield f"used from now on: {line}" if way == self.used else line


def devices_now(loading: Loading) -> list[Device]:
    """Return the devices of this machine and of workers with the memory that is free there now."""
    report = ask_for_build().report
    workers = [probe_worker(worker_address(name)) for name in loading.workers]
    return [
        devices_of(find_machine())[HOST],
        *(device for worker in workers for device in as_devices(worker)),
        *gpus_of(report.devices if report else ()),
    ]


def placed(loading: Loading, plan: Plan) -> Loading:
    """Return how to load a pair in the way of a plan."""
    on_host = plan.on_host
    return replace(
        loading,
        ctx=plan.ctx,
        cache_type=cast(CacheType, plan.cache_type),
        gpu_layers=plan.gpu_layers,
        draft_gpu_layers=plan.draft_gpu_layers,
        draft=loading.draft if plan.draft_gpu_layers is not None else None,
        head=loading.head and plan.draft_gpu_layers is not None,
        on_cpu=f"{on_host.part}:{on_host.count}" if on_host else "none",
    )


def time_placement(loading: Loading, plan: Plan) -> Timed:
    """Load a pair and time its passes: over one token, over a draft, and over a text, twice each.

    A short text and one that fills half the context are read.
    """
    with process_engine.ProcessEngine(loading, show_loading) as engine:
        facts = engine.facts
        kind = facts.draft_kind
        plain, steps, reading = list[float](), list[float](), list[float]()
        for first, length in ((0, min(SHORT_TEXT, plan.ctx // 4)), (10**6, plan.ctx // 2)):
            text = " ".join(map(str, range(first, first + length)))[:length]
            plain.append(_step_seconds(engine, text, PLAIN))
            stats = engine.stats
            reading.append(stats.prompt_s / max(1, stats.prompt_tokens - stats.cached_tokens))
            steps.append(_step_seconds(engine, text, kind) if kind else plain[-1])
    question = TOKENS_READ * sum(reading) / len(reading)
    return Timed(
        placement=facts.plan,
        way=plan.way,
        step_s=sum(steps) / len(steps) + question / STEPS_OF_ANSWER,
        tokens_per_second=len(plain) / sum(plain),
        prompt_tokens_per_second=len(reading) / sum(reading),
    )


def _step_seconds(engine: Engine, text: str, drafter: str) -> float:
    """Return the mean seconds of an answer's steps but the first, with drafts of one length."""
    answer = engine.generate(
        text,
        temperature=0.0,
        max_tokens=NUM_TOKENS,
        ignore_end=True,
        drafter=drafter,
        draft_length=USUAL_DRAFT,
    )
    for _ in answer:
        pass
    stats = engine.stats
    if stats.steps < 2:
        raise SpecchatError(f"the answer ended after {stats.steps} steps: {stats.notices}")
    return stats.later_steps_s / (stats.steps - 1)
