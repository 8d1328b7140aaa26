"""Writing settings: one at a time into the user's own file, whose comments and order stay."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from specchat.errors import SettingsError
from specchat.options import Option
from specchat.private_files import write_private
from specchat.settings.positions import statements
from specchat.settings.schema import KEYS, SETTINGS, TABLES, find_setting
from specchat.settings.sources import TARGETS, load_file, read_file

__all__ = [
    "as_toml",
    "create_settings",
    "documented_settings",
    "replace_file",
    "write_setting",
]

INTRODUCTION = """\
# The settings of specchat. What is commented out shows what is built in, or an example.
# The command line comes before the environment (SPECCHAT_TOP_K and so on, by the names below),
# and the environment before this file; `specchat config show` tells what holds and from where.
"""
KEY_LINES = """\
# Keys of the chat's actions: an action's name and its key, or several keys.
# quit = "ctrl+q"
"""


def write_setting(path: Path, name: str, value: object) -> None:
    """Set one setting in the file, or with None take it out; all else stays as it is.

    Makes the file, documented, where there is none. Of a pair and a target, setting one takes out
    the other. Raises InvalidOption for a wrong name or value and SettingsError where the file
    cannot be read or written.
    """
    setting = find_setting(name)
    if value is not None:
        value = setting.write(setting.checked(value))
        for other in TARGETS if name in TARGETS else ():
            if other != name:
                write_setting(path, other, None)
    text = read_file(path)
    text = documented_settings() if text is None else text
    wanted = load_file(path, text)
    is_there = setting.key in _table(wanted, setting)
    if value is None and not is_there:
        return
    text = _changed(text, setting, value) if is_there else _added(text, setting, value)
    if not _says(text, _with(wanted, setting, value)):
        raise SettingsError(f"{path}: {name} cannot be set without disturbing what is there")
    replace_file(path, text)


def create_settings(path: Path) -> None:
    """Make the documented file where there is none; SettingsError if that fails."""
    if read_file(path) is None:
        replace_file(path, documented_settings())


def documented_settings() -> str:
    """Return a file that explains every setting, each commented out."""
    tables = "".join(_documented_table(table) for table in TABLES if table != KEYS)
    return f"{INTRODUCTION}{tables}\n[{KEYS}]\n{KEY_LINES}"


def as_toml(value: object) -> str:
    """Return a value as it stands in the file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _documented_table(table: str) -> str:
    return f"\n[{table}]\n" + "".join(
        f"# {_documented(setting)}\n# {setting.key} = {as_toml(setting.sample)}\n"
        for setting in SETTINGS
        if setting.table == table
    )


def _documented(setting: Option) -> str:
    """Return what is said of a setting: its help, and its rule unless it is a switch."""
    text = setting.help.removesuffix(".")
    return f"{text}." if setting.main_type is bool else f"{text} ({setting.description})."


def _table(content: dict[str, Any], setting: Option) -> dict[str, Any]:
    table = content.get(setting.table, {})
    return table if isinstance(table, dict) else {}


def _with(content: dict[str, Any], setting: Option, value: object) -> dict[str, Any]:
    """Return what a file should say after the change."""
    table = {**_table(content, setting), setting.key: value}
    return {
        **content,
        setting.table: {name: each for name, each in table.items() if each is not None},
    }


def _says(text: str, wanted: dict[str, Any]) -> bool:
    """Say whether a text says just what is wanted; a table that is empty says nothing."""
    try:
        content = tomllib.loads(text)
    except ValueError:
        return False
    return _without_empty(content) == _without_empty(wanted)


def _without_empty(content: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value != {}}


def _changed(text: str, setting: Option, value: object) -> str:
    """Change or take out a setting that is there; tomlkit keeps what stands around it."""
    import tomlkit

    document = tomlkit.parse(text)
    table: Any = document[setting.table]
    if value is None:
        del table[setting.key]
    else:
        table[setting.key] = value
    return document.as_string()


def _added(text: str, setting: Option, value: object) -> str:
    """Add a setting: below the line that shows it commented out, else at its table's end."""
    lines = text.split("\n")
    end = "\r" if lines[0].endswith("\r") else ""
    new = f"{setting.key} = {as_toml(value)}{end}"
    after = _line_to_follow(text, setting)
    if after is not None:
        return "\n".join([*lines[:after], new, *lines[after:]])
    if setting.table in tomllib.loads(text):  # an inline table, or dotted names
        return _changed(text, setting, value)
    start = "\n" if text and not text.endswith("\n") else ""
    return f"{text}{start}{end}\n[{setting.table}]{end}\n{new}\n"


def _line_to_follow(text: str, setting: Option) -> int | None:
    """Return the last line of what a new setting is to follow; None if its table has no header."""
    example = re.compile(rf"\s*#\s*{re.escape(setting.key)}\s*=")
    last = None
    for statement in statements(text):
        if statement.table != (setting.table,):
            continue
        bottom = statement.line + statement.text.count("\n") - 1
        if example.match(statement.text):
            return bottom
        if statement.is_header or statement.content:
            last = bottom
    return last


def replace_file(path: Path, text: str) -> None:
    """Put a text in the place of a file's, whole or not at all; a link stays one.

    Raises SettingsError where that fails.
    """
    try:
        write_private(path, text.encode("utf-8"))
    except UnicodeEncodeError:
        raise SettingsError(f"{path} cannot be written: a value is not UTF-8 text") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from None
