"""The user's TOML files: reading them, and changing one value without touching the rest."""

import codecs
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from specchat.errors import SettingsError
from specchat.settings.positions import parsed, unfinished_line
from specchat.system.private_files import write_private

LARGEST_FILE = 1 << 20
DOTTED = re.compile(r"[\w.\"' \t-]+")
MOST_DOTS = 1000
"""The most parts of a dotted key: tomllib takes quadratic time, minutes for 100,000 parts."""
PLACE_IN_FILE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


def read_file(path: Path) -> str | None:
    """Return a file's text, None if there is no such file; SettingsError if it cannot be read."""
    if path.is_fifo():
        raise SettingsError(f"{path} is a pipe, not a file: name a file")
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > LARGEST_FILE:
        raise SettingsError(f"{path} is larger than 1 MB: remove what does not belong there")
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise SettingsError(f"{path} line {line}: this is not UTF-8 text") from None


def load_file(path: Path, text: str) -> dict[str, Any]:
    """Return the content of a file's text; SettingsError names the line that is not TOML."""
    if any(run.count(".") > MOST_DOTS for run in DOTTED.findall(text)):
        raise SettingsError(f"{path}: a key has more than {MOST_DOTS} parts")
    try:
        return tomllib.loads(text)
    except ValueError as error:
        match = PLACE_IN_FILE.search(str(error))
        what = PLACE_IN_FILE.sub("", str(error))
        line = int(match[1]) if match and match[1] else unfinished_line(text)
    except RecursionError:
        what, line = "values are nested too deeply", unfinished_line(text)
    raise SettingsError(f"{path} line {line}: this is not TOML: {what}")


def change_value(
    path: Path,
    key_path: tuple[str, str],
    value: Any,
    new_file: str,
    added: Callable[[str], str | None],
) -> None:
    """Set the value of a key in a table, or remove it with None; nothing else changes.

    A missing file starts as `new_file`. `added` returns the text with a new key added, or None to
    let tomlkit add it. Raises SettingsError if the file cannot be read or written, or if the change
    would affect something else.
    """
    text = read_file(path)
    text = new_file if text is None else text
    content = load_file(path, text)
    table, key = key_path
    inner = table_in(content, table)
    if value is None and key not in inner:
        return
    new = None if key in inner else added(text)
    new = _changed(text, table, key, value) if new is None else new
    inner[key] = value
    wanted = {**content, table: {k: v for k, v in inner.items() if v is not None}}
    changed = parsed(new)
    if changed is None or _without_empty(changed) != _without_empty(wanted):
        raise SettingsError(f"{path}: {table}.{key} cannot be set without changing something else")
    replace_file(path, new)


def table_in(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a table of a file, empty if it is missing."""
    table = content.get(name, {})
    return table if isinstance(table, dict) else {}


def as_toml(value: object) -> str:
    """Return a value in TOML's syntax."""
    if isinstance(value, int | float):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def replace_file(path: Path, text: str) -> None:
    """Replace a file's text atomically, following a link. Raises SettingsError."""
    try:
        write_private(path, text.encode("utf-8"))
    except UnicodeEncodeError:
        raise SettingsError(f"{path} cannot be written: a value is not UTF-8 text") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from None


def _changed(text: str, table: str, key: str, value: Any) -> str:
    import tomlkit

    document: Any = tomlkit.parse(text)
    values = document.setdefault(table, {})
    if value is None:
        del values[key]
    elif not isinstance(value, dict):
        values[key] = value
    else:
        inner = values.setdefault(key, {})
        for name in [name for name in inner if name not in value]:
            del inner[name]
        inner.update(value)
    return str(document.as_string())


def _without_empty(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value != {}}
