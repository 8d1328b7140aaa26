"""The folders of other programs with GGUF files, which specchat only reads.

These are the hub's cache, which llama.cpp shares, llama.cpp's older cache, and those of LM Studio
and Ollama.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from specchat.hub.cache import cache_root

Tool: TypeAlias = Literal["hub", "llama.cpp", "LM Studio", "Ollama"]

LARGEST_FILE = 1 << 20
OLLAMA_SERVICE = Path("/usr/share/ollama/.ollama/models")
"""The folder of Ollama's service on Linux, which runs as its own user."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of models, and the program it belongs to."""

    tool: Tool
    folder: Path


def find_places(
    environ: Mapping[str, str] = os.environ, home: Path | None = None, system: str = sys.platform
) -> tuple[Place, ...]:
    """Return the folders that exist, each once, the hub's cache first."""
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
    """Return the text of another program's small file, None if it cannot be read."""
    with suppress(OSError, ValueError):
        if path.is_file() and path.stat().st_size <= largest:
            return path.read_text("utf-8")
    return None


def _llama_cpp(environ: Mapping[str, str], home: Path, system: str) -> Iterator[Path]:
    """Yield the folder in LLAMA_CACHE, or else the system's default."""
    if named := environ.get("LLAMA_CACHE"):
        yield Path(named)
    elif system == "win32":
        yield Path(environ.get("LOCALAPPDATA") or home / "AppData/Local") / "llama.cpp"
    elif system == "darwin":
        yield home / "Library/Caches/llama.cpp"
    else:
        yield Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "llama.cpp"


def _lm_studio(home: Path) -> Iterator[Path]:
    """Yield the models folders of LM Studio's possible homes, the configured one first."""
    pointer = (read_small(home / ".lmstudio-home-pointer") or "").strip()
    named = [Path(pointer)] if pointer and Path(pointer).is_absolute() else []
    for folder in (*named, home / ".lmstudio", home / ".cache/lm-studio"):
        yield from _downloads(folder / "settings.json")
        yield folder / "models"


def _downloads(settings: Path) -> Iterator[Path]:
    """Yield the downloads folder in LM Studio's settings."""
    with suppress(ValueError, RecursionError):
        content = json.loads(read_small(settings) or "{}")
        named = content.get("downloadsFolder") if isinstance(content, dict) else None
        if isinstance(named, str) and Path(named).is_absolute():
            yield Path(named)


def _ollama(environ: Mapping[str, str], home: Path) -> Iterator[Path]:
    if named := environ.get("OLLAMA_MODELS", "").strip("\"' "):
        yield Path(named)
    yield home / ".ollama/models"
    yield OLLAMA_SERVICE
