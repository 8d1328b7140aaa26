"""`specchat config`: print the settings and their sources, or edit the file."""

import argparse
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specchat.cli.terminal import print_exactly, print_result
from specchat.errors import InvalidOption, SettingsError
from specchat.settings.editor import create_settings
from specchat.settings.sources import read_settings, settings_path
from specchat.settings.toml_file import as_toml


def run(arguments: argparse.Namespace) -> None:
    """Print the path or the settings, or open the file in an editor."""
    if arguments.action == "path":
        print_exactly(str(settings_path()))
    elif arguments.action == "edit":
        _edit(settings_path())
    else:
        settings = read_settings()
        found = {
            name: {"value": settings.written(name), "source": settings.source(name)}
            for name in settings.names
        }
        record = {"path": str(settings.path), "settings": found}
        print_result(arguments, record, list(_lines(found)))


def _lines(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each setting: its name, its value in the file's syntax, its source."""
    values = [each["value"] for each in found.values()]
    shown = ["-" if value is None else as_toml(value) for value in values]
    name_width, width = max(map(len, found)), min(32, max(map(len, shown)))
    for (name, each), value in zip(found.items(), shown, strict=True):
        yield f"{name:<{name_width}} = {value:<{width}}  {each['source']}"


def _edit(path: Path) -> None:
    """Open the file in the user's editor, creating it if needed; then validate it."""
    words = _editor()
    create_settings(path)
    try:
        code = subprocess.run([*words, str(path)], check=False).returncode
    except OSError as error:
        raise SettingsError(
            f"the editor {words[0]} cannot be started ({error.strerror}): set EDITOR to another one"
        ) from None
    if code != 0:
        raise SettingsError(f"the editor {words[0]} failed with exit code {code}")
    read_settings(path, {})


def _editor() -> list[str]:
    is_windows = os.name == "nt"  # there, backslashes are path separators
    for name in ("VISUAL", "EDITOR"):
        command = os.environ.get(name, "")
        try:
            words = shlex.split(command, posix=not is_windows)
        except ValueError as error:
            raise InvalidOption(f"{name}: {command}: {error}") from None
        if words:
            return [word.strip('"') for word in words] if is_windows else words
    return ["notepad" if is_windows else "vi"]
