"""Screens over the chat: their base class, and dialogs for a choice, yes or no, or a text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from rich.cells import cell_len
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Click
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from specchat.chat.safe_text import in_one_line
from specchat.errors import InvalidOption
from specchat.tui.commands import key_names
from specchat.tui.widgets.grouped_list import GroupedList, has_words
from specchat.tui.widgets.key_footer import KeyFooter

FEW = 4
"""A list of up to this many choices fits on any screen; a longer one gets all the height."""
MAX_LISTED = 200
LONGEST_EXCERPT = 60
"""Characters of what is about to be deleted."""

CLOSING: list[BindingType] = [Binding("escape,q", "dismiss", "Close")]

Result = TypeVar("Result")


class Dialog(ModalScreen[Result]):
    """A screen over the chat with a title, content, and a line of keys."""

    def __init__(self, title: str = "") -> None:
        super().__init__()
        self._heading = title

    def compose(self) -> ComposeResult:
        """Put everything into a box."""
        with Vertical(classes="dialog"):
            if self._heading:
                yield Static(self._heading, classes="title", markup=False)
            yield from self.content()
            yield KeyFooter()

    def content(self) -> ComposeResult:
        """Yield what is between the title and the keys."""
        raise NotImplementedError

    def on_click(self, event: Click) -> None:
        """Close the screen on a click outside the box."""
        is_inside = self.query_one(".dialog").region.contains(event.screen_x, event.screen_y)
        if self.is_current and not is_inside:
            self.dismiss()


@dataclass(frozen=True, slots=True)
class ListEntry:
    """One entry of a list: the key it stands for, its words and their value, and a second line.

    Consecutive entries of the same group are listed under its name.
    """

    key: str
    words: str
    detail: str = ""
    group: str = ""
    value: str = ""


class ChoiceScreen(Dialog[str | None]):
    """A list to choose from; typing filters it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close"),
        Binding("enter", "list('select')", "Select"),
        Binding("down", "list('cursor_down')", show=False),
        Binding("up", "list('cursor_up')", show=False),
    ]

    def __init__(
        self,
        title: str,
        choices: Sequence[ListEntry],
        *,
        search: Callable[[str], Sequence[ListEntry]] | None = None,
        marked: str | None = None,
    ) -> None:
        """Store the choices and the key of the one to highlight.

        `search`, if given, finds the choices for the typed text.
        """
        super().__init__(title)
        self._marked = marked
        self._choices = list(choices)
        self._search = search

    def content(self) -> ComposeResult:
        """Put the search above the list."""
        yield Input(placeholder="Type to search", compact=True)
        yield GroupedList()

    def on_mount(self) -> None:
        """Show everything until something is typed."""
        is_long = self._search is not None or len(self._choices) > FEW
        self.query_one(".dialog").set_class(is_long, "-long")
        self._fill("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow the list."""
        self._fill(event.value)

    async def on_input_submitted(self) -> None:
        """Select the highlighted line."""
        await self.action_list("select")

    async def action_list(self, action: str) -> None:
        """Run an action of the list, which does not have the focus."""
        await self.query_one(OptionList).run_action(action)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return the selected line."""
        self.dismiss(event.option.id)

    def _fill(self, words: str) -> None:
        find = self._search or self._matching
        found = find(words)[:MAX_LISTED]
        width = max((cell_len(choice.words) for choice in found), default=0)
        lines: list[tuple[str, Option]] = []
        for choice in found:
            text = Text(in_one_line(choice.words))
            if choice.value:
                text.append(" " * (width + 2 - text.cell_len))
                text.append(in_one_line(choice.value), "bold")
            if choice.detail:
                text.append(f"\n  {in_one_line(choice.detail)}", "dim")
            text.highlight_words(words.split(), "bold not dim", case_sensitive=False)
            lines.append((choice.group, Option(text, id=choice.key)))
        self.query_one(GroupedList).fill(lines, self._marked)

    def _matching(self, words: str) -> list[ListEntry]:
        return [
            choice
            for choice in self._choices
            if has_words(f"{choice.key} {choice.words} {choice.detail}", words)
        ]


class ConfirmScreen(Dialog[bool]):
    """A question, with labels for yes and no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("escape,n", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str, details: str, yes: str, no: str) -> None:
        """Store the question; yes is highlighted first, so Enter confirms."""
        super().__init__(question)
        self._details = details
        self._answers = (f"{yes}  (Enter)", f"{no}  ({key_names('escape')})")

    def content(self) -> ComposeResult:
        """Put the details above the answers."""
        yield Static(self._details, classes="details", markup=False)
        yield OptionList(*self._answers, markup=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return the answer."""
        self.dismiss(event.option_index == 0)


def deletion(question: str, content: str, undo: str) -> ConfirmScreen:
    """Return the question before something is deleted: its first line, and how to get it back."""
    line = in_one_line(content).strip()
    shown = f"{line[:LONGEST_EXCERPT].rstrip()}…" if len(line) > LONGEST_EXCERPT else line
    return ConfirmScreen(question, f"{shown}\n\n{undo}", "Delete", "Keep")


class TextScreen(ModalScreen[str | None]):
    """A text to write or edit; a click outside does not discard it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "save", "Save", priority=True),
        Binding("escape", "dismiss", "Cancel"),
    ]

    def __init__(
        self, title: str, text: str = "", check: Callable[[str], object] = lambda _: None
    ) -> None:
        """Store the current text; `check` raises InvalidOption if a text is not valid."""
        super().__init__()
        self._heading, self._text, self._check = title, text, check

    def compose(self) -> ComposeResult:
        """Put the title above the text."""
        with Vertical(classes="dialog"):
            yield Static(self._heading, classes="title", markup=False)
            yield self._field()
            yield Static(classes="wrong", markup=False)
            yield KeyFooter()

    @property
    def written(self) -> str:
        """The text as it is now."""
        return self.query_one(TextArea).text

    def action_save(self) -> None:
        """Return the text if it is valid; otherwise show what is wrong."""
        try:
            self._check(self.written)
        except InvalidOption as error:
            self.query_one(".wrong", Static).update(str(error))
        else:
            self.dismiss(self.written)

    def _field(self) -> Widget:
        """Return the input widget, with the cursor at the end."""
        area = TextArea(self._text, soft_wrap=True)
        area.cursor_blink = False
        area.move_cursor(area.document.end)
        return area


class LineScreen(TextScreen):
    """A single line of text, which Enter saves."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "save", "Save", priority=True)]

    @property
    def written(self) -> str:
        """The text as it is now."""
        return self.query_one(Input).value

    def action_save(self) -> None:
        """Save after earlier keystrokes are processed, as priority bindings overtake them."""
        self.query_one(Input).call_later(super().action_save)

    def _field(self) -> Widget:
        line = Input(self._text, select_on_focus=False)
        line.cursor_blink = False
        return line
