"""The folders where other programs keep GGUF files, which specchat reads and never writes.

The hub's cache (also llama.cpp's, since it uses that layout), llama.cpp's older cache, LM Studio's
and Ollama's. What a pointer or a settings file of another program says is followed only to a folder
that is there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from specchat.hub.cache import cache_root

__all__ = ["Place", "Tool", "find_places", "read_small"]

Tool: TypeAlias = Literal["hub", "llama.cpp", "LM Studio", "Ollama"]

LARGEST_FILE = 1 << 20
OLLAMA_SERVICE = Path("/usr/share/ollama/.ollama/models")
"""Where Ollama's service keeps models on Linux: it runs as a user of its own."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of models, and whose."""

    tool: Tool
    folder: Path


def find_places(
    environ: Mapping[str, str] = os.environ, home: Path | None = None, system: str = sys.platform
) -> tuple[Place, ...]:
    """Return the folders that are here, each once, the hub's cache first."""
    home = home or Path.home()
    places = [
        Place("hub", cache_root()),
        *(Place("llama.cpp", each) for each in _llama_cpp(environ, home, system)),
        *(Place("LM Studio", each) for each in _lm_studio(home)),
        *(Place("Ollama", each) for each in _ollama(environ, home)),
    ]
    found: dict[Path, Place] = {}
    for place in places:
        with suppress(OSError, ValueError):
            if place.folder.is_dir():
                found.setdefault(place.folder.resolve(), place)
    return tuple(found.values())


def read_small(path: Path, largest: int = LARGEST_FILE) -> str | None:
    """Return the text of a small file of another program's, None for one that is no such thing."""
    with suppress(OSError, ValueError):
        if path.is_file() and path.stat().st_size <= largest:
            return path.read_text("utf-8")
    return None


def _llama_cpp(environ: Mapping[str, str], home: Path, system: str) -> Iterator[Path]:
    """Yield the folder LLAMA_CACHE names, or the cache of this kind of system."""
    if named := environ.get("LLAMA_CACHE"):
        yield Path(named)
    elif system == "win32":
        yield Path(environ.get("LOCALAPPDATA") or home / "AppData/Local") / "llama.cpp"
    elif system == "darwin":
        yield home / "Library/Caches/llama.cpp"
    else:
        yield Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "llama.cpp"


def _lm_studio(home: Path) -> Iterator[Path]:
    """Yield the models' folder of each home LM Studio may have, the one it points to first."""
    pointer = (read_small(home / ".lmstudio-home-pointer") or "").strip()
    named = [Path(pointer)] if pointer and Path(pointer).is_absolute() else []
    for folder in (*named, home / ".lmstudio", home / ".cache/lm-studio"):
        yield from _downloads(folder / "settings.json")
        yield folder / "models"


def _downloads(settings: Path) -> Iterator[Path]:
    """Yield the folder that LM Studio's settings name in place of its own."""
    with suppress(ValueError, RecursionError):
        told = json.loads(read_small(settings) or "{}")
        named = told.get("downloadsFolder") if isinstance(told, dict) else None
        if isinstance(named, str) and Path(named).is_absolute():
            yield Path(named)


def _ollama(environ: Mapping[str, str], home: Path) -> Iterator[Path]:
    if named := environ.get("OLLAMA_MODELS", "").strip("\"' "):
        yield Path(named)
    yield home / ".ollama/models"
    yield OLLAMA_SERVICE
