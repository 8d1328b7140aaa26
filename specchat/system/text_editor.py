"""The user's text editor, run on a file until it is closed."""

import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specchat.errors import EditorFailed, InvalidOption


def edit_file(path: Path) -> None:
    """Open a file in the user's editor, and wait until it is closed.

    Raises InvalidOption if its command is not valid, EditorFailed if it cannot be started or fails.
    """
    command = editor_command()
    try:
        with _without_interrupts():
            code = subprocess.run([*command, str(path)], check=False).returncode
    except OSError as error:
        raise EditorFailed(
            f"the editor {command[0]} cannot be started ({error.strerror}):"
            " set EDITOR to another one"
        ) from None
    if code < 0:
        raise EditorFailed(f"the editor {command[0]} was ended by {_signal_name(-code)}")
    if code:
        raise EditorFailed(f"the editor {command[0]} failed with exit code {code}")


def editor_command() -> list[str]:
    """Return the editor's program and arguments: from VISUAL, or else EDITOR, or else the usual."""
    is_windows = os.name == "nt"  # there, backslashes are path separators
    for name in ("VISUAL", "EDITOR"):
        command = os.environ.get(name, "")
        try:
            arguments = shlex.split(command, posix=not is_windows)
        except ValueError as error:
            raise InvalidOption(f"{name}: {command}: {error}") from None
        if arguments:
            return [word.strip('"') for word in arguments] if is_windows else arguments
    return ["notepad" if is_windows else "vi"]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Leave Ctrl+C, which the terminal sends to both programs, to the editor.

    The handler does nothing. Ignoring the signal would not do: the editor would inherit that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
