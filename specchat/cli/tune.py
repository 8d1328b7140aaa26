"""`specchat tune`: find the fastest drafter, draft model and placement for a target; save them."""

import argparse
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from specchat import drafter_registry
from specchat.bench.measurement import BenchmarkPlan
from specchat.bench.results import Arm
from specchat.bench.tasks import TASKS
from specchat.catalogue.draft_choice import find_drafts
from specchat.catalogue.header_cache import HeaderCache
from specchat.catalogue.local_models import find_local_models, models_in
from specchat.catalogue.model_names import model_title, quantisation_in
from specchat.catalogue.pair_drafts import with_best_draft, with_tuned_draft
from specchat.catalogue.pairs import Pair, file_of
from specchat.catalogue.tuned_settings import Tuned, keep_tuned, tuned_path
from specchat.cli.bench import INTERVAL_HEADING, interval_text, run_benchmark
from specchat.cli.model_arguments import loading_of, named_pair, open_engine
from specchat.cli.pass_measuring import measure_pair
from specchat.cli.placement_tuning import PlacementTuning
from specchat.cli.server_argument import require_models_here
from specchat.cli.terminal import print_result, show_line, table_lines
from specchat.drafter_registry import AUTO, may_use
from specchat.errors import SpecchatError
from specchat.options.declarations import NO_DRAFT
from specchat.wording import percent, rate_text, speedup_text

TEMPERATURE = 0.8
TASK_NAMES = ("chat", "code", "edit")
MAX_DRAFTS = 4
"""The most draft models to try if none is named, because each takes a while to measure."""
MOST_LARGER = 1.5
"""How many times as large as the target another file of the model may be, to be measured."""
MARGIN = 1.02
"""How much faster than `auto` a drafter must be to replace it; a smaller gain may be chance."""
MAX_FILES = 2
"""The most other files of the target's model to measure."""
HEADINGS = ("drafter", "speedup", INTERVAL_HEADING, "accepted", "draft model")


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A measured combination of drafter and draft model."""

    drafter: str
    draft: str | None
    speedup: float
    low: float
    high: float
    acceptance_rate: float
    tokens_per_second: float

    @property
    def best_rate(self) -> float:
        """The tokens per second of the faster of this and plain decoding."""
        return self.tokens_per_second / min(1.0, self.speedup)


@dataclass(frozen=True, slots=True)
class _OtherFiles:
    """The tokens per second of the same model's other files, and why others have none."""

    rates: dict[Path, float] = field(default_factory=dict)
    unmeasured: list[str] = field(default_factory=list)

    def measure(
        self,
        arguments: argparse.Namespace,
        pair: Pair,
        plan: BenchmarkPlan,
        named: list[Path | None],
    ) -> None:
        """Measure each file with the best draft model for it, unless draft models are `named`."""
        for path in _siblings(pair.target)[:MAX_FILES]:
            other = Pair(path.stem, "", path, None, {}, pair.workers)
            other = replace(other, draft=named[0]) if named else with_best_draft(other)
            try:
                (measured,) = _candidates(arguments, other, plan)
                self.rates[path] = measured.best_rate
            except SpecchatError as error:
                self.unmeasured.append(str(error))


def run(arguments: argparse.Namespace) -> None:
    """Measure every candidate, print the results and save the best."""
    require_models_here(arguments)
    tasks = [task for task in TASKS if task.name in TASK_NAMES]
    plan = BenchmarkPlan([], tasks, [TEMPERATURE], arguments.rounds, arguments.max_tokens)
    named = _named_drafts(arguments)
    arguments.draft = arguments.save_as = None
    pair = named_pair(arguments)
    drafts, refused = named or [path for path in [pair.draft] if path], list[str]()
    if not drafts:
        drafts, refused = _installed_drafts(pair.target)
    candidates: list[_Candidate] = []
    for draft in drafts:
        try:
            candidates += _candidates(arguments, replace(pair, draft=draft), plan)
        except SpecchatError as error:
            if draft is None:
                raise
            refused.append(str(error))
    if not candidates:
        raise SpecchatError("no draft model could be measured: " + "; ".join(refused))
    tuned = _tuned(_best(candidates), may_add_draft=None not in named)
    try:
        keep_tuned(pair.target, tuned)
    except OSError as error:
        raise SpecchatError(f"cannot write {tuned_path()}: {error.strerror}") from None
    others, placing = _OtherFiles(), PlacementTuning()
    tuned_pair = with_tuned_draft(pair)
    try:
        others.measure(arguments, pair, replace(plan, arms=[Arm()]), named)
        placing.run(loading_of(arguments, tuned_pair, tuned.drafter))
    finally:  # an error, or Ctrl+C, takes nothing back
        show_line()
        _print(arguments, candidates, [*refused, *others.unmeasured], tuned, others, placing)
    measure_pair(arguments, tuned_pair, tuned.drafter)


def _print(
    arguments: argparse.Namespace,
    candidates: list[_Candidate],
    refused: list[str],
    tuned: Tuned,
    others: _OtherFiles,
    placing: PlacementTuning,
) -> None:
    """Print what was measured, and what was saved."""
    placements = sorted(placing.timed, key=lambda each: each.step_s)
    record = {
        "tried": [asdict(candidate) for candidate in candidates],
        "refused": refused,
        "kept": asdict(tuned),
        "files": {str(path): rate for path, rate in others.rates.items()},
        "placements": [asdict(placement) for placement in placements],
    }
    lines = [
        *_lines(candidates, refused, tuned),
        *_file_lines(candidates, others.rates),
        *placing.lines(),
    ]
    print_result(arguments, record, lines)
    sys.stdout.flush()  # an error of the system would drop what is not written yet


def _named_drafts(arguments: argparse.Namespace) -> list[Path | None]:
    """Return the draft models named with --draft or in the settings; None for "none"."""
    given: list[Path] | Path = arguments.draft or []
    paths = [given] if isinstance(given, Path) else given  # the settings hold a single path
    return [None if path == NO_DRAFT else file_of(path.as_posix()) for path in paths]


def _installed_drafts(target: Path) -> tuple[list[Path | None], list[str]]:
    """Return the best installed draft models, and why others in the target's folder do not fit.

    None stands for decoding without a draft model, which is measured if no draft model fits.
    """
    drafts = find_drafts(target)
    beside = [(model, why) for model, why in drafts.unfit if model.path.parent == target.parent]
    best: list[Path | None] = [draft.model.path for draft in drafts.fitting[:MAX_DRAFTS]]
    if drafts.advice:
        best = [None, *best]  # the target may have its own head
    return best or [None], [f"{model.name}: {why}" for model, why in beside]


def _candidates(
    arguments: argparse.Namespace, pair: Pair, plan: BenchmarkPlan
) -> Iterator[_Candidate]:
    """Yield the results of a pair: of the plan's arms or, if it has none, of all that work."""
    draft = pair.draft
    with open_engine(arguments, pair) as engine:
        working = drafter_registry.working(engine.facts.draft_kind)
        arms = plan.arms or [Arm(name) for name in working]
        results = run_benchmark(engine, replace(plan, arms=arms))
    if not results.is_complete:
        raise KeyboardInterrupt
    for arm in arms:
        if not results.ratios(arm):
            raise SpecchatError("; ".join(results.skipped))
        uses_draft = may_use(arm.drafter, *drafter_registry.MODELS)
        path = str(draft.absolute()) if draft and uses_draft else None
        rate = results.totals(arm).acceptance_rate or 0.0
        yield _Candidate(arm.drafter, path, *results.speedup(arm), rate, results.mean_rate(arm))


def _siblings(target: Path) -> list[Path]:
    """Return files here with the same model in other quantizations, small ones first.

    A much larger one cannot be faster, and takes long to measure.
    """
    title, own = model_title(target.name).lower(), quantisation_in(target.name)
    models = [*models_in(target.absolute().parent), *find_local_models()]
    sizes = {model.path.resolve(): model.num_bytes for model in models}
    most = MOST_LARGER * sizes.pop(target.resolve(), target.stat().st_size)
    paths = {
        model.path.resolve(): model.path
        for model in sorted(models, key=lambda model: model.num_bytes)
        if model_title(model.name).lower() == title and quantisation_in(model.name) not in {"", own}
    }
    with HeaderCache() as cache:
        return [
            path
            for place, path in paths.items()
            if sizes.get(place, most + 1) <= most and cache.of(path).kind == "chat"
        ]


def _file_lines(candidates: list[_Candidate], others: Mapping[Path, float]) -> Iterator[str]:
    """Yield how fast the other files are, with the command that uses a faster one."""
    own = max(candidate.best_rate for candidate in candidates)
    for path, rate in others.items():
        gain = speedup_text(rate / own, 2)
        yield f"{path.name}: {rate_text(rate)}, {gain} (this file: {rate_text(own)})"
        if rate > MARGIN * own:
            yield f"to use it: specchat tune --target {shlex.quote(str(path))}"


def _best(candidates: list[_Candidate]) -> _Candidate:
    """Return the fastest, but `auto` if it is nearly as fast; plain decoding if all are slower."""
    fastest = max(candidates, key=lambda candidate: candidate.speedup)
    same = [c for c in candidates if c.drafter == AUTO and c.speedup * MARGIN >= fastest.speedup]
    best = max(same, key=lambda candidate: candidate.speedup, default=fastest)
    return replace(best, drafter=drafter_registry.PLAIN, draft=None) if best.high < 1 else best


def _tuned(best: _Candidate, *, may_add_draft: bool) -> Tuned:
    """Return what to save; if the best uses no draft model, choose a drafter that never does."""
    is_bare = best.drafter == AUTO and best.draft is None
    without = drafter_registry.automatic("")
    drafter = without if is_bare and not may_add_draft else best.drafter
    return Tuned(drafter, best.draft, best.speedup)


def _lines(candidates: list[_Candidate], refused: list[str], tuned: Tuned) -> Iterator[str]:
    """Yield the table of candidates, best first, and what was saved."""
    ranked = sorted(candidates, key=lambda candidate: -candidate.speedup)
    rows = (
        (
            candidate.drafter,
            speedup_text(candidate.speedup, 2),
            interval_text(candidate.low, candidate.high),
            percent(candidate.acceptance_rate),
            Path(candidate.draft).name if candidate.draft else "-",
        )
        for candidate in ranked
    )
    yield from table_lines([HEADINGS, *rows], left=(0, 4))
    yield ""
    yield from (f"not measured: {reason}" for reason in refused)
    draft = f" with {Path(tuned.draft).name}" if tuned.draft else ""
    if tuned.drafter == drafter_registry.PLAIN:
        yield "saved for this target: plain decoding, because every drafter is slower"
    else:
        gain = speedup_text(tuned.speedup, 2)
        yield f"saved for this target: drafter {tuned.drafter}{draft} ({gain})"
