"""Presets: what a conversation may be set to at once, under a name, and their rows in the store."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specchat.chat.message_rows import parsed_column

PRESETS = "SELECT name, system_prompt, sampling, schema FROM preset"
ADD_PRESET = (
    "INSERT OR REPLACE INTO preset (name, system_prompt, sampling, schema) VALUES (?, ?, ?, ?)"
)


@dataclass(frozen=True, slots=True)
class Preset:
    """A system prompt, sampling options and a schema, as the user typed it, under a name."""

    name: str
    system_prompt: str
    sampling: Mapping[str, Any]
    schema: str = ""


def preset_of(row: tuple[Any, ...]) -> Preset:
    """Return the preset in a row of the query `PRESETS`; damaged sampling options are left out."""
    name, system_prompt, sampling, schema = row
    options = parsed_column(sampling, {})
    return Preset(name, system_prompt, options if isinstance(options, dict) else {}, schema)
