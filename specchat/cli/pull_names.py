"""What the names given to `specchat pull` stand for: files of the hub, or models that are here."""

import re
import shlex
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from specchat.catalogue.catalogue_file import known, load_entries
from specchat.catalogue.draft_choice import find_drafts
from specchat.catalogue.header_cache import HeaderCache
from specchat.catalogue.local_models import LocalModel, files_below, model_at
from specchat.catalogue.model_lookup import find_installed, find_model
from specchat.catalogue.pairs import NAME, find_supported, save_pair
from specchat.catalogue.repository_models import RemoteModel, best_of, list_models, named, rows
from specchat.cli.terminal import confirm, print_exactly, say, show_line
from specchat.errors import InvalidOption, ModelNotFound
from specchat.gguf.reader import read_header
from specchat.hub.names import HubName, looks_like_name, parse_name
from specchat.hub.references import Reference
from specchat.planning.device import Machine
from specchat.wording import size_text

MOST_REGISTERED = 40
NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


class NothingPulled(Exception):
    """The user was offered a file and declined."""


def local_path(name: str) -> Path | None:
    """Return the file or folder that a name is the path of, None if it does not exist."""
    path = Path(name).expanduser() if name.startswith("~") else Path(name)
    is_path = "/" in name or "\\" in name or name.lower().endswith(".gguf") or name in {".", ".."}
    return path if is_path and path.exists() else None


def model_here(name: str) -> LocalModel | None:
    """Return a model of Ollama, LM Studio or llama.cpp that a name names, None if it is a pair's.

    Raises ModelNotFound for what looks like Ollama's name and is not here.
    """
    if looks_like_name(name) or name in load_entries():
        return None
    if model := find_model(name):
        return model
    if ":" in name:
        raise ModelNotFound(
            f"{name} is not on this machine: `ollama pull {shlex.quote(name)}` fetches a model of"
            " Ollama, which specchat then finds; from the hub, pull org/repo:QUANTIZATION"
        )
    find_supported(name)  # raises, and lists the pairs
    return None


def reference_of(name: str, machine: Machine, *, is_here: bool = False) -> Reference:
    """Return the file of the hub that a name stands for; `is_here` says that it is installed.

    For a repository its models are listed, and the best for this machine is offered. Raises
    InvalidOption, ModelNotFound, DownloadFailed, or NothingPulled if the user declines.
    """
    wanted = parse_name(name)
    if wanted.file:
        return known(wanted.reference)
    if (is_here or wanted.quantisation) and (installed := find_installed(name)):
        return installed
    if is_here:
        raise ModelNotFound(f"{wanted} is not installed: `specchat pull {wanted}` fetches it")
    models = _listed(wanted)
    if wanted.quantisation:
        return known(named(wanted, models).reference)
    return known(_chosen(wanted, models, machine).reference)


def _listed(wanted: HubName) -> list[RemoteModel]:
    """Return the models of a repository, from the hub, and say meanwhile what is waited for."""
    show_line(f"listing {wanted.repository}")
    try:
        return list_models(wanted, show_line)
    finally:
        show_line()


def _chosen(wanted: HubName, models: Sequence[RemoteModel], machine: Machine) -> RemoteModel:
    """Show the models of a repository and return the one that the user agrees to."""
    say(f"{wanted.repository} has:")
    for row in rows(models, machine):
        say(f"  {row}")
    best = best_of(models, machine)
    if best is None:
        raise ModelNotFound(
            f"no model of {wanted.repository} fits this machine: pull one by its name anyway,"
            f" {wanted.repository}:{models[0].label}"
        )
    size = f" ({size_text(best.num_bytes)})" if best.num_bytes else ""
    full = f"{wanted.repository}:{best.quantisation}" if best.quantisation else str(best.reference)
    otherwise = f"`specchat pull {shlex.quote(full)}` pulls the best of them for this machine"
    if not confirm(f"pull {best.label}{size}?", otherwise=otherwise, default=True):
        say(f"nothing was fetched: `specchat pull {wanted.repository}:NAME` pulls another of them")
        raise NothingPulled
    return best


def register(path: Path) -> None:
    """Save a file, or the models in a folder, as pairs with the drafts that suit them.

    Raises ModelNotFound if there is no model, and as reading a header does for a file that is none.
    """
    models = _models_at(path)
    for model in models:
        draft = find_drafts(model.path).best
        name = _free_name(model)
        save_pair(name, model.path, draft.model.path if draft else None)
        print_exactly(str(model.path.absolute()))
        say(f"{name}: {draft.model.name} drafts for it, {draft.why}" if draft else
            f"{name}: saved without a draft model")  # fmt: skip
        say(f"ready: specchat ask --pair {shlex.quote(name)}")


def _models_at(path: Path) -> Sequence[LocalModel]:
    if path.is_file():
        read_header(path)
        model = model_at(path.absolute())
        if model is None:
            raise InvalidOption(f"{path} is not a model that can answer: `specchat show {path}`")
        return [model]
    found = [model_at(each.absolute()) for _, each in files_below(path)[:MOST_REGISTERED]]
    with HeaderCache() as cache:
        models = [each for each in found if each and cache.of(each.path).kind == "chat"]
    if not models:
        raise ModelNotFound(f"{path} has no GGUF model: name a folder with .gguf files")
    return models


def _free_name(model: LocalModel) -> str:
    """Return a valid name for a pair, other than those of pairs with other files."""
    plain = unicodedata.normalize("NFKD", model.path.stem).encode("ascii", "ignore").decode()
    stem = NO_NAME.sub("-", plain).strip("-.:_")[:60] or "model"
    entries = load_entries()
    names = (stem if number == 1 else f"{stem}-{number}" for number in range(1, 1000))
    for name in names:
        entry = entries.get(name)
        if entry is None or entry.target == model.path:
            break
    assert NAME.fullmatch(name)  # noqa: S101  # made of its characters
    return name
