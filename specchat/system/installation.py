"""Finds what a user's account or a damaged installation lacks.

This is needed where packages are missing, and by the set-up script: standard library only.
"""

import os
import shlex
import sys
from pathlib import Path

NO_HOME = "no home folder: set HOME to a folder that you can write to, then run this again"


def has_home() -> bool:
    """Return True if this user has a home folder, where specchat keeps its files.

    A container may run as a user that the system does not know, and without HOME.
    """
    if sys.platform != "win32" and os.environ.get("HOME") == "":
        return False
    try:
        return Path.home().is_absolute()
    except RuntimeError:
        return False


def missing_package(error: BaseException) -> str:
    """Return which package an error is about and how to repair that; "" for any other error."""
    name = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    if not name or name.partition(".")[0] == "specchat":
        return ""
    records = Path(sys.prefix, "setup")
    repair = "reinstall specchat"
    if (records / "venv").is_file():  # the set-up script's environment, which it makes again
        repair = shlex.join(["rm", str(records / "ready"), str(records / "venv")])
    return f"the package {name} is missing from {sys.prefix}: {repair}, then run this again"
