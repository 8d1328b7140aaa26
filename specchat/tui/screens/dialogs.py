"""Screens that lie over the chat: the steps of an answer, a list, yes or no, a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Click
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Footer, Input, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from specchat.chat.safe_text import harmless
from specchat.decoding.chunk import Chunk
from specchat.drafters import TARGET

__all__ = [
    "CLOSING",
    "Choice",
    "ChoiceScreen",
    "ConfirmScreen",
    "Dialog",
    "LineScreen",
    "StepsScreen",
    "TextScreen",
    "keys_line",
]

CLOSING: list[BindingType] = [Binding("escape,q", "dismiss", "Close")]


Result = TypeVar("Result")
FEW = 4
"""Lines of a list that fit on any screen; with more of them it takes what there is."""


def keys_line() -> Footer:
    """Return a line of the keys that do something here, which can be clicked."""
    return Footer(compact=True, show_command_palette=False)


class Dialog(ModalScreen[Result]):
    """A screen over the chat that a click beside it closes."""

    def on_click(self, event: Click) -> None:
        """Close it."""
        is_inside = self.query_one(".dialog").region.contains(event.screen_x, event.screen_y)
        if self.is_current and not is_inside:
            self.dismiss()


class StepsScreen(Dialog[None]):
    """An answer step by step: what was proposed, what was kept, what replaced it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *CLOSING,
        Binding("left,up,h,k", "go(-1)", "Previous"),
        Binding("right,down,l,j,space", "go(1)", "Next"),
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
            yield Static("✔ kept   ✘ rejected   + the target's own", classes="label", markup=False)
            yield keys_line()

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
        text.append(f"{'…' if len(before) > 200 else ''}{harmless(before)[-200:]}\n\n", "dim")
        for piece, origin in zip(step.texts, step.origins, strict=True):
            if origin == TARGET.name:
                continue
            text.append(f"  ✔ {_shown(piece)}", "green")
            text.append(f"   {origin}\n", "dim")
        for piece in step.rejected:
            text.append("  ✘ ", "red")
            text.append(f"{_shown(piece)}", "red strike")
            text.append("\n")
        if step.origins and step.origins[-1] == TARGET.name:
            text.append(f"  + {_shown(step.texts[-1])}", "bold")
            text.append(f"   {_kind(step)}\n", "dim")
        self.query_one("#step", Static).update(text)


def _kind(step: Chunk) -> str:
    """Say what the target's own token of a step is."""
    if step.rejected:
        return "correction: in place of the first rejected"
    if len(step.origins) > 1:
        return "bonus token: the whole draft was kept"
    return "plain decoding: nothing was drafted"


def _shown(piece: str) -> str:
    return harmless(piece).replace("\n", "⏎").replace("\t", "⇥") or "(part of a character)"


@dataclass(frozen=True, slots=True)
class Choice:
    """One line of a list: what it stands for, and what it says."""

    key: str
    words: str
    detail: str = ""


class ChoiceScreen(Dialog[str | None]):
    """A list to choose from, narrowed by typing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close"),
        Binding("enter", "take", "Take"),
        Binding("down", "down", show=False),
        Binding("up", "up", show=False),
    ]

    def __init__(
        self,
        title: str,
        choices: Sequence[Choice],
        *,
        search: object = None,
        marked: str | None = None,
    ) -> None:
        """Take the choices and the key of the one to mark, or what finds them by what is typed."""
        super().__init__()
        self._marked = marked
        self._title = title
        self._choices = list(choices)
        self._search = search

    def compose(self) -> ComposeResult:
        """Put the words above the list."""
        is_long = self._search is not None or len(self._choices) > FEW
        with Vertical(classes="dialog -long" if is_long else "dialog"):
            yield Static(self._title, classes="title", markup=False)
            yield Input(placeholder="type to search")
            yield OptionList()
            yield keys_line()

    def on_mount(self) -> None:
        """Show everything at first."""
        self._fill("")
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow the list."""
        self._fill(event.value)

    def on_input_submitted(self) -> None:
        """Take the line that is marked."""
        self.action_take()

    def action_take(self) -> None:
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
            text = Text(harmless(choice.words))
            if choice.detail:
                text.append(f"\n  {harmless(choice.detail)}", "dim")
            options.add_option(Option(text, id=choice.key))
        keys = [choice.key for choice in found[:200]]
        if keys:
            options.highlighted = keys.index(self._marked) if self._marked in keys else 0

    def _matching(self, words: str) -> list[Choice]:
        wanted = words.lower().split()
        return [
            choice
            for choice in self._choices
            if all(word in f"{choice.words} {choice.detail}".lower() for word in wanted)
        ]


class ConfirmScreen(Dialog[bool]):
    """A question, and what yes and no would do."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("escape,n", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str, details: str, yes: str, no: str) -> None:
        """Take the words; yes is marked, so that Enter agrees."""
        super().__init__()
        self._question, self._details = question, details
        self._answers = (f"{yes}  (Enter)", f"{no}  (Esc)")

    def compose(self) -> ComposeResult:
        """Put the question above the answers."""
        with Vertical(classes="dialog"):
            yield Static(self._question, classes="title", markup=False)
            yield Static(self._details, classes="details", markup=False)
            yield OptionList(*self._answers, markup=False)
            yield keys_line()

    def on_mount(self) -> None:
        """Let the user answer."""
        self.query_one(OptionList).focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Give back the answer."""
        self.dismiss(event.option_index == 0)


class TextScreen(ModalScreen[str | None]):
    """A text to write or to change; a click beside it does not throw it away."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "keep", "Keep", priority=True),
        Binding("escape", "dismiss", "Leave it"),
    ]

    def __init__(
        self, title: str, text: str = "", check: Callable[[str], str] = lambda _: ""
    ) -> None:
        """Take what is there so far, and what says why a text cannot be kept, empty if it can."""
        super().__init__()
        self._title, self._text, self._check = title, text, check

    def compose(self) -> ComposeResult:
        """Put the title above the text."""
        with Vertical(classes="dialog"):
            yield Static(self._title, classes="title", markup=False)
            yield self._field()
            yield Static(classes="wrong", markup=False)
            yield keys_line()

    @property
    def written(self) -> str:
        """What is written now."""
        return self.query_one(TextArea).text

    def action_keep(self) -> None:
        """Give back what is written, unless it cannot be kept."""
        text = self.written
        if reason := self._check(text):
            self.query_one(".wrong", Static).update(reason)
        else:
            self.dismiss(text)

    def _field(self) -> Widget:
        """Return where it is written, the cursor at its end."""
        area = TextArea(self._text, soft_wrap=True)
        area.cursor_blink = False
        area.move_cursor(area.document.end)
        return area


class LineScreen(TextScreen):
    """A text of one line, which Enter keeps too."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "keep", "Keep", priority=True),
    ]

    @property
    def written(self) -> str:
        """What is written now."""
        return self.query_one(Input).value

    def action_keep(self) -> None:
        """Give it back once the keys before this one are written: it is heard before they are."""
        self.query_one(Input).call_later(super().action_keep)

    def _field(self) -> Widget:
        """Return where it is written, the cursor at its end."""
        line = Input(self._text, select_on_focus=False)
        line.cursor_blink = False
        return line
