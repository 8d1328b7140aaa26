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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.setup_env import fast
from scripts.setup_env.archives import extract
from scripts.setup_env.exact_kernels import CHANGES, add_switch
from scripts.setup_env.machine import lack_of_compilers, num_cores, num_jobs
from scripts.setup_env.recipes import (
    DEFINITIONS,
    LLAMA,
    Backend,
    Recipe,
    build_environment,
    user_choices,
)
from scripts.setup_env.running import BuildSteps, SetUpFailed, run_pip, say
from scripts.setup_env.unused_parts import WITHOUT_COMMON, leave_out

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
        """Copy a wheel into the cache in one step and return its path. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        half = self.folder / "half-copied"
        try:
            shutil.copyfile(wheel, half)
            return half.replace(self.folder / wheel.name)
        finally:
            half.unlink(missing_ok=True)

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
        WITHOUT_COMMON,
        *user_choices(),
    ]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    name = f"{version}-{backend.name}-{recipe.name}-{digest}".replace(" ", "-").lower()
    return Entry(cache_folder() / name)


def needs_build(version: str, backend: Backend, recipes: Sequence[Recipe]) -> bool:
    """Return True if the first recipe that is not known to crash has no wheel yet."""
    entries = ((recipe, entry_for(version, backend, recipe)) for recipe in recipes)
    for recipe, entry in entries:
        if not entry.has_crashed:
            return not (entry.wheel or _finished(_place(backend, recipe)))
    return False


def build(version: str, backend: Backend, recipe: Recipe) -> Path:
    """Build the wheel, continuing an interrupted build, and return its path."""
    place = _place(backend, recipe)
    if not _finished(place):
        _compile(version, backend, recipe, place)
    wheel = _finished(place)
    if wheel is None:
        raise SetUpFailed("building llama.cpp produced no wheel: remove .venv and try again")
    return wheel


def _place(backend: Backend, recipe: Recipe) -> Path:
    """Return the folder of an unfinished build."""
    return BUILD / f"{backend.name}-{recipe.name}".replace(" ", "-").lower()


def _compile(version: str, backend: Backend, recipe: Recipe, place: Path) -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    if lack := lack_of_compilers(BUILD):
        raise SetUpFailed(f"{lack}, then run this again")
    jobs = num_jobs(backend)
    steps = BuildSteps(place / "steps")
    say(_announcement(backend, recipe, jobs, steps.share_left))
    root = source(version)
    shutil.rmtree(root / "llama_cpp" / "lib", ignore_errors=True)  # built by another recipe
    options = ("--verbose", "--no-cache-dir", "--no-deps", "--no-build-isolation")
    setting = ("--config-settings", f"build-dir={place / 'objects'}")  # pip 23.0 has no -C
    folders = ("--wheel-dir", str(place), *setting, str(root))
    environment = build_environment(recipe, backend, jobs, os.environ)
    run_pip("wheel", *options, *folders, environment=environment, steps=steps)


def forget_build() -> None:
    """Remove the build folder; the wheel is in the cache."""
    shutil.rmtree(BUILD, ignore_errors=True)


def _announcement(backend: Backend, recipe: Recipe, jobs: int, share_left: float = 1) -> str:
    """Return what is built and how long that takes, the part that is done already left out."""
    verb = (
        "building" if share_left == 1 else f"continuing at {100 * (1 - share_left):.0f} % to build"
    )
    kind = {"CPU": "this CPU"}.get(backend.name, backend.name)
    how = "" if recipe.name == "native" else f", {recipe.name}"
    minutes = max(1, round(backend.core_minutes * share_left / jobs))
    cores = "one free core" if jobs == 1 else f"{jobs} free cores"
    if jobs < num_cores() and not os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL"):
        cores += ", for lack of memory"
    unit = "minute" if minutes == 1 else "minutes"
    return f"{verb} llama.cpp for {kind}{how} (about {minutes} {unit} on {cores}, once)"


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
        extract(archive, half)
    shutil.rmtree(place.parent, ignore_errors=True)
    if not add_switch(next(half.iterdir())):
        say("this llama.cpp has no place for the switch of exact kernels: see `specchat doctor`")
    leave_out(next(half.iterdir()))
    half.replace(place.parent)
    return place


def unpacked(version: str) -> Path:
    """Return where the source is while there is something to build."""
    return BUILD / "source" / f"{LLAMA.replace('-', '_')}-{version}"


def _finished(place: Path) -> Path | None:
    """Return a complete wheel in a folder; a partial zip file has no table of contents."""
    return next((wheel for wheel in place.glob("*.whl") if zipfile.is_zipfile(wheel)), None)
