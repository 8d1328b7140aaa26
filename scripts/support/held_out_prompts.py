"""Prompts whose wordings and topics the training prompts of derived drafts do not have."""

import tomllib
from pathlib import Path

FILE = Path(__file__).with_name("held_out.toml")


def held_out_prompts() -> dict[str, list[str]]:
    """Return the prompts by their kind."""
    return tomllib.loads(FILE.read_text("utf-8"))
