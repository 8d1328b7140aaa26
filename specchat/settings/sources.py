"""Reading settings: the command line over the environment over the file over what is built in."""

from __future__ import annotations

import codecs
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import platformdirs

from specchat.errors import InvalidOption, SettingsError
from specchat.options import NO_DRAFT, PREFIX, Option, Options, fields
from specchat.options import nearest as nearest_of
from specchat.settings.positions import Place, find_lines, unfinished_line
from specchat.settings.schema import KEYS, SETTINGS, TABLES, find_setting, nearest

__all__ = [
    "TARGETS",
    "Given",
    "Settings",
    "Source",
    "load_file",
    "read_file",
    "read_settings",
    "settings_path",
    "wrong_setting",
]

Source: TypeAlias = Literal["default", "file", "environment", "command line"]

LARGEST_FILE = 1 << 20
CONFIG = "SPECCHAT_CONFIG"
"""The environment variable that names another file."""

OTHERS = frozenset({CONFIG, "SPECCHAT_DEBUG"})
"""Variables of specchat's own that are no settings."""

TARGETS = ("model.pair", "model.target")
"""Two ways to name a target: whoever names one speaks of the draft model too."""

PLACE_IN_FILE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


@dataclass(frozen=True, slots=True)
class Given:
    """A value that was set, and where."""

    value: Any
    source: Source


@dataclass(frozen=True, slots=True)
class Settings:
    """What is set; `settings["sampling.temperature"]` is the value or its default."""

    path: Path
    given: Mapping[str, Given]

    def __getitem__(self, name: str) -> Any:
        """Return a setting's value; InvalidOption if there is no such setting."""
        return self.given[name].value if name in self.given else find_setting(name).default

    def source(self, name: str) -> Source:
        """Say where a setting's value is from."""
        return self.given[name].source if name in self.given else "default"

    def values(self, declared: type[Options]) -> dict[str, Any]:
        """Return the value of each option that a dataclass declares, by key."""
        return {each.key: self[each.name] for each in fields(declared) if each.table}

    def given_values(self, declared: type[Options]) -> dict[str, Any]:
        """Return those that are set, in the file, the environment or on the command line."""
        return {each.key: self[each.name] for each in fields(declared) if each.name in self.given}

    @property
    def names(self) -> tuple[str, ...]:
        """Every setting's name, then those of the keys that were set."""
        keys = (name for name in self.given if name.startswith(f"{KEYS}."))
        return (*(setting.name for setting in SETTINGS), *keys)

    @property
    def key_bindings(self) -> dict[str, str]:
        """The keys that were set, by the name of the action."""
        start = f"{KEYS}."
        return {
            name.removeprefix(start): given.value
            for name, given in self.given.items()
            if name.startswith(start)
        }

    def over(self, values: Mapping[str, Any], source: Source) -> Settings:
        """Return these settings with others laid over them.

        Naming a pair or a target takes away the target and the draft model that lie below.
        """
        names_target = any(name in values for name in TARGETS)
        hidden = {*TARGETS, "model.draft"} if names_target else set()
        below = {name: given for name, given in self.given.items() if name not in hidden}
        above = {name: Given(value, source) for name, value in values.items()}
        return replace(self, given={**below, **above})


def settings_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file that keeps the settings: SPECCHAT_CONFIG, or in the user's config folder."""
    if named := environ.get(CONFIG):
        return Path(named)
    return Path(platformdirs.user_config_path("specchat", appauthor=False)) / "config.toml"


def read_settings(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the file and the environment.

    SettingsError names the line of the file that is wrong, InvalidOption the environment variable.
    A file that is not there sets nothing, unless SPECCHAT_CONFIG names it.
    """
    is_named = path is None and environ.get(CONFIG)
    path = path or settings_path(environ)
    text = read_file(path)
    if is_named and text is None:
        raise InvalidOption(f"{CONFIG}: {path}: no such file; specchat config edit makes it")
    settings = Settings(path, {}).over(_from_file(path, text or ""), "file")
    return settings.over(_from_environment(environ), "environment")


def read_file(path: Path) -> str | None:
    """Return the text of the file, None where there is none; SettingsError if it is no text."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > LARGEST_FILE:
        raise SettingsError(f"{path} is larger than 1 MB, which no settings are")
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise SettingsError(f"{path} line {line}: this is not UTF-8 text") from None


def load_file(path: Path, text: str) -> dict[str, Any]:
    """Return what a file's text says; SettingsError names the line where it is no TOML."""
    try:
        return tomllib.loads(text)
    except ValueError as error:
        found = PLACE_IN_FILE.search(str(error))
        what = PLACE_IN_FILE.sub("", str(error))
        line = int(found[1]) if found and found[1] else unfinished_line(text)
    except RecursionError:
        what, line = "values within values, too deep", unfinished_line(text)
    raise SettingsError(f"{path} line {line}: this is not TOML: {what}")


def wrong_setting(settings: Settings, name: str, what: str) -> SettingsError | InvalidOption:
    """Return the error that names a wrong setting's line in the file, or its variable."""
    if settings.source(name) == "environment":
        return InvalidOption(f"{find_setting(name).variable}: {what}")
    text = read_file(settings.path) or ""
    return _at_line(settings.path, text, tuple(name.split(".")), what)


def _from_file(path: Path, text: str) -> dict[str, Any]:
    """Return what the file's text sets, by full names."""
    values: dict[str, Any] = {}
    for place, value in _places(load_file(path, text)):
        try:
            option = _setting_at(place, value)
            known = _from_home(option.checked(value), option.name)
            is_file = isinstance(known, Path) and known != NO_DRAFT
            values[option.name] = path.parent / known if is_file else known
        except (SettingsError, InvalidOption) as error:
            raise _at_line(path, text, place, str(error)) from None
    if all(name in values for name in TARGETS):
        place = ("model", "target")
        raise _at_line(path, text, place, "model.pair names a target already: give one of them")
    return values


def _at_line(path: Path, text: str, place: Place, what: str) -> SettingsError:
    return SettingsError(f"{path} line {find_lines(text)[place]}: {what}")


def _places(content: dict[str, Any]) -> Iterator[tuple[Place, Any]]:
    """Yield the values in the known tables, and what stands beside those."""
    for table, inner in content.items():
        if table in TABLES and isinstance(inner, dict):
            yield from (((table, key), value) for key, value in inner.items())
        else:
            yield (table,), inner


def _setting_at(place: Place, value: object) -> Option:
    """Return the setting that stands there; SettingsError if there cannot be one."""
    name = ".".join(place)
    if name in TABLES:
        raise SettingsError(f"{name} must be a table, with [{name}] above its settings")
    if len(place) == 1:
        kind = "table" if isinstance(value, dict) else "setting"
        raise SettingsError(f"there is no {kind} {name}{nearest(name)}")
    return find_setting(name)


def _from_home(value: Any, name: str) -> Any:
    """Return a path with "~" replaced by the home folder, and any other value as it is."""
    try:
        return value.expanduser() if isinstance(value, Path) else value
    except RuntimeError:
        raise InvalidOption(f'{name}: there is no home folder for "{value}"') from None


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what the environment sets, by full names; an empty variable sets nothing."""
    _require_known(environ)
    values: dict[str, Any] = {}
    for option in SETTINGS:
        if text := environ.get(option.variable):
            values[option.name] = _from_home(option.parsed(text, option.variable), option.variable)
    if all(name in values for name in TARGETS):
        raise InvalidOption("SPECCHAT_PAIR and SPECCHAT_TARGET both name a target: set only one")
    return values


def _require_known(environ: Mapping[str, str]) -> None:
    """Raise InvalidOption for a variable that is named like those of settings but is unknown."""
    known = {option.variable for option in SETTINGS} | OTHERS
    for name, text in environ.items():
        if text and name.startswith(PREFIX) and name not in known:
            ends = sorted(each.removeprefix(PREFIX) for each in known)
            found = nearest_of(name.removeprefix(PREFIX), ends)
            found = found.replace("is ", f"is {PREFIX}")
            raise InvalidOption(f"there is no variable {name}{found}")
