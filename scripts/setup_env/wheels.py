"""Building llama-cpp-python from source, and keeping the wheels that were built.

A wheel is kept in the user's cache under everything it depends on, so that a second clone, or a new
environment in this one, does not build again. An interrupted build goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from setup_env import fast
from setup_env.machine import has_compiler, how_to_get_a_compiler, num_jobs
from setup_env.recipes import LLAMA, Backend, Recipe, build_environment, user_choices
from setup_env.running import SetUpFailed, run_pip, say

BUILD = Path(fast.RECORDS) / "build"


@dataclass(frozen=True, slots=True)
class Entry:
    """The place of one wheel in the cache."""

    folder: Path

    @property
    def wheel(self) -> Path | None:
        """The wheel, once it is built."""
        return next(iter(sorted(self.folder.glob("*.whl"))), None)

    @property
    def has_died(self) -> bool:
        """Whether its probe died on this machine."""
        return self._mark.exists()

    @property
    def _mark(self) -> Path:
        return self.folder / "died"

    def keep(self, wheel: Path) -> Path:
        """Move a wheel in, complete or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        half = self.folder / "half-copied"
        shutil.copyfile(wheel, half)
        return half.replace(self.folder / wheel.name)

    def mark_died(self) -> None:
        """Remember that this wheel dies here, in place of the wheel."""
        if self.wheel:
            self.wheel.unlink()
        self._mark.touch()


def cache_folder() -> Path:
    """Return the user's cache for wheels; one inside the environment where there is no home."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", fast.RECORDS)) / "specchat" / "Cache"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches" / "specchat"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specchat"
    try:
        (base / "wheels").mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(fast.RECORDS) / "wheels"
    return base / "wheels"


def entry_for(version: str, backend: Backend, recipe: Recipe) -> Entry:
    """Return the place of the wheel for this machine made by this recipe.

    The wheel holds no code of a Python version (its tag is py3-none), so the platform, the CPU and
    the build settings make the key, and all the machine's Pythons share one wheel.
    """
    key = [
        version,
        sysconfig.get_platform(),
        fast.cpu(),
        backend.name,
        backend.toolkit,
        recipe.name,
        *user_choices(),
    ]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    name = f"{version}-{backend.name}-{recipe.name}-{digest}".replace(" ", "-").lower()
    return Entry(cache_folder() / name)


def build(version: str, backend: Backend, recipe: Recipe) -> Path:
    """Build the wheel, or go on with a build that was interrupted, and return it."""
    place = BUILD / recipe.name.replace(" ", "-")
    if not _finished(place):
        _compile(version, backend, recipe, place)
    wheel = _finished(place)
    if wheel is None:
        raise SetUpFailed("the build of llama.cpp left no wheel")
    return wheel


def _compile(version: str, backend: Backend, recipe: Recipe, place: Path) -> None:
    if not has_compiler():
        cure = how_to_get_a_compiler()
        raise SetUpFailed(f"building llama.cpp needs a C++ compiler: {cure}, then run this again")
    jobs = num_jobs(backend)
    say(_announcement(backend, recipe, jobs))
    source = _source(version)
    shutil.rmtree(source / "llama_cpp" / "lib", ignore_errors=True)  # of another recipe's build
    options = ("--verbose", "--no-cache-dir", "--no-deps", "--no-build-isolation")
    folders = ("--wheel-dir", str(place), "-C", f"build-dir={place / 'objects'}", str(source))
    environment = build_environment(recipe, backend, jobs, os.environ)
    run_pip("wheel", *options, *folders, environment=environment)


def forget_build() -> None:
    """Remove what only a build needs; the wheel itself is in the cache."""
    shutil.rmtree(BUILD, ignore_errors=True)


def _announcement(backend: Backend, recipe: Recipe, jobs: int) -> str:
    kind = {"CPU": "this CPU"}.get(backend.name, backend.name)
    how = "" if recipe.name == "native" else f" ({recipe.name})"
    minutes = max(1, round(backend.core_minutes / jobs))
    unit = "minute" if minutes == 1 else "minutes"
    cores = "core" if jobs == 1 else "cores"
    return f"building llama.cpp for {kind}{how}: about {minutes} {unit} on {jobs} {cores}, once"


def _source(version: str) -> Path:
    """Download the source and unpack it, once per build."""
    name = f"{LLAMA.replace('-', '_')}-{version}"
    unpacked = BUILD / "source" / name
    if unpacked.exists():
        return unpacked
    download = BUILD / "download"
    shutil.rmtree(download, ignore_errors=True)
    options = ("--no-deps", "--no-build-isolation", "--no-binary", LLAMA, "--dest", str(download))
    run_pip("download", *options, f"{LLAMA}=={version}")
    half = BUILD / "half-unpacked"
    shutil.rmtree(half, ignore_errors=True)
    with tarfile.open(next(download.glob("*.tar.gz"))) as archive:
        archive.extractall(half, filter="data")
    shutil.rmtree(unpacked.parent, ignore_errors=True)
    half.replace(unpacked.parent)
    return unpacked


def _finished(place: Path) -> Path | None:
    """Return the wheel that lies there complete: a zip file's table of contents is its end."""
    return next((wheel for wheel in place.glob("*.whl") if zipfile.is_zipfile(wheel)), None)
