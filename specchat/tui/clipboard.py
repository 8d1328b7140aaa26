"""The clipboard: by the desktop's own program where there is one, else through the terminal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping

__all__ = ["copy_by_program"]

SECONDS = 2.0
"""A program that takes longer hangs: its display is gone."""


def copy_by_program(text: str) -> str:
    """Put a text on the clipboard; return the program that did it, empty where none could."""
    for command in _commands(os.environ, sys.platform):
        if shutil.which(command[0]) is None:
            continue
        try:
            subprocess.run(
                command,
                input=text.encode("utf-16-le" if command[0] == "clip.exe" else "utf-8", "replace"),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return command[0]
    return ""


def _commands(environment: Mapping[str, str], platform: str) -> Iterator[tuple[str, ...]]:
    """Yield the programs of the displays there are; of a display elsewhere only the terminal knows.

    Programs that are started over ssh would fill the clipboard of the machine that is far away,
    unless its display is the user's own, forwarded.
    """
    if environment.get("WAYLAND_DISPLAY"):
        yield ("wl-copy",)
    if environment.get("DISPLAY"):
        yield "xclip", "-selection", "clipboard"
        yield "xsel", "--clipboard", "--input"
    is_here = not environment.get("SSH_CONNECTION")
    if platform == "darwin" and is_here:
        yield ("pbcopy",)
    if (platform == "win32" or environment.get("WSL_DISTRO_NAME")) and is_here:
        yield ("clip.exe",)
