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
from specchat.settings import Settings, wrong_setting

__all__ = [
    "DEMO_NOTICE",
    "NO_DRAFT",
    "chosen_drafter",
    "chosen_pair",
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

NO_DRAFT = "none"
"""What --draft says for a target that is to go without."""


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
    is_named = arguments.draft is not None and str(arguments.draft) != NO_DRAFT
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
    """Return the options of `Engine.load` that the command line set, and what is told of a pair."""
    layers = None if arguments.gpu_layers == "auto" else arguments.gpu_layers
    of_draft = arguments.draft_gpu_layers
    return {
        "ctx": arguments.ctx,
        "gpu_layers": layers,
        "draft_gpu_layers": layers if of_draft == "auto" else of_draft,
        "tensor_split": _shares(arguments.tensor_split),
        "split_mode": arguments.split_mode,
        "main_gpu": arguments.main_gpu,
        "threads": arguments.threads,
        "flash_attention": arguments.flash_attention,
        "cache_type_k": arguments.cache_type_k,
        "cache_type_v": arguments.cache_type_v,
        "use_mmap": not arguments.no_mmap,
        "use_mlock": arguments.mlock,
        "first_guess": pair.first_guess if pair else None,
    }


def _shares(told: str | None) -> tuple[float, ...]:
    """Return the numbers in a text such as "3,1"."""
    try:
        return tuple(float(share) for share in told.split(",")) if told else ()
    except ValueError:
        message = f"tensor_split must be the shares of GPUs, 3,1 for instance, not {told}"
        raise InvalidOption(message) from None
