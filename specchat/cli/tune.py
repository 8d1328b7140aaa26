"""`specchat tune`: find the best drafter and draft model for a target here, and keep them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from specchat import drafters
from specchat.bench.measurement import Arm, interval, measure
from specchat.bench.tasks import TASKS
from specchat.catalogue.draft_choice import find_drafts
from specchat.catalogue.pairs import Pair
from specchat.catalogue.tuned_settings import Tuned, keep_tuned, tuned_path
from specchat.cli.engine_session import open_engine
from specchat.cli.model_arguments import (
    NO_DRAFT,
    model_file,
    named_pair,
)
from specchat.cli.progress_line import show_measuring, wipe_progress
from specchat.cli.terminal import print_json
from specchat.drafters import AUTO, may_use_model
from specchat.errors import InvalidOption, SpecchatError

__all__ = ["run"]

TEMPERATURE = 0.8
MOST_DRAFTS = 4
"""Draft models to try where none is named: each takes a while to measure."""
MARGIN = 1.02
"""What a setting must gain over `auto` to be kept in its place: less is chance."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One way to decode with the target, and what it came to."""

    drafter: str
    draft: str | None
    speedup: float
    low: float
    high: float
    acceptance_rate: float


def run(arguments: argparse.Namespace) -> int:
    """Try every candidate, say what each came to, and keep the best."""
    if arguments.rounds < 1:
        raise InvalidOption(f"rounds must be 1 or more, not {arguments.rounds}")
    named: list[Path] | Path = arguments.draft or []
    told = [named] if isinstance(named, Path) else named  # the settings name one
    given = [None if str(path) == NO_DRAFT else model_file(path) for path in told]
    arguments = argparse.Namespace(**{**vars(arguments), "draft": None, "save_as": None})
    pair = named_pair(arguments)
    drafts, refused = given or [path for path in [pair.draft] if path], list[str]()
    if not drafts:
        drafts, refused = _drafts_here(pair.target)
    found: list[_Candidate] = []
    for draft in drafts:
        try:
            found += _try(arguments, pair.with_draft(draft))
        except SpecchatError as error:
            if draft is None:
                raise
            refused.append(str(error))
    wipe_progress()
    if not found:
        raise SpecchatError("no draft could be tried: " + "; ".join(refused))
    tuned = _kept(_best(found), may_add_draft=None not in given)
    _keep(pair.target, tuned)
    _tell(arguments, found, refused, tuned)
    return 0


def _drafts_here(target: Path) -> tuple[list[Path | None], list[str]]:
    """Return the best drafts that are here, and why those beside the target are not among them.

    Where there are none, decoding without one is what is left to try.
    """
    found = find_drafts(target)
    beside = [(each, why) for each, why in found.unfit if each.path.parent == target.parent]
    best: list[Path | None] = [draft.model.path for draft in found.fitting[:MOST_DRAFTS]]
    return best or [None], [f"{each.name}: {why}" for each, why in beside]


def _try(arguments: argparse.Namespace, pair: Pair) -> Iterator[_Candidate]:
    """Measure the drafters that a draft model allows."""
    draft = pair.draft
    names = [name for name in drafters.choices() if name != drafters.PLAIN]
    arms = [Arm(name) for name in names if draft or name == AUTO or not may_use_model(name)]
    tasks = [task for task in TASKS if task.name in {"chat", "code", "edit"}]
    with open_engine(arguments, pair, draft) as engine:
        states = measure(
            engine, arms, tasks, [TEMPERATURE],
            rounds=arguments.rounds, max_tokens=arguments.max_tokens, tell=show_measuring,
        )  # fmt: skip
        bench = list(states)[-1]
    for arm in arms:
        if not bench.ratios(arm):
            raise SpecchatError("; ".join(bench.skipped))
        runs = [entry for entry in bench.runs if entry.arm == arm]
        drafted = sum(entry.stats["drafted"] for entry in runs)
        accepted = sum(entry.stats["accepted"] for entry in runs)
        path = str(draft.absolute()) if draft and may_use_model(arm.drafter) else None
        rate = accepted / drafted if drafted else 0.0
        yield _Candidate(arm.drafter, path, *interval(bench.ratios(arm)), rate)


def _best(found: list[_Candidate]) -> _Candidate:
    """Return the fastest; `auto` where another is hardly faster, and plain where nothing pays."""
    fastest = max(found, key=lambda candidate: candidate.speedup)
    same = [c for c in found if c.drafter == AUTO and c.speedup * MARGIN >= fastest.speedup]
    best = max(same, key=lambda candidate: candidate.speedup, default=fastest)
    return replace(best, drafter=drafters.PLAIN, draft=None) if best.high < 1 else best


def _kept(best: _Candidate, *, may_add_draft: bool) -> Tuned:
    """Return what to keep: without a draft model `auto` is `suffix`, which will never take one."""
    is_bare = best.drafter == AUTO and best.draft is None
    drafter = drafters.automatic(has_model=False) if is_bare and not may_add_draft else best.drafter
    return Tuned(drafter, best.draft, best.speedup)


def _keep(target: Path, tuned: Tuned) -> None:
    try:
        keep_tuned(target, tuned)
    except OSError as error:
        raise SpecchatError(f"{tuned_path()} cannot be written: {error.strerror}") from None


def _tell(
    arguments: argparse.Namespace, found: list[_Candidate], refused: list[str], tuned: Tuned
) -> None:
    """Print what was tried and what is kept."""
    if arguments.json:
        tried = [asdict(candidate) for candidate in found]
        print_json({"tried": tried, "refused": refused, "kept": asdict(tuned)})
        return
    print(f"{'drafter':<8} {'speedup':>8}  {'95 % interval':<15} {'accepted':>8}  draft model")
    for each in sorted(found, key=lambda candidate: -candidate.speedup):
        name = Path(each.draft).name if each.draft else "-"
        print(
            f"{each.drafter:<8} {each.speedup:>7.2f}x  {each.low:.2f} to {each.high:<7.2f}"
            f" {each.acceptance_rate:>8.0%}  {name}"
        )
    for reason in refused:
        print(f"not tried: {reason}")
    draft = f" with {Path(tuned.draft).name}" if tuned.draft else ""
    print(f"kept for this target: drafter {tuned.drafter}{draft}, {tuned.speedup:.2f} times plain")
