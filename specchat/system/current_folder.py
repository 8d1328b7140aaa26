"""The folder that relative paths start from, which may have been deleted."""

from pathlib import Path


def current_folder() -> Path:
    """Return the working directory; as a relative path if it was deleted."""
    try:
        return Path.cwd()
    except OSError:
        return Path()
