"""The entries of the command palette, from the table of commands and the user's presets."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from rich.markup import escape
from textual.app import SystemCommand

from specchat.chat.safe_text import harmless
from specchat.chat.store import Preset
from specchat.tui.commands import COMMANDS


def palette_entries(
    run: Callable[[str], Any], presets: Sequence[Preset], use: Callable[[Preset], None]
) -> Iterator[SystemCommand]:
    """Yield an entry for every command, for each of its arguments, and for every preset."""
    for command in COMMANDS:
        key = f" ({command.key})" if command.key else ""
        if not command.in_palette:
            continue
        if not command.takes:
            yield SystemCommand(command.title + key, command.help, partial(run, command.id))
        for word in command.takes:
            title = f"{command.title} as {word}"
            yield SystemCommand(title, command.help, partial(run, f"{command.id}({word!r})"))
    for preset in presets:
        title = escape(f"Preset: {harmless(preset.name)}")
        yield SystemCommand(title, "Use it in this conversation", partial(use, preset))
