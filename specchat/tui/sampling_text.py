"""Sampling options as the user writes them, and as the engine takes them; no widgets here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specchat.errors import InvalidOption
from specchat.settings import SETTINGS, Setting, find_setting

__all__ = ["in_line", "in_lines", "only_sampling", "option_of", "read_sampling"]

SAMPLING = frozenset(setting.key for setting in SETTINGS if setting.table == "sampling")


def option_of(setting: Setting, value: object) -> object:
    """Return a setting as the engine takes it, which knows the words for no number as None."""
    return None if setting.table == "sampling" and isinstance(value, str) else value


def only_sampling(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling among options: older presets held whatever the command line gave."""
    return {name: value for name, value in options.items() if name in SAMPLING}


def in_lines(sampling: Mapping[str, Any]) -> str:
    """Return sampling as it is written and read."""
    return "\n".join(
        f"{name} = {_word(name) if value is None else value}"
        for name, value in only_sampling(sampling).items()
    )


def in_line(sampling: Mapping[str, Any]) -> str:
    """Return sampling in one line, for a list."""
    return in_lines(sampling).replace("\n", ", ").replace(" = ", " ")


def _word(name: str) -> object:
    """Return the word that stands for no number."""
    return find_setting(f"sampling.{name}").default


def read_sampling(text: str) -> dict[str, Any]:
    """Read what is written; InvalidOption says what is wrong."""
    sampling: dict[str, Any] = {}
    for line in filter(str.strip, text.splitlines()):
        name, _, written = (part.strip() for part in line.partition("="))
        setting = find_setting(f"sampling.{name}")
        try:
            value = setting.kind.read(written)
        except ValueError:
            raise InvalidOption(f"{name} must be {setting.kind.rule}, not {written}") from None
        setting.require(value)
        sampling[name] = option_of(setting, value)
    return sampling
