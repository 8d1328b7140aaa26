"""Copying with the desktop's clipboard program; without one, the terminal has to do it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping

TIMEOUT_SECONDS = 2.0
"""A program that takes longer is assumed to hang because its display is gone."""


def copy_by_program(text: str) -> str:
    """Copy a text; return the name of the program used, empty if none worked."""
    for command in _commands(os.environ, sys.platform):
        if shutil.which(command[0]) is None:
            continue
        try:
            subprocess.run(
                command,
                input=text.encode("utf-16-le" if command[0] == "clip.exe" else "utf-8", "replace"),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=TIMEOUT_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return command[0]
    return ""


def _commands(environment: Mapping[str, str], platform: str) -> Iterator[tuple[str, ...]]:
    """Yield the commands for the displays of this machine.

    Over SSH they would fill the remote machine's clipboard, so there are none unless its display is
    forwarded.
    """
    if environment.get("WAYLAND_DISPLAY"):
        yield ("wl-copy",)
    if environment.get("DISPLAY"):
        yield ("xclip", "-selection", "clipboard")
        yield ("xsel", "--clipboard", "--input")
    is_local = not environment.get("SSH_CONNECTION")
    if platform == "darwin" and is_local:
        yield ("pbcopy",)
    if (platform == "win32" or environment.get("WSL_DISTRO_NAME")) and is_local:
        yield ("clip.exe",)
