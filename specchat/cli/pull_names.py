"""Resolves the names given to `specchat pull`: files on the hub, or models on this machine."""

import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, count
from pathlib import Path

from specchat.catalogue.catalogue_file import known, load_entries, own_catalogue_path
from specchat.catalogue.draft_choice import find_drafts
from specchat.catalogue.entry import Entry
from specchat.catalogue.header_cache import HeaderCache
from specchat.catalogue.local_models import LocalModel, files_below, model_at
from specchat.catalogue.model_lookup import find_installed, find_model, typed_path
from specchat.catalogue.pairs import find_usable, has_pair, save_pair
from specchat.catalogue.repository_models import (
    RemoteModel,
    find_remote,
    full_name,
    require_best,
    rows,
    why_preferred,
)
from specchat.cli.terminal import confirm, print_exactly, say, show_line
from specchat.errors import DownloadFailed, InvalidOption, ModelNotFound
from specchat.gguf.model_files import read_whole_model
from specchat.hub.names import HubName, is_path, looks_like_name, parse_name
from specchat.hub.references import Reference
from specchat.planning.device import Machine
from specchat.wording import size_text

MOST_REGISTERED, LONGEST_STEM = 40, 56
OTHER_PROGRAMS = ("LM Studio", "Ollama")
NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


class NothingPulled(Exception):
    """The user was offered a file and declined."""


def local_path(name: str) -> Path | None:
    """Return the file or folder at the path that an argument is, None if it is a name.

    Raises ModelNotFound for what can only be a path and is not there.
    """
    if (path := typed_path(name)) and name not in load_entries():
        return path
    is_file_here = is_path(name) or ("/" not in name and name.lower().endswith(".gguf"))
    if is_file_here and find_model(name) is None:
        raise ModelNotFound(f"{name}: no such file: check the path")
    return None


def model_here(name: str) -> LocalModel | None:
    """Return a model of Ollama, LM Studio or llama.cpp that a name names, None if it is a pair's.

    Raises ModelNotFound for what looks like Ollama's name and is not here.
    """
    if looks_like_name(name):
        return _of_other_program(name)
    if name in load_entries():
        return None
    if model := find_model(name):
        return model
    if ":" in name:
        raise ModelNotFound(
            f"{name} is not on this machine: `ollama pull {shlex.quote(name)}` fetches a model of"
            " Ollama, which specchat then finds; from the hub, pull org/repo:QUANTIZATION"
        )
    find_usable(name)  # raises, and lists the pairs
    return None


def _of_other_program(name: str) -> LocalModel | None:
    """Return the model of another program that has just this name, None if there is none."""
    with suppress(InvalidOption, ModelNotFound):
        wanted = parse_name(name)
        if (wanted.file or wanted.quantisation) and find_installed(wanted) is None:
            model = find_model(name)
            return model if model and model.tool in OTHER_PROGRAMS else None
    return None


def reference_of(name: str, machine: Machine, *, is_here: bool = False) -> Reference:
    """Return the file of the hub that a name stands for; `is_here` says that it is installed.

    For a repository its models are listed, and the best for this machine is offered. Raises
    InvalidOption, ModelNotFound, DownloadFailed, or NothingPulled if the user declines.
    """
    wanted = parse_name(name)
    is_named = wanted.file or wanted.quantisation
    if (is_here or is_named) and (installed := find_installed(wanted, is_sure=not is_here)):
        return known(installed)
    if is_here:
        raise ModelNotFound(
            f"{name} is not installed: `specchat pull {shlex.quote(name)}` fetches it"
        )
    if wanted.file:
        return known(wanted.reference)
    show_line(f"listing {wanted.repository}")

    def choose(models: Sequence[RemoteModel]) -> RemoteModel:
        show_line()
        return _chosen(wanted, models, machine)

    try:
        return known(find_remote(wanted, machine, show_line, choose, say).reference)
    except DownloadFailed:
        if is_named and (installed := find_installed(wanted)):
            return known(installed)
        raise
    finally:
        show_line()


def _chosen(wanted: HubName, models: Sequence[RemoteModel], machine: Machine) -> RemoteModel:
    """Show the models of a repository and return the one that the user agrees to."""
    say(f"{wanted.repository} has:")
    for row in rows(models, machine):
        say(f"  {row}")
    best = require_best(wanted, models, machine)
    if why := why_preferred(best, models, machine):
        say(why)
    size = f" ({size_text(best.num_bytes)})" if best.num_bytes else ""
    name = full_name(best, models)
    otherwise = f"`specchat pull {shlex.quote(name)}` pulls the best of them for this machine"
    if not confirm(f"pull {name}{size}?", otherwise=otherwise, default=True):
        say("nothing was fetched: name another of them to pull it, as in")
        say(f"  specchat pull {shlex.quote(name)}")
        raise NothingPulled
    return best


def register(path: Path) -> None:
    """Save a file, or the models in a folder, as pairs with the drafts that suit them.

    Pairs that have such a file already stay as they are. Raises ModelNotFound if there is no model,
    and as reading a model does for a file that is none.
    """
    entries = load_entries()
    for model in _models_at(path):
        name = next((key for key, entry in entries.items() if entry.target == model.path), "")
        if name:
            said = f"{name} is already a pair with this target: it stays as it is"
        else:
            draft = find_drafts(model.path).best
            name = _free_name(model, entries)
            save_pair(name, model.path, draft.model.path if draft else None)
            with_draft = f"{draft.model.name} drafts for it, {draft.why}" if draft else ""
            said = f"{name}: {with_draft or 'saved without a draft model'}"
        print_exactly(str(model.path))
        say(said)
        say(f"ready: specchat ask --pair {shlex.quote(name)}")


def _models_at(path: Path) -> Sequence[LocalModel]:
    if path.is_file():
        read_whole_model(path)
        return [LocalModel(path.name, path.absolute(), None, path.stat().st_size)]
    candidates = [model_at(file.absolute()) for _, file in files_below(path)]
    with HeaderCache() as cache:
        models = [model for model in candidates if model and cache.of(model.path).kind == "chat"]
    if not models:
        raise ModelNotFound(f"{path} has no GGUF model: name a folder with .gguf files")
    if len(models) > MOST_REGISTERED:
        raise InvalidOption(
            f"{path} has {len(models)} models, more than are saved at once ({MOST_REGISTERED}):"
            " name a folder with fewer, or one file"
        )
    return models


def _free_name(model: LocalModel, entries: Mapping[str, Entry]) -> str:
    """Return a valid name for a new pair."""
    plain = unicodedata.normalize("NFKD", model.path.stem).encode("ascii", "ignore").decode()
    stem = NO_NAME.sub("-", plain).strip("-.:_")[:LONGEST_STEM] or "model"
    names = chain([stem], (f"{stem}-{number}" for number in count(2)))
    return next(
        name for name in names if name not in entries and not has_pair(own_catalogue_path(), name)
    )
