"""Who uses files by their paths: saved pairs, the settings, and what tuning chose."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from specchat.catalogue.catalogue_file import load_entries
from specchat.catalogue.tuned_settings import tuned_drafts
from specchat.hub.references import split_names
from specchat.settings import read_settings

__all__ = ["users_by_path"]


def users_by_path(name: str, going: Collection[Path]) -> dict[Path, str]:
    """Return who uses a file, in words, by the file that is behind all links.

    The pair of that name does not count, nor what tuning chose for a target among those going.
    Raises SettingsError and CatalogueError where nobody can tell who uses what.
    """
    named = [*_of_pairs(name), *_of_settings(), *_of_tuning(going)]
    return {real: who for path, who in reversed(named) for real in _real_parts(path)}


def _of_pairs(name: str) -> Iterator[tuple[Path, str]]:
    for entry in load_entries().values():
        if entry.name != name:
            files = (file for file in entry.files if isinstance(file, Path))
            yield from ((file, f"pair {entry.name}") for file in files)


def _of_settings() -> Iterator[tuple[Path, str]]:
    settings = read_settings()
    for setting in ("model.target", "model.draft"):
        if settings[setting]:
            where = settings.path if settings.source(setting) == "file" else "the environment"
            yield Path(settings[setting]), f"{setting} in {where}"


def _of_tuning(going: Collection[Path]) -> Iterator[tuple[Path, str]]:
    for target, draft in tuned_drafts():
        if target.is_file() and target.resolve() not in going:
            yield draft, f"{target.name}, for which tuning chose it,"


def _real_parts(path: Path) -> Iterator[Path]:
    """Yield the files that a model consists of, links followed; none for what cannot be a path."""
    for part in split_names(path.name):
        with suppress(OSError, RuntimeError, ValueError):
            yield path.with_name(part).resolve()
