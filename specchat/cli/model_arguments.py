"""From the words of the command line to a loaded pair, telling how far it is."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from specchat import drafters
from specchat.catalogue.draft_choice import find_drafts
from specchat.catalogue.local_models import find_model
from specchat.catalogue.pairs import DEMO, Pair, find_pair, to_pull
from specchat.catalogue.saved_pairs import require_savable, save_pair
from specchat.catalogue.tuned_settings import find_tuned
from specchat.cli.terminal import say
from specchat.engine.api import EngineFacts
from specchat.errors import InvalidOption, ModelNotFound
from specchat.options import NO_DRAFT, GenerateOptions, LoadOptions
from specchat.settings import Settings, wrong_setting

__all__ = [
    "DEMO_NOTICE",
    "chosen_drafter",
    "chosen_pair",
    "generate_options",
    "is_demo",
    "loading_options",
    "model_file",
    "named_pair",
    "save_loaded",
]

DEMO_NOTICE = (
    "demo pair: a tiny model that knows specchat and little else; for real answers `specchat list`"
    " names pairs to pull, or name GGUF files of your own with --target FILE --draft FILE"
)


def is_demo(arguments: argparse.Namespace) -> bool:
    """Say whether the demo pair answers: it does when nothing else is named."""
    return arguments.target is None and arguments.pair in {None, DEMO}


def chosen_pair(arguments: argparse.Namespace) -> Pair:
    """Return the pair that the command line names, with the draft model that suits its target.

    A draft model on the command line comes first, then what tuning chose; for a target that is
    named alone the best one here is looked for, and told. What --save-as cannot keep is refused.
    """
    pair = _with_draft(named_pair(arguments), arguments)
    if arguments.save_as is None:
        return pair
    if arguments.target is None:
        raise InvalidOption("--save-as goes with --target FILE: other pairs have a name already")
    require_savable(arguments.save_as, pair.target, pair.draft)
    return replace(pair, name=arguments.save_as)


def save_loaded(arguments: argparse.Namespace, pair: Pair, facts: EngineFacts) -> str:
    """Keep a pair under the name that --save-as gives it, now that it is loaded; say so."""
    if arguments.save_as is None:
        return ""
    if facts.draft and facts.draft_off_reason:
        return f"not saved as {arguments.save_as}: {facts.draft_off_reason}"
    path = save_pair(arguments.save_as, pair.target, pair.draft)
    return f"saved in {path}: --pair {arguments.save_as} names this pair from now on"


def _with_draft(pair: Pair, arguments: argparse.Namespace) -> Pair:
    if arguments.draft is not None:
        return pair
    if tuned := find_tuned(pair.target):
        return pair.with_draft(Path(tuned.draft)) if tuned.draft else pair
    wants_model = drafters.may_use_model(getattr(arguments, "drafter", drafters.AUTO))
    if arguments.target is None or not wants_model:
        return pair
    return _with_best_draft(pair)


def _with_best_draft(pair: Pair) -> Pair:
    """Add the best draft model that is here, and say which and why."""
    best = find_drafts(pair.target).best
    if best is None:
        return pair
    told = f"draft: {best.model.name} {best.why}"
    say(told)
    return replace(pair.with_draft(best.model.path), description=told)


def chosen_drafter(arguments: argparse.Namespace, pair: Pair) -> str:
    """Return the drafter that the command line names, or the one that tuning chose."""
    if arguments.drafter != drafters.AUTO or arguments.draft is not None:
        return str(arguments.drafter)
    tuned = find_tuned(pair.target)
    return tuned.drafter if tuned else drafters.AUTO


def named_pair(arguments: argparse.Namespace) -> Pair:
    """Return the pair that the command line names: by name, by its files, or the demo pair.

    Files may be local models named as `specchat list` names them.
    """
    is_named = arguments.draft not in {None, NO_DRAFT}
    with _telling_source(arguments, "model.draft"):
        draft = model_file(arguments.draft) if is_named else None
    if arguments.target is not None:
        if arguments.pair is not None:
            raise InvalidOption("--pair and --target both name a target: give one of them")
        with _telling_source(arguments, "model.target"):
            target = model_file(arguments.target)
        is_name = target != arguments.target
        name = arguments.target.as_posix() if is_name else target.stem
        return Pair(name, "", target, draft, {})
    with _telling_source(arguments, "model.pair"):
        pair = find_pair(arguments.pair or DEMO)
    return pair if arguments.draft is None else pair.with_draft(draft)


@contextmanager
def _telling_source(arguments: argparse.Namespace, name: str) -> Iterator[None]:
    """Have what is not there told with the line or the variable that names it, if one does."""
    settings: Settings | None = getattr(arguments, "settings", None)
    try:
        yield
    except ModelNotFound as error:
        if settings is None or settings.source(name) not in {"file", "environment"}:
            raise
        raise wrong_setting(settings, name, str(error)) from None


def model_file(told: Path) -> Path:
    """Return the file at a path, or that of the local model of that name."""
    name = told.as_posix()
    if told.exists():
        return told
    if model := find_model(name):
        return model.path
    if file := to_pull(name):
        raise ModelNotFound(f"{file} is not here: `specchat pull {file}` fetches it")
    raise ModelNotFound(
        f"{name}: no such file, and no local model of that name: check the path; `specchat list`"
        " names those there are"
    )


def loading_options(arguments: argparse.Namespace, pair: Pair | None = None) -> dict[str, Any]:
    """Return the options of `Engine.load` as they are set, and what others report of a pair."""
    options: dict[str, Any] = arguments.settings.values(LoadOptions)
    return {**options, "first_guess": pair.first_guess if pair else None}


def generate_options(arguments: argparse.Namespace, pair: Pair) -> dict[str, Any]:
    """Return the options of `Engine.generate`: the pair's own sampling, then what is set."""
    given = arguments.settings.given_values(GenerateOptions)
    return {**pair.sampling, **given, "drafter": chosen_drafter(arguments, pair)}
