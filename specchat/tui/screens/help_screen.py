"""The help screen: keys, and what every figure means."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from specchat.tui.commands import key_rows
from specchat.tui.screens.dialog import CLOSING, Dialog, keys_line

__all__ = ["HelpScreen"]

HELP: dict[str, tuple[tuple[str, str], ...]] = {
    "Writing": (
        ("Enter", "send"),
        ("Ctrl+J", "new line; Shift+Enter where the terminal can tell it"),
        ("Up, Down", "what was sent before"),
        ("Esc, Ctrl+C", "stop the answer; by mouse at the sign in the upper right corner"),
        ("PgUp, PgDn", "read on in the conversation while writing"),
        ("@name, Tab", "attach a file; a path that is pasted or dropped attaches its file too"),
        ("/", "commands: /stats, /models, /export md ...; with a space before it, it is text"),
        ("Shift+Up", "to the messages"),
    ),
    "Messages (Shift+Up, then Up and Down)": (
        ("c, b", "copy it, copy its code: with several blocks, the one you choose"),
        ("e", "edit a question and ask it again"),
        ("r", "have it answered again"),
        ("Left, Right", "other versions of it, also by a click on ◂ or ▸"),
        ("Space", "open or fold the reasoning"),
        ("s", "go through it step by step"),
        ("d", "delete it and what follows; the command Undo brings it back"),
    ),
    "The chat": (*key_rows(), ("Ctrl+P", "all commands, themes and presets")),
    "Models (F8)": (
        ("Enter", "use a pair that is here, or pull one: you go on chatting meanwhile"),
        ("c", "give a pull up; what came is kept, and the next pull goes on from there"),
        ("d", "open the chat with that pair from now on"),
    ),
    "What the figures mean": (
        ("tokens per second", "tokens of the answer per second of decoding, without the prompt"),
        ("now", "the same over the last second of decoding"),
        ("speedup", "plain decoding's time per token / the time taken here; F7 measures it"),
        ("accepted", "drafted tokens kept / drafted tokens"),
        ("recent acceptance", "the same over the last second, one bar for each half second"),
        ("accepted by position", "the share kept of the tokens drafted first, second, ..."),
        ("tokens per target pass", "tokens of the answer / target passes; 1 in plain decoding"),
        ("draft length", "tokens drafted per step, on average"),
        ("tokens from", "where the tokens of the answer came from"),
        ("time", "shares of decoding: drafting, the target's passes (verify), the rest"),
        ("prompt", "tokens the model reads, and how many of them were cached"),
        ("context", "tokens in use / tokens that fit; when it is full, the oldest turns go"),
        ("first token", "from sending to the first token, reading the prompt included"),
        ("weights, KV cache", "the memory of both models, and of the text they have read"),
    ),
    "The columns of /stats": (
        ("t/s, per pass", "tokens per second, tokens per target pass"),
        ("speedup", "over plain decoding, while it was answered"),
        ("first", "time to the first token"),
        ("all", "totals: tokens / seconds, accepted / drafted, tokens / target passes"),
    ),
}
LAST = "The text is the target's own, whatever is drafted: speculation changes the speed alone."


class HelpScreen(Dialog[None]):
    """Keys, and what every figure means."""

    BINDINGS: ClassVar[list[BindingType]] = [*CLOSING, Binding("f1", "dismiss", show=False)]

    def compose(self) -> ComposeResult:
        """Show the page."""
        with Vertical(classes="dialog"):
            with VerticalScroll():
                yield Static(_page())
            yield keys_line()

    def on_mount(self) -> None:
        """Let the keys scroll it."""
        self.query_one(VerticalScroll).focus()


def _page() -> Group:
    """Return all sections; their words wrap beside the keys, however narrow it is."""
    width = max(len(name) for rows in HELP.values() for name, _ in rows)
    parts: list[RenderableType] = []
    for heading, rows in HELP.items():
        table = Table.grid(padding=(0, 2))
        table.add_column(width=width)
        table.add_column()
        for name, words in rows:
            table.add_row(f"  {name}" if len(name) < width - 1 else name, words)
        parts += [Text(heading, "bold"), table, ""]
    return Group(*parts, LAST)
