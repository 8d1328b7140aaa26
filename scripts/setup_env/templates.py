"""The chat templates in llama-cpp-python's source distribution, which the tests check formats with.

They are kept for the user beside the wheels when llama.cpp is built, or fetched once for the tests.
None is part of the repository. `LLAMA_TEMPLATES` in the environment names a folder to use instead.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from scripts.setup_env import wheels
from scripts.setup_env.running import SetUpFailed, only_one, say

INSIDE = Path("vendor", "llama.cpp", "models", "templates")
VARIABLE = "LLAMA_TEMPLATES"
PATTERN = "*.jinja"


def find_templates(version: str) -> Path | None:
    """Return the folder of a release's templates; None if they are not here.

    Raises SetUpFailed if the environment names a folder without templates.
    """
    if given := os.environ.get(VARIABLE):
        if not any(Path(given).glob(PATTERN)):
            raise SetUpFailed(f"{VARIABLE} names {given}, which has no templates: correct it")
        return Path(given)
    folder = _folder(version)
    return folder if folder.is_dir() else None


def keep_templates(version: str, source: Path) -> Path:
    """Copy a release's templates out of its unpacked source, in one step, and return the folder."""
    folder = _folder(version)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(dir=folder.parent))
    for path in (source / INSIDE).glob(PATTERN):
        shutil.copyfile(path, half / path.name)
    return half.replace(folder)


def fetch_templates(version: str) -> Path:
    """Return the folder of a release's templates, fetching its source first if necessary.

    Raises SetUpFailed, CommandFailed or OSError if the source cannot be fetched.
    """
    with only_one():
        if found := find_templates(version):
            return found
        say("downloading llama.cpp's source for its chat templates (73 MB, once)")
        try:
            return keep_templates(version, wheels.source(version))
        finally:
            wheels.forget_build()


def _folder(version: str) -> Path:
    return wheels.cache_folder().parent / "templates" / version
