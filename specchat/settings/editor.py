"""Writing settings one at a time, and the file that documents all of them."""

import re
import tomllib
from functools import partial
from pathlib import Path
from threading import RLock

from specchat.options.option import Option
from specchat.settings.positions import statements
from specchat.settings.schema import KEYS, SERVERS, SETTINGS, TABLES, find_setting
from specchat.settings.sources import TARGETS
from specchat.settings.toml_file import as_toml, change_value, read_file, replace_file

INTRODUCTION = """\
# The settings of specchat. Commented lines show the defaults, or examples.
# Options of the command line override environment variables (SPECCHAT_TOP_K and so on, by the names
# below), and those override this file. `specchat config show` prints each value and its source.
"""
SERVER_LINES = """\
# Servers to connect to, each in a table under a name of your choice. A key is in a file that only
# you can read (chmod 600), or in an environment variable.
# workstation = { url = "http://workstation:8080", model = "", key_file = "workstation.key" }
"""
KEY_LINES = """\
# Keys of the chat's actions: an action's name and its key, or several keys.
# quit = "ctrl+q"
"""

_writing = RLock()
"""Held while a setting is written: threads that write different ones would undo each other's."""


def write_setting(path: Path, name: str, value: object) -> None:
    """Write one setting, as its option's `write` returns it; None removes it.

    A missing file is created with its documentation. Writing a pair removes a target, and vice
    versa. Raises InvalidOption for a wrong name or value, SettingsError if the file cannot be read
    or written.
    """
    setting = find_setting(name)
    with _writing:
        if value is not None:
            value = setting.write(setting.checked(value))
            for other in TARGETS if name in TARGETS else ():
                if other != name:
                    write_setting(path, other, None)
        key_path = (setting.table, setting.key)
        change_value(path, key_path, value, documented_settings(), partial(_added, setting, value))


def create_settings(path: Path) -> None:
    """Create the documented file if there is none; SettingsError if that fails."""
    if read_file(path) is None:
        replace_file(path, documented_settings())


def documented_settings() -> str:
    """Return a file that explains every setting, each commented out."""
    tables = "".join(_documented_table(table) for table in TABLES if table not in {KEYS, SERVERS})
    return f"{INTRODUCTION}{tables}\n[{SERVERS}]\n{SERVER_LINES}\n[{KEYS}]\n{KEY_LINES}"


def _documented_table(table: str) -> str:
    """Return a table with the help of its settings, and their rules unless they are switches."""
    lines = ["", f"[{table}]"]
    for setting in SETTINGS:
        if setting.table == table:
            rule = "" if setting.main_type is bool else f" ({setting.description})"
            lines.append(f"# {setting.help.removesuffix('.')}{rule}.")
            lines.append(f"# {setting.key} = {as_toml(setting.sample)}")
    return "\n".join(lines) + "\n"


def _added(setting: Option, value: object, text: str) -> str | None:
    """Return the text with a setting added below its documentation, or at its table's end."""
    lines = text.split("\n")
    end = "\r" if lines[0].endswith("\r") else ""
    new = f"{setting.key} = {as_toml(value)}{end}"
    after = _line_to_follow(text, setting)
    if after is not None:
        return "\n".join([*lines[:after], new, *lines[after:]])
    if setting.table in tomllib.loads(text):  # an inline table, or dotted names
        return None
    start = "\n" if text and not text.endswith("\n") else ""
    return f"{text}{start}{end}\n[{setting.table}]{end}\n{new}\n"


def _line_to_follow(text: str, setting: Option) -> int | None:
    """Return the line after which a new setting goes; None if its table has no header."""
    example = re.compile(rf"\s*#\s*{re.escape(setting.key)}\s*=")
    last = None
    for statement in statements(text):
        if statement.table != (setting.table,):
            continue
        bottom = statement.line + statement.text.count("\n") - 1
        if example.match(statement.text):
            return bottom
        if statement.content:
            last = bottom
    return last
