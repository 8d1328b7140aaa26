"""The help screen: keys, and what every figure means."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from specchat.tui.dialogs import CLOSING

__all__ = ["HelpScreen"]

HELP = """\
[b]Writing[/b]
  Enter       send                      Ctrl+J, Shift+Enter   new line
  Up, Down    what was sent before      @name, Tab            attach a file
  Esc         stop the answer           Shift+Up              to the messages

[b]Messages[/b] (Shift+Up, then Up and Down)
  c copy       b copy code      e edit and ask again     r regenerate
  d delete     s steps          Left, Right  versions    Space  reasoning

[b]The chat[/b]
  F1 help      F2 conversations      F3 figures      F4 where tokens came from
  F5 answer again      F6 the last answer step by step      F7 compare with plain
  F8 models    Ctrl+N new chat       Ctrl+F search, Ctrl+T here   Ctrl+G go on
  F9 settings  Ctrl+R engine again   Ctrl+O hide the hint above the composer
  Ctrl+P all commands, themes, presets, undo         Ctrl+Q leave

[b]Models[/b] (F8)
  Enter  use a pair that is here, or pull one: you go on chatting meanwhile
  c      give a pull up; what came is kept, and the next pull goes on from there
  d      open the chat with that pair from now on

[b]What the figures mean[/b]
  tokens per second  tokens of the answer per second of decoding, without the prompt
  times plain        seconds per token of plain decoding over ours: by the measured cost
                     of a plain pass, or by decoding the same plainly (F7)
  step               one round: draft, verify in one pass of the target, keep a prefix,
                     add a token
  accepted           drafted tokens that were kept / drafted tokens
  by position        of the tokens drafted first, second, ... in a step, the share kept
  tokens per step    tokens of the answer per step; plain decoding makes 1
  draft length       tokens drafted per step on average (auto: decided for every step)
  tokens from        draft: the draft model; suffix: looked up in the text; target: its own
  first token        from sending to the first token, reading the prompt included
  reused             tokens of the prompt that were still in the model's memory
  memory             weights of both models, and the memory of the text

  The text is the target's own, whatever is drafted: speculation changes the speed alone.
"""


class HelpScreen(ModalScreen[None]):
    """Keys, and what every figure means."""

    BINDINGS: ClassVar[list[BindingType]] = [*CLOSING, Binding("f1", "dismiss", show=False)]

    def compose(self) -> ComposeResult:
        """Show the page."""
        with VerticalScroll(classes="dialog"):
            yield Static(HELP)

    def on_mount(self) -> None:
        """Let the keys scroll it."""
        self.query_one(VerticalScroll).focus()
