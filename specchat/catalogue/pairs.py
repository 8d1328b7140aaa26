"""models.toml: pairs by name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from specchat.decoding.sampling import Sampling
from specchat.errors import CatalogueError, ModelNotFound

__all__ = ["DEMO", "Pair", "catalogue_path", "find_pair", "load_pairs"]

SAMPLING_OPTIONS = {field.name for field in fields(Sampling)}
DEMO = "demo"
"""The pair that comes with specchat."""

PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Pair:
    """A target with its draft model, by name, and how its makers say to sample it."""

    name: str
    description: str
    target: Path
    draft: Path | None
    sampling: Mapping[str, float]


def catalogue_path() -> Path:
    """Return models.toml: in the package when installed, beside it in a clone."""
    installed = PACKAGE / "models.toml"
    return installed if installed.exists() else PACKAGE.parent / "models.toml"


def load_pairs(path: Path | None = None) -> dict[str, Pair]:
    """Return the pairs of the catalogue by name; CatalogueError says what is wrong with it."""
    path = path or catalogue_path()
    try:
        content = tomllib.loads(path.read_text("utf-8"))
        pairs = [_pair(name, entry) for name, entry in content["pair"].items()]
    except FileNotFoundError:
        raise CatalogueError(f"{path} is missing: install specchat again") from None
    except OSError as error:
        raise CatalogueError(f"{path} cannot be read: {error.strerror}") from None
    except KeyError as error:
        raise CatalogueError(f"{path} has no table {error}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise CatalogueError(f"{path}: {error}") from None
    return {pair.name: pair for pair in pairs}


def find_pair(name: str) -> Pair:
    """Return the pair of that name; ModelNotFound lists those there are."""
    pairs = load_pairs()
    if name not in pairs:
        raise ModelNotFound(
            f"there is no pair named {name!r}: known are {', '.join(pairs)};"
            " or name files with --target and --draft"
        )
    return pairs[name]


def _pair(name: str, entry: dict[str, Any]) -> Pair:
    try:
        return _checked(name, entry)
    except KeyError as error:
        raise ValueError(f"pair {name}: {error} is missing") from None
    except (TypeError, AttributeError) as error:
        raise ValueError(f"pair {name}: {error}") from None


def _checked(name: str, entry: dict[str, Any]) -> Pair:
    draft = entry.get("draft")
    sampling = dict(entry.get("sampling", {}).items())
    for option in sampling:
        if option not in SAMPLING_OPTIONS:
            raise ValueError(f"pair {name}: there is no sampling option {option!r}")
    return Pair(
        name=name,
        description=entry["description"],
        target=PACKAGE / entry["target"],
        draft=PACKAGE / draft if draft else None,
        sampling=sampling,
    )
