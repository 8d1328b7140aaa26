"""The Pythons of this machine that are too old for specchat."""

import shutil
from pathlib import Path


def old_pythons() -> list[Path]:
    """Return the Pythons of this machine that are older than 3.11, on the PATH or pyenv's."""
    names = ("python2", "python2.7", "python3.6", "python3.8", "python3.9", "python3.10")
    found = [Path(each) for each in map(shutil.which, names) if each and "shims" not in each]
    versions = Path.home() / ".pyenv" / "versions"
    patterns = ("2.*/bin/python", "3.[0-9].*/bin/python", "3.10.*/bin/python")
    return [*found, *(path for pattern in patterns for path in sorted(versions.glob(pattern)))]
