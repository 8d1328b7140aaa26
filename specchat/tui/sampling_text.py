"""Sampling options as text: one per line to edit, or in one line for a list; no widgets here."""

from collections.abc import Mapping
from typing import Any

from specchat.options.declarations import GenerateOptions
from specchat.settings.schema import find_setting

SAMPLING = {each.key: each for each in GenerateOptions.fields() if each.table == "sampling"}


def only_sampling(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the sampling options: presets of older versions held others too."""
    return {name: value for name, value in options.items() if name in SAMPLING}


def in_lines(sampling: Mapping[str, Any]) -> str:
    """Return sampling options as text to edit."""
    return "\n".join(
        f"{name} = {SAMPLING[name].shown(value)}" for name, value in only_sampling(sampling).items()
    )


def in_line(sampling: Mapping[str, Any]) -> str:
    """Return sampling options in one line."""
    return in_lines(sampling).replace("\n", ", ").replace(" = ", " ")


def read_sampling(text: str) -> dict[str, Any]:
    """Return the sampling options of an edited text; InvalidOption if it is wrong."""
    sampling: dict[str, Any] = {}
    for line in filter(str.strip, text.splitlines()):
        name, _, written = (part.strip() for part in line.partition("="))
        sampling[name] = find_setting(f"sampling.{name}").parsed(written, name)
    return sampling
