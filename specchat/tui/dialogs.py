"""Screens that lie over the chat: help, the steps of an answer, choosing from a list, a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from specchat.chat.display import harmless
from specchat.decoding.chunk import Chunk

__all__ = ["Choice", "ChoiceScreen", "HelpScreen", "StepsScreen", "TextScreen"]

CLOSING: list[BindingType] = [Binding("escape,q", "dismiss", "Close")]
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
  Ctrl+P all commands, themes, presets, undo         Ctrl+Q leave

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


class StepsScreen(ModalScreen[None]):
    """An answer step by step: what was proposed, what was kept, what replaced it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *CLOSING,
        Binding("right,down,l,j,space", "go(1)", "Next"),
        Binding("left,up,h,k", "go(-1)", "Previous"),
        Binding("home", "go(-1000000)", "First"),
        Binding("end", "go(1000000)", "Last"),
    ]

    def __init__(self, steps: Sequence[Chunk]) -> None:
        """Take the steps of an answer."""
        super().__init__()
        self._steps = [step for step in steps if step.tokens]
        self._place = 0

    def compose(self) -> ComposeResult:
        """Show one step at a time."""
        with Vertical(classes="dialog"):
            yield Static(id="step", markup=False)
            yield Static(
                "✔ kept   ✘ rejected   + the target's own     ← → step   Esc close",
                classes="label",
                markup=False,
            )

    def on_mount(self) -> None:
        """Show the first step."""
        self._show()

    def action_go(self, step: int) -> None:
        """Go so many steps on."""
        self._place = min(max(self._place + step, 0), len(self._steps) - 1)
        self._show()

    def _show(self) -> None:
        step = self._steps[self._place]
        before = "".join(each.text for each in self._steps[: self._place])
        text = Text()
        text.append(f"step {self._place + 1} of {len(self._steps)}\n\n", "bold")
        text.append(f"…{harmless(before)[-200:]}\n\n", "dim")
        for piece, origin in zip(step.texts, step.origins, strict=True):
            if origin == "target":
                continue
            text.append(f"  ✔ {_shown(piece)}", "green")
            text.append(f"   {origin}\n", "dim")
        for piece in step.rejected:
            text.append("  ✘ ", "red")
            text.append(f"{_shown(piece)}", "red strike")
            text.append("\n")
        if step.origins and step.origins[-1] == "target":
            text.append(f"  + {_shown(step.texts[-1])}", "bold")
            text.append(
                f"   {'in place of the first rejected' if step.rejected else 'bonus'}\n", "dim"
            )
        self.query_one("#step", Static).update(text)


def _shown(piece: str) -> str:
    return harmless(piece).replace("\n", "⏎").replace("\t", "⇥") or "(part of a character)"


@dataclass(frozen=True, slots=True)
class Choice:
    """One line of a list: what it stands for, and what it says."""

    key: str
    words: str
    detail: str = ""


class ChoiceScreen(ModalScreen[str | None]):
    """A list to choose from, narrowed by typing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close"),
        Binding("down", "down", show=False),
        Binding("up", "up", show=False),
    ]

    def __init__(self, title: str, choices: Sequence[Choice], *, search: object = None) -> None:
        """Take the choices, or a function that finds them by what is typed."""
        super().__init__()
        self._title = title
        self._choices = list(choices)
        self._search = search

    def compose(self) -> ComposeResult:
        """Put the words above the list."""
        with Vertical(classes="dialog"):
            yield Static(self._title, classes="title", markup=False)
            yield Input(placeholder="type to search")
            yield OptionList()

    def on_mount(self) -> None:
        """Show everything at first."""
        self._fill("")
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow the list."""
        self._fill(event.value)

    def on_input_submitted(self) -> None:
        """Take the line that is marked."""
        options = self.query_one(OptionList)
        if options.highlighted is not None:
            self.dismiss(options.get_option_at_index(options.highlighted).id)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take a line that was clicked."""
        self.dismiss(event.option.id)

    def action_down(self) -> None:
        """Mark the next line."""
        self.query_one(OptionList).action_cursor_down()

    def action_up(self) -> None:
        """Mark the line before."""
        self.query_one(OptionList).action_cursor_up()

    def _fill(self, words: str) -> None:
        options = self.query_one(OptionList)
        options.clear_options()
        found = self._search(words) if callable(self._search) else self._matching(words)
        for choice in found[:200]:
            text = Text(harmless(choice.words), no_wrap=True, overflow="ellipsis")
            if choice.detail:
                text.append(f"\n  {harmless(choice.detail)}", "dim")
            options.add_option(Option(text, id=choice.key))
        if found:
            options.highlighted = 0

    def _matching(self, words: str) -> list[Choice]:
        wanted = words.lower().split()
        return [
            choice
            for choice in self._choices
            if all(word in f"{choice.words} {choice.detail}".lower() for word in wanted)
        ]


class TextScreen(ModalScreen[str | None]):
    """A text to write or to change."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close"),
        Binding("ctrl+s", "keep", "Keep", priority=True),
    ]

    def __init__(self, title: str, text: str = "") -> None:
        """Take what is there so far."""
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        """Put the title above the text."""
        with Vertical(classes="dialog"):
            yield Static(
                f"{self._title}   (Ctrl+S keeps, Esc leaves it)", classes="title", markup=False
            )
            yield TextArea(self._text, soft_wrap=True)

    def on_mount(self) -> None:
        """Let the user write."""
        self.query_one(TextArea).focus()

    def action_keep(self) -> None:
        """Give back what is written."""
        self.dismiss(self.query_one(TextArea).text)
