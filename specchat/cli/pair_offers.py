"""The pairs in the model screen: those of the catalogue, and models of other programs."""

import argparse
from collections.abc import Callable
from pathlib import Path

from specchat.catalogue.catalogue_file import DEMO, own_catalogue_path, read_catalogue
from specchat.catalogue.draft_choice import find_drafts
from specchat.catalogue.entry import Entry
from specchat.catalogue.fit import Fit, judge, need_of, need_of_size, recommend
from specchat.catalogue.installed import bytes_here, bytes_of_pair, size_of_pair
from specchat.catalogue.local_models import LocalModel
from specchat.catalogue.pairs import Pair, load_pairs
from specchat.catalogue.tuned_settings import find_tuned
from specchat.cli.list import models_beside
from specchat.cli.model_arguments import is_demo
from specchat.engine.offers import Offer, PairChoice
from specchat.hub.cache import find_present, size_in_words
from specchat.planning.device import Machine, find_machine

Choose = Callable[[Pair], PairChoice]
"""Returns a pair with its options."""


def is_first_run(arguments: argparse.Namespace) -> bool:
    """Return True if the demo pair is used because no other is installed."""
    return is_demo(arguments) and set(load_pairs()) == {DEMO}


def left_out() -> str:
    """Return a notice about invalid pairs in the user's models.toml, empty if there are none."""
    complaint = read_catalogue().complaint if own_catalogue_path().exists() else ""
    return complaint and f"Some pairs are not listed: {complaint}"


def find_offers(choose: Choose) -> list[Offer]:
    """Return the pairs of the catalogue, installed or not, and other local models.

    Invalid pairs in the user's own models.toml are left out.
    """
    machine, here, entries = find_machine(), load_pairs(), read_catalogue().entries
    best = recommend(entries.values(), machine)
    pairs = [
        _of_entry(each, machine, is_best=each == best, pair=here.get(each.name), choose=choose)
        for each in entries.values()
    ]
    listed = [each for entry in entries.values() for each in entry.references]
    paths = {path for each in listed if (path := find_present(each))}
    paths |= {path for pair in here.values() for path in (pair.target, pair.draft) if path}
    local = [each for each in models_beside(paths) if each.name not in entries]
    return pairs + [_of_local(each, machine, choose) for each in local]


def _of_entry(
    entry: Entry, machine: Machine, *, is_best: bool, pair: Pair | None, choose: Choose
) -> Offer:
    num_bytes = bytes_of_pair(entry)
    begun = sum(map(bytes_here, entry.files))
    return Offer(
        name=entry.name,
        description=entry.description,
        size=size_of_pair(num_bytes, entry.about_gb),
        tier=entry.tier,
        licence=entry.licence,
        needs=entry.experimental,
        fit=_in_words(judge(need_of(entry), machine)),
        share=begun / num_bytes if num_bytes else 0.0,
        is_recommended=is_best,
        references=entry.references,
        choose=None if pair is None else lambda: choose(_tuned(pair)),
    )


def _of_local(model: LocalModel, machine: Machine, choose: Choose) -> Offer:
    return Offer(
        name=model.name,
        description=f"from {model.tool}",
        size=size_in_words(model.num_bytes),
        fit=_in_words(judge(need_of_size(model.num_bytes), machine)),
        choose=lambda: choose(_with_best_draft(model)),
    )


def _in_words(fit: Fit) -> str:
    return "" if fit == "unknown" else fit


def _with_best_draft(model: LocalModel) -> Pair:
    """Return a local model with the best draft model installed; this may take a moment."""
    best = find_drafts(model.path).best
    notice = f"draft: {best.model.name} {best.why}" if best else ""
    return _tuned(Pair(model.name, notice, model.path, best.model.path if best else None, {}))


def _tuned(pair: Pair) -> Pair:
    """Return a pair with the draft model that `specchat tune` chose for its target."""
    tuned = find_tuned(pair.target)
    return pair.with_draft(Path(tuned.draft)) if tuned and tuned.draft else pair
