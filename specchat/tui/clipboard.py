"""Copying with the desktop's clipboard program; without one, the terminal has to do it."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

from textual.app import App

TIMEOUT_SECONDS = 2.0
"""A program that takes longer is assumed to hang because its display is gone."""


class Copier:
    """Copies texts, and knows the last one."""

    def __init__(self, app: App[None], copy_by_terminal: Callable[[str], None]) -> None:
        """Begin with nothing."""
        self.text = ""
        """The text copied last."""
        self._app, self._copy_by_terminal = app, copy_by_terminal

    def copy(self, text: str) -> None:
        """Copy a text without blocking on the clipboard program, then say how."""
        self.text = text
        self._app.run_worker(self._copy(text))

    async def _copy(self, text: str) -> None:
        program = await asyncio.to_thread(copy_by_program, text)
        if not program:
            self._copy_by_terminal(text)
        how = f"with {program}" if program else "via the terminal"
        self._app.notify(f"Copied {len(text)} characters ({how}).")


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
