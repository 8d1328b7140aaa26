"""`specchat tune`: find the fastest drafter and draft model for a target here, and save them."""

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from specchat import drafter_registry
from specchat.bench.measurement import BenchmarkPlan
from specchat.bench.results import Arm
from specchat.bench.tasks import TASKS
from specchat.catalogue.draft_choice import find_drafts
from specchat.catalogue.pairs import Pair, file_of
from specchat.catalogue.tuned_settings import Tuned, keep_tuned, tuned_path
from specchat.cli.bench import INTERVAL_HEADING, interval_text, run_benchmark
from specchat.cli.model_arguments import named_pair, open_engine
from specchat.cli.server_argument import require_models_here
from specchat.cli.terminal import print_result, table_lines
from specchat.drafter_registry import AUTO, may_use
from specchat.errors import SpecchatError
from specchat.options.declarations import NO_DRAFT
from specchat.wording import percent, speedup_text

TEMPERATURE = 0.8
TASK_NAMES = ("chat", "code", "edit")
MAX_DRAFTS = 4
"""The most draft models to try if none is named, because each takes a while to measure."""
MARGIN = 1.02
"""How much faster than `auto` a drafter must be to replace it; a smaller gain may be chance."""
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
    tried = [asdict(candidate) for candidate in candidates]
    record = {"tried": tried, "refused": refused, "kept": asdict(tuned)}
    print_result(arguments, record, list(_lines(candidates, refused, tuned)))


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
    draft = pair.draft
    with open_engine(arguments, pair) as engine:
        arms = [Arm(name) for name in drafter_registry.working(engine.facts.draft_kind)]
        results = run_benchmark(engine, replace(plan, arms=arms))
    if not results.is_complete:
        raise KeyboardInterrupt
    for arm in arms:
        if not results.ratios(arm):
            raise SpecchatError("; ".join(results.skipped))
        uses_draft = may_use(arm.drafter, *drafter_registry.MODELS)
        path = str(draft.absolute()) if draft and uses_draft else None
        rate = results.totals(arm).acceptance_rate or 0.0
        yield _Candidate(arm.drafter, path, *results.speedup(arm), rate)


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
