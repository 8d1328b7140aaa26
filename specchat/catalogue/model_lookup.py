"""Finding a model on this machine by whatever a user calls it.

A name may be a path, the name that `specchat list` shows, a file's name, Ollama's or LM Studio's
name, a repository with or without a quantization, or the address of its page on the hub.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from specchat.catalogue.local_models import LocalModel, find_local_models, models_in
from specchat.catalogue.model_names import model_title, quantisation_in
from specchat.errors import InvalidOption, ModelNotFound
from specchat.hub.cache import find_present
from specchat.hub.names import looks_like_name, parse_name
from specchat.hub.references import Reference

LATEST = ":latest"
MOST_NAMED = 8

Models: TypeAlias = Sequence[LocalModel]


def find_path(name: str) -> Path | None:
    """Return the file at a path, or the only model in the folder there; None if there is nothing.

    Raises ModelNotFound for a folder with several models, or none.
    """
    path = Path(name).expanduser() if name.startswith("~") else Path(name)
    if not path.exists():
        return None
    if not path.is_dir():
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
    ways: tuple[Callable[[str, Models], Iterable[LocalModel]], ...] = (
        _by_name, _by_file, _in_repository, _by_title,
    )  # fmt: skip
    for way in ways:
        found = list(way(name, models))
        if len(found) > 1:
            raise ModelNotFound(f"{name} is ambiguous: choose one of {_names(found)}")
        if found:
            return found[0]
    return None


def find_installed(name: str) -> Reference | None:
    """Return the installed file of the hub that a name names, None if there is none.

    Raises ModelNotFound if it is ambiguous, and InvalidOption for an invalid name.
    """
    wanted = parse_name(name)
    if wanted.file:
        return wanted.reference if find_present(wanted.reference) else None
    model = find_model(name)
    return parse_name(model.name).reference if model and model.tool == "hub" else None


def _by_name(name: str, models: Models) -> Iterable[LocalModel]:
    wanted = _endings(name)
    return (model for model in models if model.name.lower() in wanted)


def _by_file(name: str, models: Models) -> Iterable[LocalModel]:
    wanted = _endings(name)
    return (model for model in models if model.name.lower().rpartition("/")[2] in wanted)


def _in_repository(name: str, models: Models) -> Iterable[LocalModel]:
    """Yield the models of a repository, in the hub's cache or among LM Studio's, as it is named."""
    if not looks_like_name(name):
        return
    with suppress(InvalidOption):
        wanted = parse_name(name)
        folder = "/".join(filter(None, (wanted.repository, wanted.folder, wanted.file))).lower()
        for model in models:
            lower = model.name.lower()
            is_inside = lower == folder or (not wanted.file and lower.startswith(f"{folder}/"))
            if is_inside and _has(model, wanted.quantisation):
                yield model


def _by_title(name: str, models: Models) -> Iterable[LocalModel]:
    """Yield the models with a title, and a quantization after "@" (LM Studio) or ":"."""
    title, _, quantisation = name.replace("@", ":").rpartition("/")[2].partition(":")
    for model in models:
        if model_title(model.name).lower() == title.lower() and _has(model, quantisation):
            yield model


def _has(model: LocalModel, quantisation: str) -> bool:
    """Return True if a model's name states a quantization, or none is wanted."""
    stem = model.name.lower().rpartition("/")[2].removesuffix(".gguf")
    wanted = quantisation.lower()
    is_stated = re.search(rf"(^|[-_.]){re.escape(wanted)}([-_.]|$)", stem)
    return not wanted or quantisation_in(model.name).lower() == wanted or bool(is_stated)


def _endings(name: str) -> set[str]:
    return {f"{name}{ending}".lower() for ending in ("", ".gguf", LATEST)}


def _with(models: Models) -> str:
    return f"with {len(models)} models ({_names(models)})"


def _names(models: Models) -> str:
    more = len(models) - MOST_NAMED
    shown = ", ".join(model.name for model in models[:MOST_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown
