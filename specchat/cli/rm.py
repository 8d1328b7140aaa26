"""`specchat rm`: delete pulled files that nothing else needs, and derived files."""

import argparse
from collections.abc import Sequence

from specchat.catalogue.catalogue_file import find_entry, known, own_catalogue_path
from specchat.catalogue.local_models import LocalModel, find_derived
from specchat.catalogue.model_lookup import find_installed
from specchat.catalogue.pairs import drop_pair, is_saved
from specchat.catalogue.removal import locked, plan_removal, remove, user_of
from specchat.cli.terminal import DONE, FAILED, confirm, require_terminal, say
from specchat.errors import InvalidOption, ModelNotFound, SpecchatError
from specchat.hub.names import looks_like_name, parse_name
from specchat.hub.references import Reference
from specchat.wording import size_text

OTHERWISE = "--yes deletes without asking"


def run(arguments: argparse.Namespace) -> int:
    """List what will be deleted and kept, ask, and delete; of a saved pair, only the name."""
    if is_saved(arguments.name):
        return _forget(arguments)
    if derived := find_derived(arguments.name):
        return _delete(arguments, derived)
    removal = plan_removal(arguments.name, _references(arguments.name))
    if removal.deleted:
        _require_answer(arguments)
    for reference, user in removal.kept:
        say(f"keeping {reference}, which {user} needs too")
    if not removal.deleted:
        reason = "the rest is not installed" if removal.kept else "it is not installed"
        raise ModelNotFound(f"nothing to delete for {arguments.name}: {reason}")
    with locked(removal):
        for reference in removal.deleted:
            say(f"{'deleting' if arguments.yes else 'to delete:'} {reference}")
        size = size_text(removal.num_bytes)
        question = f"delete {size} from the cache that specchat shares with other programs?"
        if not _confirmed(arguments, question):
            say("nothing was deleted")
            return FAILED
        remove(removal)
    say(f"deleted {size}")
    return DONE


def _forget(arguments: argparse.Namespace) -> int:
    _require_answer(arguments)
    say(f"the files of the saved pair {arguments.name} stay")
    if not _confirmed(arguments, f"remove {arguments.name} from {own_catalogue_path()}?"):
        say("nothing was changed")
        return FAILED
    drop_pair(own_catalogue_path(), arguments.name)
    say(f"removed the saved pair {arguments.name}")
    return DONE


def _delete(arguments: argparse.Namespace, model: LocalModel) -> int:
    """Delete a derived file. Raises SpecchatError if a pair or setting still uses it."""
    if user := user_of(model.path):
        raise SpecchatError(f"{user} needs {model.name}: name another file there first")
    size = size_text(model.num_bytes)
    if not _confirmed(arguments, f"delete the derived file {model.name} ({size})?"):
        say("nothing was deleted")
        return FAILED
    model.path.unlink()
    say(f"deleted {model.name} ({size})")
    return DONE


def _references(name: str) -> Sequence[Reference]:
    if looks_like_name(name):
        wanted = parse_name(name)
        if installed := find_installed(wanted):
            return [known(installed)]
        if not wanted.file:
            raise ModelNotFound(f"nothing to delete for {name}: it is not installed")
        return [known(wanted.reference)]
    references = find_entry(name).references
    if not references:
        raise InvalidOption(f"pair {name} does not come from the hub: there is nothing to delete")
    return references


def _require_answer(arguments: argparse.Namespace) -> None:
    """Raise InvalidOption if the question cannot be asked, before anything is announced."""
    if not arguments.yes:
        require_terminal(OTHERWISE)


def _confirmed(arguments: argparse.Namespace, question: str) -> bool:
    return arguments.yes or confirm(question, otherwise=OTHERWISE)
