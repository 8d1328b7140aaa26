"""Sampling options as text: one per line for editing, or on one line; no widgets here."""

from collections.abc import Mapping
from typing import Any

from specchat.options.declarations import GenerateOptions
from specchat.settings.schema import find_setting

SAMPLING = {field.key: field for field in GenerateOptions.fields() if field.table == "sampling"}


def only_sampling(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the sampling options, because presets of older versions hold others too."""
    return {name: value for name, value in options.items() if name in SAMPLING}


def in_lines(sampling: Mapping[str, Any]) -> str:
    """Return sampling options as text for editing, one per line."""
    return "\n".join(
        f"{name} = {SAMPLING[name].shown(value)}" for name, value in only_sampling(sampling).items()
    )


def in_line(sampling: Mapping[str, Any]) -> str:
    """Return sampling options on one line."""
    return in_lines(sampling).replace("\n", ", ").replace(" = ", " ")


def read_sampling(text: str) -> dict[str, Any]:
    """Return the sampling options in an edited text; raises InvalidOption if it is invalid."""
    sampling: dict[str, Any] = {}
    for line in filter(str.strip, text.splitlines()):
        name, _, written = (part.strip() for part in line.partition("="))
        sampling[name] = find_setting(f"sampling.{name}").parsed(written, name)
    return sampling
