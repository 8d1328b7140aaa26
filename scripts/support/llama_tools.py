"""Where llama.cpp's own tools are built, and for which release."""

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGE = "llama-cpp-python"


def installed_version() -> str:
    """Return the installed version of llama-cpp-python."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        sys.exit(f"{PACKAGE} is not installed: name a release with --version")


def find_tool(build: Path, tool: str) -> Path:
    """Return the path of a tool that was built."""
    for name in (tool, f"{tool}.exe"):
        for path in build.rglob(name):
            if path.is_file() and os.access(path, os.X_OK):
                return path
    sys.exit(f"{tool} was not built under {build}")
