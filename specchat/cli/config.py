"""`specchat config`: print the settings and their sources, or edit the file."""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specchat.cli.terminal import print_exactly, print_result, say
from specchat.settings.editor import create_settings
from specchat.settings.sources import read_settings, settings_path
from specchat.settings.toml_file import as_toml
from specchat.system.text_editor import edit_file


def run(arguments: argparse.Namespace) -> None:
    """Print the path or the settings, or open the file in an editor."""
    if arguments.action == "path":
        print_exactly(str(settings_path()))
    elif arguments.action == "edit":
        _edit(settings_path())
    else:
        settings = read_settings()
        if settings.notice:
            say(settings.notice)
        effective = {
            name: {"value": settings.written(name), "source": settings.source(name)}
            for name in settings.names
        }
        record = {"path": str(settings.path), "settings": effective}
        print_result(arguments, record, list(_lines(effective)))


def _lines(settings: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each setting: its name, its value in the file's syntax, its source."""
    values = [setting["value"] for setting in settings.values()]
    shown = ["-" if value is None else as_toml(value) for value in values]
    name_width, width = max(map(len, settings)), min(32, max(map(len, shown)))
    for (name, setting), value in zip(settings.items(), shown, strict=True):
        yield f"{name:<{name_width}} = {value:<{width}}  {setting['source']}"


def _edit(path: Path) -> None:
    """Open the file in the user's editor, creating it if needed; then validate it."""
    create_settings(path)
    edit_file(path)
    read_settings(path, {})
