"""Reading settings: the command line overrides the environment, the file and the defaults."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from specchat.errors import InvalidOption, SettingsError, nearest
from specchat.options.option import PREFIX, Option
from specchat.options.option_fields import Options
from specchat.settings.positions import KeyPath, find_lines
from specchat.settings.schema import KEYS, SERVERS, SETTINGS, TABLES, find_setting, nearest_setting
from specchat.settings.toml_file import load_file, read_file
from specchat.system.private_files import FOLDERS

Source: TypeAlias = Literal["default", "file", "environment", "command line"]

CONFIG = "SPECCHAT_CONFIG"
"""The environment variable that names another settings file."""

OTHERS = frozenset(
    {
        CONFIG,
        "SPECCHAT_API_KEY",
        "SPECCHAT_BACKEND",
        "SPECCHAT_DEBUG",
        "SPECCHAT_LLAMA_WHEEL",
    }
)
"""specchat's variables that are not settings; clients of the server take their key from one."""

ADDRESS = r"(?:tcp|udp|sctp)://\S+"
SERVICE = re.compile(
    r"SPECCHAT_(?:\w+_)?"
    rf"(?:PORT={ADDRESS}|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR|START|END))?=.*"
    r"|SERVICE_HOST=.*|SERVICE_PORT(?:_\w+)?=\d+|NAME=/.*|ENV_\w+=.*)",
    re.DOTALL,
)
"""The variables that Kubernetes, and Docker's links, set in every container beside a service whose
name begins with specchat."""

TARGETS = ("model.pair", "model.target", "model.connect")
"""The ways to name a target; each also determines the draft model."""
OF_TARGETS = ("model.draft", "model.served_model")
"""Settings that belong to the target named at the same level."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings: `settings["sampling.temperature"]` is the value set, or the default.

    `given` maps names to the values that are set, `sources` to where they come from.
    """

    path: Path
    given: Mapping[str, Any]
    sources: Mapping[str, Source]
    notice: str = ""
    """A line about variables that were ignored, empty without any."""

    def __getitem__(self, name: str) -> Any:
        """Return a setting's value; InvalidOption if there is no such setting."""
        return self.given[name] if name in self.given else find_setting(name).default

    def written(self, name: str) -> Any:
        """Return a setting's value as written in a file; None if a file cannot express it."""
        return find_setting(name).write(self[name])

    def source(self, name: str) -> Source:
        """Return the source of a setting's value."""
        return self.sources[name] if name in self.given else "default"

    def values(self, declared: type[Options]) -> dict[str, Any]:
        """Return the values of the options that a dataclass declares, by key."""
        return {field.key: self[field.name] for field in declared.fields() if field.table}

    def given_values(self, declared: type[Options]) -> dict[str, Any]:
        """Return the values set in the file, the environment or the command line, by key."""
        return {
            field.key: self[field.name] for field in declared.fields() if field.name in self.given
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all settings, then of the key bindings that are set."""
        keys = (f"{KEYS}.{action}" for action in self.key_bindings)
        servers = (f"{SERVERS}.{name}" for name in self.servers)
        return (*(setting.name for setting in SETTINGS), *servers, *keys)

    @property
    def key_bindings(self) -> dict[str, str]:
        """The key bindings that are set, by the name of their action."""
        return self._table(KEYS)

    @property
    def servers(self) -> dict[str, dict[str, str]]:
        """The servers to connect to, by name."""
        return self._table(SERVERS)

    def _table(self, wanted: str) -> dict[str, Any]:
        """Return what is set in a table without fixed names."""
        values = {name.partition(".")[::2]: value for name, value in self.given.items()}
        return {key: value for (table, key), value in values.items() if table == wanted}

    def over(self, values: Mapping[str, Any], source: Source) -> Self:
        """Return these settings, overridden by others.

        A setting that names a target also overrides a target from a lower level, with its draft
        model.
        """
        names_target = any(name in values for name in TARGETS)
        hidden = {*TARGETS, *OF_TARGETS} if names_target else set()
        below = {name: value for name, value in self.given.items() if name not in hidden}
        sources = {**self.sources, **dict.fromkeys(values, source)}
        return replace(self, given={**below, **values}, sources=sources)


def settings_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the settings file: SPECCHAT_CONFIG, or the one in the config folder."""
    if named := environ.get(CONFIG):
        return Path(named)
    return FOLDERS.user_config_path / "config.toml"


def read_settings(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of the file and the environment.

    Raises SettingsError for a wrong line of the file, InvalidOption for a wrong variable. A missing
    file sets nothing, but it is an error if SPECCHAT_CONFIG names it.
    """
    is_named = path is None and environ.get(CONFIG)
    path = path or settings_path(environ)
    text = read_file(path)
    if is_named and text is None:
        raise InvalidOption(f"{CONFIG}: {path}: no such file; create it with specchat config edit")
    services = [name for name in environ if SERVICE.fullmatch(f"{name}={environ[name]}")]
    named = {name: text for name, text in environ.items() if name not in services}
    settings = Settings(path, {}, {}, _ignored(services)).over(_from_file(path, text or ""), "file")
    return settings.over(_from_environment(named), "environment")


def wrong_setting(settings: Settings, name: str, what: str) -> SettingsError | InvalidOption:
    """Return an error that names the line or the variable of a wrong setting."""
    if settings.source(name) == "environment":
        return InvalidOption(f"{find_setting(name).variable}: {what}")
    text = read_file(settings.path) or ""
    return _at_line(settings.path, text, tuple(name.split(".")), what)


def _from_file(path: Path, text: str) -> dict[str, Any]:
    """Return the values set in the file's text, by full name."""
    values: dict[str, Any] = {}
    for key_path, value in _key_paths(load_file(path, text)):
        try:
            option = _setting_at(key_path, value)
            checked = _from_home(option.checked(value), option.name)
            values[option.name] = _beside(path, checked) if isinstance(checked, Path) else checked
        except (SettingsError, InvalidOption) as error:
            raise _at_line(path, text, key_path, str(error)) from None
    named = [name for name in TARGETS if name in values]
    if len(named) > 1:
        first, second = named[:2]
        what = f"{first} already names a target: set only one of them"
        raise _at_line(path, text, tuple(second.split(".")), what)
    return values


def _at_line(path: Path, text: str, key_path: KeyPath, what: str) -> SettingsError:
    return SettingsError(f"{path} line {find_lines(text)[key_path]}: {what}")


def _key_paths(content: dict[str, Any]) -> Iterator[tuple[KeyPath, Any]]:
    """Yield path and value of each setting in known tables, and of everything outside them."""
    for table, inner in content.items():
        if table in TABLES and isinstance(inner, dict):
            yield from (((table, key), value) for key, value in inner.items())
        else:
            yield (table,), inner


def _setting_at(key_path: KeyPath, value: object) -> Option:
    """Return the setting at a path in the file. Raises InvalidOption if there is none."""
    name = ".".join(key_path)
    if name in TABLES:
        raise SettingsError(f"{name} must be a table, with [{name}] above its settings")
    if len(key_path) == 1:
        kind = "table" if isinstance(value, dict) else "setting"
        raise SettingsError(f"unknown {kind} {name}{nearest_setting(name)}")
    return find_setting(name)


def _beside(path: Path, named: Path) -> Path:
    """Return a file's path relative to the settings file; other names are local models."""
    beside = path.parent / named
    return beside if named.suffix.lower() == ".gguf" or os.path.exists(beside) else named


def _from_home(value: Any, name: str) -> Any:
    """Return a path with "~" replaced by the home folder; other values unchanged."""
    try:
        return value.expanduser() if isinstance(value, Path) else value
    except RuntimeError:
        raise InvalidOption(f'{name}: there is no home folder for "{value}"') from None


def _ignored(services: Sequence[str]) -> str:
    """Return a line about the variables of a cluster's service, empty without any."""
    if not services:
        return ""
    more = f" and {len(services) - 1} more" * (len(services) > 1)
    return (
        f"ignoring {services[0]}{more}, set for a service of this name, not for specchat"
        " (enableServiceLinks: false leaves them out)"
    )


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the values set in the environment; an empty variable sets nothing.

    Raises InvalidOption for a variable with specchat's prefix that is not a setting.
    """
    by_variable = {option.variable: option for option in SETTINGS}
    values: dict[str, Any] = {}
    for name, text in environ.items():
        if not text or not name.startswith(PREFIX) or name in OTHERS:
            continue
        if name not in by_variable:
            ends = sorted(variable.removeprefix(PREFIX) for variable in {*by_variable, *OTHERS})
            hint = nearest(name.removeprefix(PREFIX), ends).replace("mean ", f"mean {PREFIX}")
            raise InvalidOption(f"unknown variable {name}{hint}")
        values[by_variable[name].name] = _from_home(by_variable[name].parsed(text, name), name)
    named = [find_setting(name).variable for name in TARGETS if name in values]
    if len(named) > 1:
        raise InvalidOption(f"{named[0]} and {named[1]} both name a target: set only one")
    return values
