"""Every setting: the declared options that have a table in the settings file."""

import re

from specchat.errors import InvalidOption, nearest
from specchat.options.declarations import (
    ChatOptions,
    GenerateOptions,
    LoadOptions,
    NetworkOptions,
    PairOptions,
    ScreenOptions,
    ServerOptions,
)
from specchat.options.option import Option

KEYS = "keys"
"""The table without fixed names: it maps actions of the chat to keys."""

SERVERS = "servers"
"""The table of servers to connect to, each a table under its name."""
SERVER_NAME = re.compile(r"servers\.[A-Za-z0-9_-]+")
SERVER_FIELDS = ("url", "model", "key_file", "key_variable")

TABLES = ("model", "decoding", "sampling", "chat", "network", "server", "screen", SERVERS, KEYS)
"""The tables, in the order of the documentation."""

ACTION_NAME = re.compile(r"keys\.[A-Za-z0-9_-]+")
KEY = r"(?:(?:ctrl|alt|shift|super|hyper|meta)\+)*(?:\w+|[^\s\w,+])"
KEY_LIST = re.compile(rf"\s*{KEY}\s*(?:,\s*{KEY}\s*)*")

DECLARED = (
    PairOptions,
    LoadOptions,
    GenerateOptions,
    ChatOptions,
    NetworkOptions,
    ServerOptions,
    ScreenOptions,
)
SETTINGS = tuple(
    option
    for table in TABLES
    for declared in DECLARED
    for option in declared.fields()
    if option.table == table
)
"""All settings except keys, in the order of the file."""


def find_setting(name: str) -> Option:
    """Return the setting of that name; InvalidOption names the nearest if there is none."""
    if ACTION_NAME.fullmatch(name):
        return Option(
            "Key of an action.",
            convert=_keys,
            expected='a key such as "ctrl+b", or several separated by commas',
            table=KEYS,
            key=name.partition(".")[2],
        )
    if SERVER_NAME.fullmatch(name):
        fields = ", ".join(SERVER_FIELDS[1:])
        return Option(
            "A server to connect to.",
            convert=_server,
            expected=f"a table with a url without a password, and if needed {fields}: texts all",
            table=SERVERS,
            key=name.partition(".")[2],
        )
    for setting in SETTINGS:
        if setting.name == name:
            return setting
    raise InvalidOption(f"unknown setting {name}{nearest_setting(name)}")


def nearest_setting(name: str) -> str:
    """Return " (did you mean X?)" for the setting closest to a name; empty if none is close."""
    same_key = [setting.name for setting in SETTINGS if setting.key == name.rpartition(".")[2]]
    if same_key:
        return f" (did you mean {same_key[0]}?)"
    return nearest(name, [*(setting.name for setting in SETTINGS), *TABLES])


def _server(given: object) -> dict[str, str]:
    """Return the fields of a server; one with an unknown field is refused."""
    if not isinstance(given, dict) or not given.get("url") or "@" in str(given["url"]):
        raise ValueError(given)
    if not all(name in SERVER_FIELDS and isinstance(given[name], str) for name in given):
        raise ValueError(given)
    return given


def _keys(given: object) -> str:
    if isinstance(given, str) and KEY_LIST.fullmatch(given):
        return given
    raise ValueError(given)
