"""What the set-up needs of a machine, checked in a second before anything is fetched."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from scripts.setup_env import fast
from scripts.setup_env.machine import lack_of_compilers
from scripts.setup_env.running import SetUpFailed
from specchat.system.installation import NO_HOME, has_home

ENVIRONMENT_BYTES = 300 << 20
"""What the environment takes, and pip's temporary files besides."""
BUILD_BYTES = 450 << 20
"""What the source and the objects of a build take at most."""
AGAIN = "then run this again"


def require_home() -> None:
    """Raise SetUpFailed unless this user has a home folder: specchat keeps its files there."""
    if not has_home():
        raise SetUpFailed(NO_HOME)


def require_machine(*, has_environment: bool, builds: bool) -> None:
    """Raise SetUpFailed if this machine lacks what the set-up needs.

    `has_environment` is whether packages are installed already, `builds` whether llama.cpp will be
    compiled.
    """
    folder = Path(fast.RECORDS)
    try:
        fast.ROOT.encode("utf-8")
    except UnicodeEncodeError:
        raise SetUpFailed(
            f"{fast.ROOT} has a byte in its name that is not UTF-8: rename that folder, {AGAIN}"
        ) from None
    if sys.platform != "win32" and os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0):
        raise SetUpFailed(
            f"{fast.ROOT} is on a disk that is mounted noexec, so programs cannot run there:"
            f" move this folder to another disk, {AGAIN}"
        )
    _require_temporary_folder()
    needed = BUILD_BYTES * builds + ENVIRONMENT_BYTES * (not has_environment)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SetUpFailed(
            f"not enough disk space in {fast.VENV}: about {needed >> 20} MB needed,"
            f" {free >> 20} MB free; free some, {AGAIN}"
        )
    if builds and (lack := lack_of_compilers(folder)):
        raise SetUpFailed(f"{lack}, {AGAIN}")


def _require_temporary_folder() -> None:
    try:
        tempfile.gettempdir()
    except FileNotFoundError:  # it tries TMPDIR, the usual ones, and the current folder
        raise SetUpFailed(
            f"no folder for temporary files: set TMPDIR to one that you can write to, {AGAIN}"
        ) from None
