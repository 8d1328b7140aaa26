"""Writing pairs into the user's own models.toml."""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from specchat.settings.positions import parsed
from specchat.settings.toml_file import as_toml, change_value, load_file, read_file, table_in

PAIR = "pair"
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
NEW_FILE = """\
# Your own pairs: they add to those that come with specchat, or replace them by name.
# `specchat ask --target FILE --save-as NAME` adds one, `specchat rm NAME` removes it.
"""


def has_pair(path: Path, name: str) -> bool:
    """Return True if a file has a pair of this name; SettingsError if it cannot be read."""
    return name in table_in(load_file(path, read_file(path) or ""), PAIR)


def write_pair(path: Path, name: str, values: Mapping[str, str]) -> None:
    """Write a pair, in place of one of that name; the file is created if it is missing.

    Raises SettingsError if the file cannot be read or written.
    """
    change_value(path, (PAIR, name), dict(values), NEW_FILE, partial(_added, name, values))


def drop_pair(path: Path, name: str) -> None:
    """Remove a pair; SettingsError if the file cannot be read or written."""
    change_value(path, (PAIR, name), None, "", lambda text: text)


def _added(name: str, values: Mapping[str, str], text: str) -> str | None:
    """Return the text with a pair at its end, unless all pairs are in one inline table."""
    end = "\r\n" if "\r\n" in text else "\n"
    key = name if BARE_KEY.fullmatch(name) else as_toml(name)
    lines = [f"[{PAIR}.{key}]", *(f"{each} = {as_toml(value)}" for each, value in values.items())]
    start = end if text.endswith("\n") or not text else 2 * end
    added = text + start + end.join(lines) + end
    return None if parsed(added) is None else added
