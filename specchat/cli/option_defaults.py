"""What stands in for options that were not given: the settings, else what is built in."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Any

from specchat.settings import SETTINGS, Setting, Settings, read_settings

__all__ = ["fill_in"]

NO_NUMBER = {"model.threads": "auto", "sampling.seed": "random", "sampling.max_tokens": "unlimited"}
"""The words that the engine knows as None."""


def fill_in(arguments: argparse.Namespace, tables: Collection[str]) -> None:
    """Set the options of these tables that were not given on the command line.

    What nobody set stays None among the sampling options: a pair may have its own. `settings` of
    the arguments tells from then on where each is from.
    """
    settings = [
        setting
        for setting in SETTINGS
        if setting.table in tables and setting.key in vars(arguments)
    ]
    options = {setting.name: getattr(arguments, setting.key) for setting in settings}
    given = {name: value for name, value in options.items() if value is not None}
    merged = arguments.settings = read_settings().over(given, "command line")
    for setting in settings:
        setattr(arguments, setting.key, _option(merged, setting))


def _option(settings: Settings, setting: Setting) -> Any:
    """Return what the engine is to be given."""
    is_open = setting.table == "sampling" and settings.source(setting.name) == "default"
    value = None if is_open else settings[setting.name]
    return None if NO_NUMBER.get(setting.name) == value else value
