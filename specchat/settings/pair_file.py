"""Writing pairs into the user's own models.toml, whose comments and order stay."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specchat.errors import SettingsError
from specchat.settings.editor import as_toml, replace_file
from specchat.settings.sources import load_file, read_file

__all__ = ["drop_pair", "has_pair", "write_pair"]

PAIR = "pair"
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
INTRODUCTION = """\
# Pairs of your own: they add to those that come with specchat, or replace them by name.
# `specchat ask --target FILE --save-as NAME` adds one, `specchat rm NAME` takes it out.
"""


def has_pair(path: Path, name: str) -> bool:
    """Say whether a file names such a pair; SettingsError where it cannot be read."""
    return name in _pairs(load_file(path, read_file(path) or ""))


def write_pair(path: Path, name: str, values: Mapping[str, str]) -> None:
    """Put a pair into the file, made where there is none, in place of one of that name.

    Raises SettingsError where the file cannot be read or written.
    """
    text = read_file(path)
    text = INTRODUCTION if text is None else text
    wanted = load_file(path, text)
    is_there = name in _pairs(wanted)
    wanted = {**wanted, PAIR: {**_pairs(wanted), name: dict(values)}}
    new = _changed(text, name, values) if is_there or not _takes_tables(text) else None
    _write(path, new or _added(text, name, values), wanted)


def drop_pair(path: Path, name: str) -> None:
    """Take a pair out of the file; SettingsError where the file cannot be read or written."""
    text = read_file(path) or ""
    content = load_file(path, text)
    others = {key: value for key, value in _pairs(content).items() if key != name}
    if others != _pairs(content):
        _write(path, _changed(text, name, None), {**content, PAIR: others})


def _pairs(content: Mapping[str, Any]) -> dict[str, Any]:
    pairs = content.get(PAIR, {})
    return pairs if isinstance(pairs, dict) else {}


def _takes_tables(text: str) -> bool:
    """Say whether [pair.x] may follow: it may not where all pairs are in one inline table."""
    try:
        tomllib.loads(f"{text}\n[{PAIR}.{as_toml('')}]\n")
    except ValueError:
        return False
    return True


def _added(text: str, name: str, values: Mapping[str, str]) -> str:
    """Add a pair at the end, in the file's own kind of lines."""
    end = "\r\n" if "\r\n" in text else "\n"
    key = name if BARE_KEY.fullmatch(name) else as_toml(name)
    lines = [f"[{PAIR}.{key}]", *(f"{each} = {as_toml(value)}" for each, value in values.items())]
    start = end if text.endswith("\n") or not text else 2 * end
    return text + start + end.join(lines) + end


def _changed(text: str, name: str, values: Mapping[str, str] | None) -> str:
    """Change a pair or take it out; tomlkit keeps what stands around it."""
    import tomlkit

    document: Any = tomlkit.parse(text)
    if values is None:
        del document[PAIR][name]
        return str(document.as_string())
    pairs = document.setdefault(PAIR, {})
    table = pairs.setdefault(name, {})
    for key in [key for key in table if key not in values]:
        del table[key]
    for key, value in values.items():
        table[key] = value
    return str(document.as_string())


def _write(path: Path, text: str, wanted: Mapping[str, Any]) -> None:
    """Write a text that says just what is wanted."""
    try:
        content = tomllib.loads(text)
    except ValueError:
        content = {}
    if _pairs(content) != _pairs(wanted) or {**content, PAIR: 0} != {**wanted, PAIR: 0}:
        raise SettingsError(f"{path} cannot be changed without disturbing what is there")
    replace_file(path, text)
