"""The server that --connect names, with its key."""

import os
import re
import stat
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from specchat.connection.address import ServerAddress, is_key, parse_address
from specchat.errors import InvalidOption, SettingsError, nearest
from specchat.hub.offline import is_offline
from specchat.network.loopback import is_loopback
from specchat.options.declarations import GenerateOptions, LoadOptions, PairOptions
from specchat.settings.sources import Settings

if TYPE_CHECKING:  # the first frame of the chat needs none
    from specchat.connection.dialects import Dialect

KEY_VARIABLE = "SPECCHAT_API_KEY"
EVERYWHERE = frozenset(
    {
        *("temperature", "top_p", "presence_penalty", "frequency_penalty"),
        *("seed", "max_tokens", "stop", "think"),
    }
)
"""Options that every server has."""
LARGEST_KEY_FILE = 4200
BARE_WORD = re.compile(r"[A-Za-z0-9_-]+")


def is_connected(arguments: Namespace) -> bool:
    """Return True if a server is to answer."""
    return getattr(arguments, "connect", None) is not None


def require_models_here(arguments: Namespace) -> None:
    """Raise InvalidOption if a server is to answer: the command works on models themselves."""
    if is_connected(arguments):
        source = arguments.settings.source("model.connect")
        where = "--connect" if source == "command line" else "the setting model.connect"
        raise InvalidOption(
            f"specchat {arguments.command} works on models on this machine, not on those of a"
            f" server ({where}): name one with --pair or --target"
        )


def server_of(arguments: Namespace) -> ServerAddress:
    """Return the server that the arguments name.

    Raises InvalidOption for an unknown name, an address that is none, and one on the network in
    offline mode; SettingsError for a key file that cannot be used.
    """
    settings, text = arguments.settings, str(arguments.connect)
    if text in settings.servers:
        address = named_server(settings, text)
    elif BARE_WORD.fullmatch(text) and not is_loopback(text):
        servers = ", ".join(settings.servers) or "none"
        raise InvalidOption(
            f"no server is called {text}{nearest(text, settings.servers)}: name its address, such"
            f" as http://{text}:8080, or add it to the settings ([servers.{text}]; now there: "
            f"{servers})"
        )
    else:
        address = replace(parse_address(text), key=_key_in(KEY_VARIABLE))
    if arguments.served_model:
        address = replace(address, model=arguments.served_model)
    return _allowed(address)


def named_server(settings: Settings, name: str) -> ServerAddress:
    """Return a server of the settings, with its key. Raises as `server_of` does."""
    fields = settings.servers[name]
    address = _allowed(parse_address(fields["url"]))
    key, key_place = _key_of(fields, settings.path.parent)
    return replace(address, model=fields.get("model", ""), name=name, key=key, key_place=key_place)


def _allowed(address: ServerAddress) -> ServerAddress:
    """Return an address; raise InvalidOption for one on the network in offline mode."""
    if is_offline() and not address.is_here:
        raise InvalidOption(f"{address.shown} is on the network, and --offline is set")
    return address


def ignored_options(arguments: Namespace) -> list[str]:
    """Return the flags on the command line about loading models, which the server ignores."""
    settings = arguments.settings
    names = [field for field in LoadOptions.fields() if field.table]
    names += [option for option in PairOptions.fields() if option.key == "draft"]
    given = [option for option in names if settings.source(option.name) == "command line"]
    return [option.flag for option in given if settings[option.name] or settings[option.name] == 0]


def unknown_options(arguments: Namespace, dialect: "Dialect") -> list[str]:
    """Return the flags on the command line that this kind of server has no fields for."""
    settings = arguments.settings
    supported = {*EVERYWHERE, *dialect.sampling}
    return [
        field.flag
        for field in GenerateOptions.fields()
        if field.table
        and field.key not in supported
        and settings.source(field.name) == "command line"
    ]


def _key_of(fields: Mapping[str, str], folder: Path) -> tuple[str, str]:
    """Return a server's key and where it comes from."""
    if "key_file" in fields:
        path = folder / os.path.expanduser(fields["key_file"])
        return _read_key(path), str(path)
    variable = fields.get("key_variable", KEY_VARIABLE)
    return _key_in(variable), variable


def _key_in(variable: str) -> str:
    """Return the key in an environment variable, "" for none. Raises InvalidOption."""
    key = os.environ.get(variable, "").strip()
    if not is_key(key):
        raise InvalidOption(f"{variable} must hold one key and nothing else")
    return key


def _read_key(path: Path) -> str:
    """Return the key in a file that only its owner may read. Raises SettingsError."""
    try:
        mode = path.stat().st_mode
        if sys.platform != "win32" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise SettingsError(f"others can read the key in {path}: run chmod 600 {path}")
        with path.open("rb") as file:
            key = file.read(LARGEST_KEY_FILE).decode("ascii").strip()
    except OSError as error:
        raise SettingsError(f"the key file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        key = ""
    if not key or not is_key(key):
        raise SettingsError(f"the key file {path} must hold one key and nothing else")
    return key
