"""Turns declared options into command-line arguments, with defaults from the settings."""

import argparse
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from specchat.cli.terminal import say
from specchat.options.option import Option
from specchat.options.option_fields import Options

TITLES = {"decoding": "speculative decoding", "chat": "conversation", "network": ""}
"""The --help headings of tables whose name is not the heading; "" for no heading."""


def settings_of(*declared: type[Options]) -> tuple[Option, ...]:
    """Return the options of dataclasses that are also settings, and so have flags."""
    return tuple(option for options in declared for option in options.fields() if option.table)


def add_options(parser: argparse.ArgumentParser, options: Iterable[Option]) -> None:
    """Add flags under their tables' headings; `complete` fills in missing values."""
    groups: dict[str, argparse._ActionsContainer] = {}
    for option in options:
        title = TITLES.get(option.table, option.table)
        if title and title not in groups:
            groups[title] = parser.add_argument_group(title)
        add_option(groups[title] if title else parser, option)


def add_option(parser: argparse._ActionsContainer, option: Option, **changes: Any) -> None:
    """Add an option's flag; its attribute is unset unless the flag is given or has a default."""
    if option.main_type is bool:
        how: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
    elif option.is_list:
        how = {"action": "extend", "type": option.parsed, "metavar": _metavar(option)}
    else:
        how = {"type": partial(option.parsed, name=option.flag), "metavar": _metavar(option)}
    how |= {"default": argparse.SUPPRESS, "help": _help(option), **changes}
    parser.add_argument(option.flag, dest=option.key, **how)


def complete(arguments: argparse.Namespace, on_notice: Callable[[str], object] = say) -> None:
    """Fill in options that were not given, from the settings or the defaults.

    `arguments.settings` holds all settings and the source of each value. `on_notice` is called with
    what is ignored in them.
    """
    from specchat.settings.sources import read_settings

    values = vars(arguments)
    given = {
        option.name: values[option.key] for option in arguments.options if option.key in values
    }
    arguments.settings = read_settings().over(given, "command line")
    if arguments.settings.notice:
        on_notice(arguments.settings.notice)
    for option in arguments.options:
        setattr(arguments, option.key, arguments.settings[option.name])


def _metavar(option: Option) -> str:
    kind = {int: "N", float: "X"}.get(option.main_type, "TEXT")
    values = option.words if option.is_choice else (*option.words, kind)
    return option.metavar or "|".join(values)


def _help(option: Option) -> str:
    """Return an option's help in argparse's style: lower case, with the default."""
    text = option.help.removesuffix(".")
    text = text if text[1:2].isupper() else text[0].lower() + text[1:]
    notes = [", ".join(option.words)] if option.is_choice and option.metavar else []
    if option.main_type is bool:
        notes.append(f"default: {'on' if option.default else 'off'}")
    elif shown := option.shown(option.default):
        notes.append(f"default: {shown}")
    return (f"{text} ({'; '.join(notes)})" if notes else text).replace("%", "%%")
