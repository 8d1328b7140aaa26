"""Finding a model on this machine by whatever a user calls it.

A name may be a path, the name that `specchat list` shows, a file's name, Ollama's or LM Studio's
name, a repository with or without a quantization, or the address of its page on the hub.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from specchat.catalogue.local_models import LocalModel, find_local_models, models_in
from specchat.catalogue.model_names import is_called, model_title, states
from specchat.errors import ModelNotFound
from specchat.hub.cache import find_present
from specchat.hub.names import HubName, is_hub_name, parse_name
from specchat.hub.references import MAIN, Reference

LATEST = ":latest"
MOST_NAMED = 8
SNAPSHOTS = "snapshots"

Models: TypeAlias = Sequence[LocalModel]


class NotHere(ModelNotFound):
    """There is nothing on this machine by that name."""


def typed_path(name: str) -> Path | None:
    """Return the file or folder at a path that a user typed, None if there is nothing."""
    try:
        path = Path(name).expanduser() if name.startswith("~") else Path(name)
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, no such home folder, a null byte
        return None


def find_path(name: str) -> Path | None:
    """Return the file at a path, or the only model in the folder there; None if there is nothing.

    Raises ModelNotFound for a folder with several models, or none.
    """
    path = typed_path(name)
    if path is None or not path.is_dir():
        return path
    models = models_in(path)
    if len(models) == 1:
        return models[0].path
    raise ModelNotFound(
        f"{path} is a folder {_with(models)}: name a file in it"
        if models
        else f"{path} is a folder without a GGUF model: name a file"
    )


def find_model(name: str) -> LocalModel | None:
    """Return the local model that a name names, or None. Raises ModelNotFound if it is ambiguous.

    Case does not matter, and `.gguf` and Ollama's `:latest` may be omitted.
    """
    models = find_local_models()
    ways: tuple[Callable[[str, Models], Iterator[LocalModel]], ...] = (
        _by_name, _by_file, _in_repository, _by_title,
    )  # fmt: skip
    for way in ways:
        if matches := list(way(name, models)):
            return _only(name, matches)
    return None


def find_installed(wanted: HubName, *, is_sure: bool = False) -> Reference | None:
    """Return the installed file of the hub that a name names, None if there is none.

    With `is_sure`, one whose name only has the wanted quantization as a part does not count: the
    repository may have a file that is called so. Raises ModelNotFound if it is ambiguous.
    """
    if wanted.file and find_present(wanted.reference):
        return wanted.reference
    of_hub = [model for model in find_local_models() if model.tool == "hub"]
    matches = list(_matching(wanted, of_hub))
    if is_sure and wanted.quantisation:
        matches = [model for model in matches if is_called(model.name, wanted.quantisation)]
    return _reference_of(_only(str(wanted), matches), wanted) if matches else None


def _only(name: str, matches: Models) -> LocalModel:
    if len(matches) > 1:
        raise ModelNotFound(f"{name} is ambiguous: choose one of {_names(matches)}")
    return matches[0]


def _reference_of(model: LocalModel, wanted: HubName) -> Reference:
    """Return the reference of a model in the hub's cache, with the revision that it has there."""
    file = model.name.removeprefix(_prefix(model.name))
    repository = model.name.removesuffix(f"/{file}")
    usual = Reference(repository, file, wanted.revision)
    if find_present(usual) == model.path:
        return usual
    parts = model.path.parts
    return replace(usual, revision=parts[len(parts) - parts[::-1].index(SNAPSHOTS)])


def _prefix(name: str) -> str:
    """Return org/repo/ of the name of a model in the hub's cache."""
    return "".join(part + "/" for part in name.split("/", 2)[:2])


def _by_name(name: str, models: Models) -> Iterator[LocalModel]:
    wanted = _endings(name)
    return (model for model in models if model.name.lower() in wanted)


def _by_file(name: str, models: Models) -> Iterator[LocalModel]:
    wanted = _endings(name)
    return (model for model in models if model.name.lower().rpartition("/")[2] in wanted)


def _in_repository(name: str, models: Models) -> Iterator[LocalModel]:
    """Yield the models of a repository, in the hub's cache or among LM Studio's, as it is named."""
    if is_hub_name(name):
        yield from _matching(parse_name(name), models)


def _matching(wanted: HubName, models: Models) -> Models:
    """Return the models in a repository that a name names, only those called so if there are any.

    Of another revision than main they are those of that revision.
    """
    found = list(_in_folder(wanted, models))
    return [model for model in found if is_called(model.name, wanted.quantisation)] or found


def _in_folder(wanted: HubName, models: Models) -> Iterator[LocalModel]:
    """Yield the models in a repository whose names have the wanted quantization."""
    folder = "/".join(filter(None, (wanted.repository, wanted.folder, wanted.file))).lower()
    for model in models:
        lower = model.name.lower()
        is_inside = lower == folder or (not wanted.file and lower.startswith(f"{folder}/"))
        if is_inside and (not wanted.quantisation or states(model.name, wanted.quantisation)):
            if wanted.revision == MAIN:
                yield model
            elif path := _at(model, wanted.revision):
                yield replace(model, path=path)


def _at(model: LocalModel, revision: str) -> Path | None:
    """Return the path of a model in the hub's cache at a revision, None if it is not there."""
    parts = model.name.split("/", 2)
    try:
        is_of_hub = model.tool == "hub" and len(parts) > 2
        return (
            find_present(Reference("/".join(parts[:2]), parts[2], revision)) if is_of_hub else None
        )
    except ValueError:  # a name that the hub would not allow
        return None


def _by_title(name: str, models: Models) -> Iterator[LocalModel]:
    """Yield the models with a title, and a quantization after "@" (LM Studio) or ":".

    After a publisher only LM Studio's models of that publisher are meant.
    """
    whole, _, quantisation = name.replace("@", ":").partition(":")
    publisher, slash, title = whole.lower().rpartition("/")
    for model in models:
        is_of_publisher = model.tool == "LM Studio" and model.name.lower().startswith(
            f"{publisher}/"
        )
        if (
            model_title(model.name).lower() == title
            and (is_of_publisher or not slash)
            and (not quantisation or states(model.name, quantisation))
        ):
            yield model


def _endings(name: str) -> set[str]:
    return {f"{name}{ending}".lower() for ending in ("", ".gguf", LATEST)}


def _with(models: Models) -> str:
    return f"with {len(models)} models ({_names(models)})"


def _names(models: Models) -> str:
    more = len(models) - MOST_NAMED
    shown = ", ".join(model.name for model in models[:MOST_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown
