"""The clipboard, by the desktop's programs; without one, the terminal has to do the copying."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

from textual.app import App

from specchat.images.image import type_of

OSASCRIPT = "osascript"
TIMEOUT_SECONDS = 2.0
"""A program that takes longer is assumed to hang because its display is gone."""
IMAGE_TIMEOUT_SECONDS = 8.0
"""The owner of a picture may first have to encode it, which takes seconds for a large screen."""


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


def image_in_clipboard() -> bytes:
    """Return the picture that was copied, as a PNG file; empty if there is none, or no program."""
    for command in _image_commands(os.environ, sys.platform):
        if shutil.which(command[0]) is None:
            continue
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=IMAGE_TIMEOUT_SECONDS, check=True
            )
        except (OSError, subprocess.SubprocessError):
            continue
        is_text = command[0] == OSASCRIPT
        found = _printed_by_osascript(done.stdout) if is_text else done.stdout
        if type_of(found):
            return found
    return b""


def _image_commands(environment: Mapping[str, str], platform: str) -> Iterator[tuple[str, ...]]:
    """Yield the commands that print the picture in the clipboard of a display of this machine."""
    if environment.get("WAYLAND_DISPLAY"):
        yield ("wl-paste", "--no-newline", "--type", "image/png")
    if environment.get("DISPLAY"):
        yield ("xclip", "-selection", "clipboard", "-target", "image/png", "-out")
    if platform == "darwin" and not environment.get("SSH_CONNECTION"):
        yield (OSASCRIPT, "-e", "get the clipboard as «class PNGf»")


def _printed_by_osascript(printed: bytes) -> bytes:
    """Return the bytes of what it prints as «data PNGf89504E47...»."""
    _, _, digits = printed.partition(b"PNGf")
    try:
        return bytes.fromhex(digits.strip().decode("utf-8").rstrip("»"))
    except ValueError:
        return b""


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
