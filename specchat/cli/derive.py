"""`specchat derive`: train a draft for a target; it is kept if it pays."""

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specchat.catalogue.pairs import file_of, load_pairs
from specchat.catalogue.tuned_settings import find_tuned
from specchat.chat.store import Store, default_path
from specchat.cli.model_arguments import stopping_on_interrupt
from specchat.cli.terminal import DONE, INTERRUPTED, print_result, show_line
from specchat.derivation.answer_sampling import TrainingPrompts
from specchat.derivation.derived_files import deriving_alone
from specchat.derivation.train_method import TrainDerivation, Trained, TrainRequest
from specchat.engine.api import Loading
from specchat.errors import InvalidOption
from specchat.options.declarations import LoadOptions, Sampling
from specchat.wording import percent, rate_text, speedup_text

MOST_QUESTIONS = 2000


def run(arguments: argparse.Namespace) -> int:
    """Train a draft and print its predicted speedup, also if stopped early."""
    target = file_of(arguments.target)
    loading = Loading(target, **arguments.settings.values(LoadOptions))
    pair = load_pairs().get(arguments.target)
    sampling = Sampling(**dict[str, Any](pair.sampling if pair else {}))
    questions = _questions() if arguments.history else ()
    prompts = TrainingPrompts(loading, _texts(arguments.text), questions)
    wanted = TrainRequest(prompts, sampling, arguments.train, arguments.keep_slower)
    derivation = TrainDerivation(wanted, show_line)
    with deriving_alone(), stopping_on_interrupt(derivation.stop) as is_interrupted:
        trained = derivation.run()
    show_line()
    print_result(arguments, _record(trained), list(_lines(trained, sampling, target)))
    return INTERRUPTED if is_interrupted() else DONE


def _texts(paths: list[Path]) -> list[str]:
    """Return the contents of the user's files; raises InvalidOption for a file that is not text."""
    texts = []
    for path in paths:
        try:
            texts.append(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidOption(
                f"{path} cannot be read as text ({error}): name a text file"
            ) from None
    return texts


def _questions() -> list[str]:
    with Store(default_path()) as store:
        return store.questions(MOST_QUESTIONS)


def _record(trained: Trained) -> dict[str, Any]:
    return {
        "answers": trained.num_answers,
        "steps": trained.steps,
        "agreement": trained.agreement,
        "predicted": {**asdict(trained.predicted), "speedup": trained.predicted.speedup},
        "kept": trained.path is not None,
        "path": str(trained.path) if trained.path else None,
    }


def _lines(trained: Trained, sampling: Sampling, target: Path) -> Iterator[str]:
    """Yield lines about the draft, its predicted speedup, and whether it was kept."""
    here, path = trained.predicted, trained.path
    yield (
        f"draft: trained in {trained.steps} steps on {trained.num_answers} answers of the target;"
        f" {percent(trained.agreement)} of held-out tokens agree"
    )
    yield (
        f"first drafted tokens accepted: {percent(here.greedy)} at temperature 0,"
        f" {percent(here.sampled)} at {sampling.temperature:g};"
        f" a draft pass takes {percent(here.pass_share)} of the time of a target pass"
    )
    plain, greedy, sampled = map(rate_text, (here.plain_rate, here.greedy_rate, here.sampled_rate))
    yield (
        f"predicted here: {speedup_text(here.speedup, 2)} ({plain} without it; with it {greedy} at"
        f" temperature 0, {sampled} above)"
    )
    if path is None:
        yield "not kept: no speedup is predicted here; --keep-slower keeps it anyway"
        return
    if not here.is_worth_keeping:
        yield f"kept as {path.name}, but not used automatically: choose it with --draft {path.name}"
        return
    yield f"kept as {path.name}: used for this target if its pair names no draft; `rm` deletes it"
    if find_tuned(target):
        yield "tuned settings for this target take precedence: run `specchat tune` again to compare"
