"""`specchat rm`: delete what was pulled, but for what another pair needs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from specchat.catalogue.catalogue_file import find_entry, known, own_catalogue_path
from specchat.catalogue.removal import Removal, holding, plan_removal, remove
from specchat.catalogue.saved_pairs import forget_pair, is_saved
from specchat.cli.terminal import confirm, say
from specchat.errors import InvalidOption, ModelNotFound
from specchat.hub.cache import size_in_words
from specchat.hub.references import Reference, looks_like_reference, parse

__all__ = ["run"]

DONE, FAILED = 0, 1


def run(arguments: argparse.Namespace) -> int:
    """Say what will go and what stays, ask, and delete it; of a saved pair only the name goes."""
    if is_saved(arguments.name):
        return _forget(arguments)
    references = _references(arguments.name)
    removal = plan_removal(arguments.name, references)
    for reference, who in removal.staying:
        say(f"stays: {reference}, which {who} needs too")
    if not removal.going:
        what = "nothing else of it is here" if removal.staying else "it is not here"
        raise ModelNotFound(f"nothing to delete for {arguments.name}: {what}")
    with holding(removal):
        for reference in removal.going:
            say(f"goes: {reference}")
        if not (arguments.yes or _agrees(removal)):
            say("nothing was deleted")
            return FAILED
        remove(removal)
    say(f"deleted: {size_in_words(removal.num_bytes)}")
    return DONE


def _forget(arguments: argparse.Namespace) -> int:
    say(f"goes: the pair's name {arguments.name}; its files stay")
    if not (arguments.yes or _confirmed(f"take {arguments.name} out of {own_catalogue_path()}?")):
        say("nothing was changed")
        return FAILED
    forget_pair(arguments.name)
    return DONE


def _references(name: str) -> Sequence[Reference]:
    if looks_like_reference(name):
        return [known(parse(name))]
    references = find_entry(name).references
    if not references:
        raise InvalidOption(f"pair {name} does not come from the hub: there is nothing to delete")
    return references


def _agrees(removal: Removal) -> bool:
    size = size_in_words(removal.num_bytes)
    return _confirmed(f"delete {size} from the cache that specchat shares with other programs?")


def _confirmed(question: str) -> bool:
    return confirm(question, otherwise="--yes deletes without asking")
