"""The pairs that the chat's models screen lists, with the memory that each needs here."""

import argparse
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

from specchat.catalogue.catalogue_file import TRIAL, known, read_catalogue
from specchat.catalogue.draft_choice import find_drafts
from specchat.catalogue.entry import Entry
from specchat.catalogue.fit import recommend, size_of_pair
from specchat.catalogue.header_cache import HeaderCache
from specchat.catalogue.known_heads import missing_head
from specchat.catalogue.model_lookup import NotHere
from specchat.catalogue.model_names import model_title, quantisation_in
from specchat.catalogue.outlook import OWN_HEAD, Outlook
from specchat.catalogue.pair_outlook import (
    listed_outlook,
    outlook_of_entry,
    outlook_of_files,
)
from specchat.catalogue.pairs import file_of, load_pairs
from specchat.catalogue.recent_pairs import RecentPair, recent_pairs
from specchat.catalogue.repository_models import find_remote
from specchat.cli.list import models_beside
from specchat.cli.model_arguments import Answerer
from specchat.cli.pair_choices import (
    choice_of_server,
    choose_file,
    choose_reopened,
    choose_tuned,
)
from specchat.cli.server_argument import named_server
from specchat.drafter_registry import AUTO, may_use
from specchat.gguf.model_files import read_whole_model
from specchat.gguf.split_files import size_with_parts
from specchat.hub.cache import find_present
from specchat.hub.names import HubName, is_hub_name, parse_name
from specchat.hub.offline import is_offline
from specchat.hub.references import Reference
from specchat.options.declarations import GenerateOptions, LoadOptions
from specchat.planning.device import Machine, find_machine
from specchat.tui.setup import Offer, PairChoice
from specchat.wording import size_text


def find_offers(arguments: argparse.Namespace) -> list[Offer]:
    """Return the pairs of the catalogue, installed or not, and other local models.

    Pairs that were loaded before come with the time of that. Invalid pairs in the user's own
    models.toml are left out.
    """
    here, entries, machine = load_pairs(), read_catalogue().entries, find_machine()
    best = recommend(entries.values(), machine)
    choose = {name: partial(choose_tuned, arguments, pair) for name, pair in here.items()}
    pairs = [
        replace(
            _offer_of_entry(entry, machine),
            is_recommended=entry == best,
            choose=choose.get(entry.name),
        )
        for entry in entries.values()
    ]
    listed = [reference for entry in entries.values() for reference in entry.references]
    paths = {path for reference in listed if (path := find_present(reference))}
    paths |= {path for pair in here.values() for path in (pair.target, pair.draft) if path}
    recent = recent_pairs()
    offers = [*pairs, *_local_offers(arguments, paths, entries)]
    offers += _reopened(arguments, recent, {offer.name for offer in offers})
    offers += _server_offers(arguments)
    loaded = {pair.name: pair.loaded for pair in recent}
    return [replace(offer, loaded=loaded.get(offer.name, 0.0)) for offer in offers]


def open_file(arguments: argparse.Namespace, name: str) -> Offer:
    """Return the offer for a model of this machine, or of the hub, by any name.

    Raises ModelNotFound if it is neither, DownloadFailed if the hub cannot be asked, and
    ModelWontLoad if the file holds no model, before a loaded one is freed for it.
    """
    try:
        path = file_of(name)
    except NotHere:
        if is_offline() or not is_hub_name(name):
            raise
        return _offer_on_hub(parse_name(name))
    read_whole_model(path)
    return Offer(path.stem, str(path), choose=partial(choose_file, arguments, path.stem, path))


def _offer_on_hub(wanted: HubName) -> Offer:
    """Return the offer to pull a file, or the model of a repository that suits this machine."""
    if wanted.file:
        reference, num_bytes = known(wanted.reference), None
    else:
        model = find_remote(wanted, find_machine(), lambda _: None)
        reference, num_bytes = model.reference, model.num_bytes
    return Offer(
        str(reference),
        f"A file of {reference.repository}.",
        size=size_text(num_bytes) if num_bytes else "?",
        title=model_title(reference.name),
        outlook=Outlook(target=reference.name, quantisation=quantisation_in(reference.name)),
        references=(reference,),
    )


def _server_offers(arguments: argparse.Namespace) -> Iterator[Offer]:
    """Yield the servers of the settings; a key is read only once one is chosen."""
    settings = arguments.settings
    options = {"drafter": AUTO, **settings.given_values(GenerateOptions)}
    for name, fields in settings.servers.items():

        def choose(name: str = name) -> PairChoice:
            server = named_server(settings, name)
            return choice_of_server(Answerer(name, options, server=server))

        yield Offer.of_server(choose, name, fields["url"], fields.get("model", ""))


def foresee_offer(offer: Offer, held_bytes: int) -> Outlook:
    """Return a pair's needs on this machine, from its files or else from the catalogue.

    `held_bytes` is the memory that the loaded pair frees.
    """
    if offer.is_server:
        return offer.outlook
    if offer.choose is None:
        entry = read_catalogue().entries.get(offer.name)
        return outlook_of_entry(entry, held_bytes) if entry else offer.outlook
    choice = offer.choose()
    loading = choice.loading
    options = LoadOptions(**loading.values(LoadOptions))
    drafter = str(choice.options.get("drafter", AUTO))
    return outlook_of_files(loading.target, loading.draft, options, drafter, held_bytes)


def _offer_of_entry(entry: Entry, machine: Machine) -> Offer:
    """Return a pair of the catalogue with what the catalogue knows of it."""
    return Offer(
        entry.name,
        entry.description,
        size=size_of_pair(entry.num_bytes, entry.about_gb),
        licence=entry.licence,
        share=entry.bytes_here / (entry.num_bytes or inf),
        is_trial=entry.name == TRIAL,
        references=entry.references,
        outlook=listed_outlook(entry, machine),
    )


def _local_offers(
    arguments: argparse.Namespace, shown: Collection[Path], names: Collection[str]
) -> Iterator[Offer]:
    """Yield the models of other programs, and files pulled on their own; drafts are left out."""
    for model, facts in models_beside(shown):
        if facts.origin is None and model.name not in names:
            is_head = facts.has_head and may_use(arguments.drafter, "head")
            yield Offer(
                model.name,
                f"from {model.tool}",
                size=size_text(model.num_bytes),
                title=model_title(model.name),
                outlook=Outlook(
                    target=model.path.name,
                    drafts=OWN_HEAD * is_head,
                    quantisation=quantisation_in(model.name),
                ),
                choose=partial(choose_file, arguments, model.name, model.path),
            )


def _reopened(
    arguments: argparse.Namespace, recent: Iterable[RecentPair], listed: Collection[str]
) -> Iterator[Offer]:
    """Yield the files that were opened before, and pairs with another draft model."""
    for recent_pair in recent:
        target = Path(recent_pair.target)
        if recent_pair.name in listed or not os.path.isfile(target):
            continue
        yield Offer(
            recent_pair.name,
            str(target),
            size=size_text(size_with_parts(target)),
            title=model_title(recent_pair.name),
            outlook=Outlook(target=target.name, quantisation=quantisation_in(target.name)),
            choose=partial(choose_reopened, arguments, recent_pair),
        )


def find_other_drafts(choice: PairChoice) -> list[Offer]:
    """Return other drafts for a pair's target: installed ones, then the catalogue's.

    There are none if the catalogue advises against draft models for this target.
    """
    if choice.server is not None:
        return []
    loading, drafts = choice.loading, find_drafts(choice.loading.target)
    if drafts.advice:
        return []
    installed = [
        Offer(
            f"{choice.name} + {draft.model.name.rpartition('/')[2]}",
            f"draft with {draft.model.name} ({draft.why})",
            choose=partial(_with_draft, choice, draft.model.path),
        )
        for draft in drafts.fitting
        if draft.model.path != loading.draft
    ]
    missing = [
        Offer(
            entry.name,
            f"download {entry.draft.name}, the draft model of {entry.name}",
            share=entry.bytes_here / (entry.num_bytes or 1),
            references=entry.references,
        )
        for entry in read_catalogue().entries.values()
        if isinstance(entry.draft, Reference) and not is_offline()
        and isinstance(entry.target, Reference) and find_present(entry.target) == loading.target
        and find_present(entry.draft) is None
    ]  # fmt: skip
    with HeaderCache() as cache:
        head = None if is_offline() else missing_head(loading.target, cache)
    if head:
        name, what = head.reference.name, f"download its prediction head, {head.title}"
        size = size_text(head.num_bytes) if head.num_bytes else "?"
        pulled = Offer(f"{choice.name} + {name}", what, size=size, references=(head.reference,))
        missing.insert(0, replace(pulled, licence=head.licence))
    return installed + missing


def _with_draft(choice: PairChoice, draft: Path) -> PairChoice:
    loading = replace(choice.loading, draft=draft)
    name, options = f"{choice.name} + {draft.stem}", {**choice.options, "drafter": AUTO}
    return replace(choice, name=name, source=loading, options=options, keep=None)
