"""Building llama-cpp-python from source and caching the wheels.

A wheel is cached for the user under everything it depends on, so that neither a second clone nor a
new environment builds it again. An interrupted build continues where it stopped.
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

from scripts.setup_env import fast
from scripts.setup_env.exact_kernels import CHANGES, add_switch
from scripts.setup_env.machine import has_compiler, how_to_get_a_compiler, num_jobs
from scripts.setup_env.recipes import (
    DEFINITIONS,
    LLAMA,
    Backend,
    Recipe,
    build_environment,
    user_choices,
)
from scripts.setup_env.running import SetUpFailed, run_pip, say

BUILD = Path(fast.RECORDS) / "build"


@dataclass(frozen=True, slots=True)
class Entry:
    """A place for one wheel in the cache."""

    folder: Path

    @property
    def wheel(self) -> Path | None:
        """The wheel; None until it is built."""
        return next(iter(sorted(self.folder.glob("*.whl"))), None)

    @property
    def has_crashed(self) -> bool:
        """Whether the wheel crashed on this machine."""
        return self._mark.exists()

    @property
    def _mark(self) -> Path:
        return self.folder / "crashed"

    def keep(self, wheel: Path) -> Path:
        """Copy a wheel into the cache in one step and return its path."""
        self.folder.mkdir(parents=True, exist_ok=True)
        half = self.folder / "half-copied"
        shutil.copyfile(wheel, half)
        return half.replace(self.folder / wheel.name)

    def mark_crashed(self) -> None:
        """Replace the wheel by a mark that it crashes on this machine."""
        if self.wheel:
            self.wheel.unlink()
        self._mark.touch()


def cache_folder() -> Path:
    """Return the user's cache of wheels; a folder of the environment if that cannot be made."""
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
    """Return the cache entry of the wheel that this recipe makes on this machine.

    The wheel has no code for a certain Python version (its tag is py3-none), so the key is made of
    the platform, the CPU and the build settings, and all Pythons share one wheel.
    """
    key = [
        version,
        sysconfig.get_platform(),
        fast.cpu(),
        backend.name,
        backend.toolkit,
        recipe.name,
        *DEFINITIONS,
        *(new for _, new in CHANGES),
        *user_choices(),
    ]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    name = f"{version}-{backend.name}-{recipe.name}-{digest}".replace(" ", "-").lower()
    return Entry(cache_folder() / name)


def build(version: str, backend: Backend, recipe: Recipe) -> Path:
    """Build the wheel, continuing an interrupted build, and return its path."""
    place = BUILD / f"{backend.name}-{recipe.name}".replace(" ", "-").lower()
    if not _finished(place):
        _compile(version, backend, recipe, place)
    wheel = _finished(place)
    if wheel is None:
        raise SetUpFailed("building llama.cpp produced no wheel: remove .venv and try again")
    return wheel


def _compile(version: str, backend: Backend, recipe: Recipe, place: Path) -> None:
    if not has_compiler():
        command = how_to_get_a_compiler()
        raise SetUpFailed(
            f"building llama.cpp needs a C++ compiler: {command}, then run this again"
        )
    jobs = num_jobs(backend)
    say(_announcement(backend, recipe, jobs))
    root = source(version)
    shutil.rmtree(root / "llama_cpp" / "lib", ignore_errors=True)  # built by another recipe
    options = ("--verbose", "--no-cache-dir", "--no-deps", "--no-build-isolation")
    folders = ("--wheel-dir", str(place), "-C", f"build-dir={place / 'objects'}", str(root))
    environment = build_environment(recipe, backend, jobs, os.environ)
    run_pip("wheel", *options, *folders, environment=environment)


def forget_build() -> None:
    """Remove the build folder; the wheel is in the cache."""
    shutil.rmtree(BUILD, ignore_errors=True)


def _announcement(backend: Backend, recipe: Recipe, jobs: int) -> str:
    kind = {"CPU": "this CPU"}.get(backend.name, backend.name)
    how = "" if recipe.name == "native" else f", {recipe.name}"
    minutes = max(1, round(backend.core_minutes / jobs))
    unit = "minute" if minutes == 1 else "minutes"
    return f"building llama.cpp for {kind}{how} (about {minutes} {unit}, once)"


def source(version: str) -> Path:
    """Return the unpacked source, downloaded once per build."""
    place = unpacked(version)
    if place.exists():
        return place
    download = BUILD / "download"
    shutil.rmtree(download, ignore_errors=True)
    options = ("--no-deps", "--no-build-isolation", "--no-binary", LLAMA, "--dest", str(download))
    run_pip("download", *options, f"{LLAMA}=={version}")
    half = BUILD / "half-unpacked"
    shutil.rmtree(half, ignore_errors=True)
    with tarfile.open(next(download.glob("*.tar.gz"))) as archive:
        archive.extractall(half, filter="data")
    shutil.rmtree(place.parent, ignore_errors=True)
    if not add_switch(next(half.iterdir())):
        say("this llama.cpp has no place for the switch of exact kernels: see `specchat doctor`")
    half.replace(place.parent)
    return place


def unpacked(version: str) -> Path:
    """Return where the source is while there is something to build."""
    return BUILD / "source" / f"{LLAMA.replace('-', '_')}-{version}"


def _finished(place: Path) -> Path | None:
    """Return a complete wheel in a folder; a partial zip file has no table of contents."""
    return next((wheel for wheel in place.glob("*.whl") if zipfile.is_zipfile(wheel)), None)
