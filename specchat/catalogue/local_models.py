"""Local models: the GGUF files that are here, whichever program brought them, by name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from specchat.catalogue.model_folders import Place, Tool, find_places, read_small
from specchat.catalogue.ollama import find_ollama_models
from specchat.errors import ModelNotFound
from specchat.hub.references import split_names

__all__ = ["LocalModel", "find_local_models", "find_model", "model_at", "models_in"]

DEEPEST = 5
"""Folders in folders: LM Studio has publisher/model/file, the hub some more in a repository."""
MOST_FILES = 20_000
NO_MODEL = re.compile(r"mmproj|imatrix|^(mtp|eagle3?|dspark)-|dflash|eagle3", re.IGNORECASE)
"""Files that go with a model and cannot answer alone, as llama.cpp tells them: by name."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that is here: the first of its files, whose folder it is in, the size of all files.

    `tool` is None for a model that was found by its path.
    """

    name: str
    path: Path
    tool: Tool | None
    num_bytes: int


def find_local_models(places: Iterable[Place] | None = None) -> tuple[LocalModel, ...]:
    """Return the models in the folders of all programs, each file and each name once."""
    named: dict[str, LocalModel] = {}
    seen: set[Path] = set()
    for place in find_places() if places is None else places:
        for name, path in _FINDERS[place.tool](place.folder):
            model = _model(name, path, place.tool)
            if model and (real := path.resolve()) not in seen:
                seen.add(real)
                named.setdefault(model.name, model)
    return tuple(named.values())


def models_in(folder: Path) -> tuple[LocalModel, ...]:
    """Return the models that lie in a folder itself."""
    with suppress(OSError):
        paths = sorted(folder.glob("*.gguf"))
        found = [_model(path.name, path) for path in paths]
        return tuple(each for each in found if each)
    return ()


def model_at(path: Path) -> LocalModel | None:
    """Return the model whose first file this is; None where there is none, whole and readable."""
    return _model(path.name, path)


def find_model(name: str) -> LocalModel | None:
    """Return the model of that name, or of a file of that name, as far as one alone has it.

    Letters may be small or large, `.gguf` and Ollama's `:latest` left out. ModelNotFound lists
    the models that it could be where they are several.
    """
    wanted = name.lower()
    models = find_local_models()
    for is_it in (_has_name, _has_name_of_file):
        found = [model for model in models if is_it(model, wanted)]
        if len(found) > 1:
            names = ", ".join(model.name for model in found)
            raise ModelNotFound(f"{name} could be several models here: {names}; name one of them")
        if found:
            return found[0]
    return None


def _has_name(model: LocalModel, wanted: str) -> bool:
    return model.name.lower() in {wanted, f"{wanted}.gguf", f"{wanted}:latest"}


def _has_name_of_file(model: LocalModel, wanted: str) -> bool:
    return model.name.lower().rpartition("/")[2] in {wanted, f"{wanted}.gguf"}


def _model(name: str, path: Path, tool: Tool | None = None) -> LocalModel | None:
    """Return the model of a file; None for a later part, an incomplete one, or no model."""
    names = split_names(path.name)
    is_other = names[0] != path.name or NO_MODEL.search(name.rpartition("/")[2])
    if is_other or not path.is_file():
        return None
    with suppress(OSError):
        sizes = [path.with_name(each).stat().st_size for each in names]
        return LocalModel(name, path, tool, sum(sizes)) if all(sizes) else None
    return None


def _in_hub(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield what a cache in the hub's layout holds, of each file the newest that was fetched."""
    for repository in sorted(folder.glob("models--*")):
        name = "/".join(repository.name.split("--")[1:])
        files: dict[str, Path] = {}
        for commit in _newest_first(repository):
            for path in _files_below(commit):
                files.setdefault(path.relative_to(commit).as_posix(), path)
        yield from ((f"{name}/{file}", path) for file, path in sorted(files.items()))


def _newest_first(repository: Path) -> Sequence[Path]:
    """Return the commits of a repository that are here: main first, then by age."""
    main = (read_small(repository / "refs" / "main") or "").strip()
    with suppress(OSError):
        commits = [path for path in (repository / "snapshots").iterdir() if path.is_dir()]
        return sorted(commits, key=lambda path: (path.name != main, -path.stat().st_mtime))
    return ()


def _in_folder(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the GGUF files of a tree, by their paths in it."""
    for path in sorted(_files_below(folder)):
        yield path.relative_to(folder).as_posix(), path


def _in_llama_cpp(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield what lies in the folder itself, and what is kept there as in the hub's cache."""
    yield from ((path.name, path) for path in sorted(folder.glob("*.gguf")))
    yield from _in_hub(folder)


def _files_below(folder: Path) -> list[Path]:
    """Return the GGUF files of a tree, links followed, as deep and as many as anybody keeps."""
    return list(islice(_walk(folder), MOST_FILES))


def _walk(top: Path) -> Iterator[Path]:
    """Yield the files of each folder once, by the shortest way to it, links last."""
    level, seen = [top], {os.path.realpath(top)}
    for _ in range(DEEPEST + 1):
        below = []
        for folder in level:
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.lower().endswith(".gguf") and entry.is_file():
                        yield Path(entry.path)
                    elif not entry.name.startswith(".") and entry.is_dir():
                        below.append(entry)
        below.sort(key=lambda entry: (entry.is_symlink(), entry.path))
        level = []
        for entry in below:
            if (real := os.path.realpath(entry.path)) not in seen:
                seen.add(real)
                level.append(Path(entry.path))


_FINDERS = {
    "hub": _in_hub,
    "llama.cpp": _in_llama_cpp,
    "LM Studio": _in_folder,
    "Ollama": find_ollama_models,
}
