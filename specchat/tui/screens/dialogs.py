"""Screens over the chat: their base class, and dialogs for a choice, yes or no, or a text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Click
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from specchat.errors import InvalidOption
from specchat.safe_text import in_one_line
from specchat.tui.widgets.filter_input import FilterInput
from specchat.tui.widgets.grouped_list import GroupedList, has_words
from specchat.tui.widgets.key_footer import KeyFooter

STYLES = Path(__file__).parents[1] / "dialogs.tcss"
FEW = 4
"""A list of up to this many choices fits on any screen; a longer one gets all the height."""
MAX_LISTED = 200
MORE = "more"
"""The id of the answer that says yes to more."""
PREVIEW_SECONDS = 0.15
"""How long the cursor rests on a choice before it shows."""
LONGEST_EXCERPT = 60
"""Characters of what is about to be deleted."""

CLOSING: list[BindingType] = [Binding("escape,q", "dismiss", "Close")]

Result = TypeVar("Result")


class Dialog(ModalScreen[Result]):
    """A screen over the chat with a title, content, and a line of keys."""

    CSS_PATH = STYLES

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "dismiss", show=False)]

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

    Consecutive entries of the same group are listed under its name. A `mark` stands before the
    words; a space keeps its place free.
    """

    key: str
    words: str
    detail: str = ""
    group: str = ""
    value: str = ""
    mark: str = ""


class ChoiceScreen(Dialog[str | None]):
    """A list to choose from; typing filters it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Close")]

    def __init__(
        self,
        title: str,
        choices: Sequence[ListEntry],
        *,
        search: Callable[[str], Sequence[ListEntry]] | None = None,
        marked: str | None = None,
        line: FilterInput | None = None,
        preview: Callable[[str], object] | None = None,
    ) -> None:
        """Store the choices and the key of the one to highlight.

        `search`, if given, finds the choices for the typed text. `line` is the one to type in,
        whose keys say what Enter does. `preview` shows the choice with a key, once the cursor has
        rested on it for a moment; the list then leaves room for what changes.
        """
        super().__init__(title)
        self.set_class(preview is not None, "-preview")
        self._line_to_type = line or FilterInput()
        self._preview, self._shown = preview, marked
        self._timer: Timer | None = None
        self._marked = marked
        self._choices = list(choices)
        self._search = search
        self._words, self._width = "", 0
        """The words and the width for which the list was filled."""

    def content(self) -> ComposeResult:
        """Put the search above the list."""
        yield self._line_to_type
        yield GroupedList()

    def on_mount(self) -> None:
        """Show everything until something is typed."""
        is_long = self._search is not None or len(self._choices) > FEW
        self.query_one(".dialog").set_class(is_long, "-long")
        self._fill("", self._marked)

    def on_resize(self) -> None:
        """Wrap the lines anew once the list has its width."""
        self.call_after_refresh(self._refit)

    def on_input_changed(self) -> None:
        """Narrow the list."""
        self._narrow()

    def action_choose(self) -> None:
        """Return the highlighted line."""
        self._narrow()
        option = self.query_one(GroupedList).highlighted_option
        if option is not None:
            self.dismiss(option.id)

    async def action_list(self, action: str) -> None:
        """Run an action of the list, which does not have the focus."""
        await self.query_one(OptionList).run_action(action)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return the clicked line."""
        self.dismiss(event.option.id)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Preview a choice, unless the cursor goes on."""
        if self._timer is not None:
            self._timer.stop()
        key = str(event.option.id or "")
        if self._preview is not None and key != self._shown:
            self._timer = self.set_timer(PREVIEW_SECONDS, partial(self._show, key))

    def _show(self, key: str) -> None:
        self._shown = key
        if self._preview is not None:
            self._preview(key)

    def _narrow(self) -> None:
        """List what the words find; a key may come before the message that they changed."""
        words = self.query_one(Input).value
        if words != self._words:
            self._fill(words, self._marked)

    def _refit(self) -> None:
        models = self.query_one_optional(GroupedList)
        if models is not None and self._width != models.scrollable_content_region.width:
            option = models.highlighted_option
            self._fill(self._words, option.id if option else None)

    def _fill(self, words: str, marked: str | None) -> None:
        choices = self.query_one(GroupedList)
        self._words, self._width = words, choices.scrollable_content_region.width
        find = self._search or self._matching
        found = find(words)[:MAX_LISTED]
        width = max((cell_len(choice.words) for choice in found), default=0)
        lines: list[tuple[str, Option]] = []
        for choice in found:
            text = self._line(choice, width)
            text.highlight_words(words.split(), "bold not dim", case_sensitive=False)
            lines.append((choice.group, Option(text, id=choice.key)))
        choices.fill(lines, marked, words=words)

    def _line(self, choice: ListEntry, width: int) -> Text:
        """Return an entry: its words in `width` cells and their value, and the indented detail."""
        mark = f"{choice.mark} " if choice.mark else ""
        text = Text(mark + in_one_line(choice.words))
        if choice.value:
            text.append(" " * (len(mark) + width + 2 - text.cell_len))
            value = Text(in_one_line(choice.value), "bold")
            if self._width:
                value.truncate(max(1, self._width - text.cell_len), overflow="ellipsis")
            text.append_text(value)
        indent = " " * (len(mark) + 2)
        for line in self._wrapped(in_one_line(choice.detail), len(indent)):
            text.append(f"\n{indent}{line}", "dim")
        return text

    def _wrapped(self, text: str, indent: int) -> list[str]:
        """Return a text in lines that fit beside an indent; in one before the list has a width."""
        if not text or self._width <= indent + 1:
            return [text] if text else []
        lines = Text(text).wrap(Console(), self._width - indent)
        return [line.plain.rstrip() for line in lines]

    def _matching(self, words: str) -> list[ListEntry]:
        return [
            choice
            for choice in self._choices
            if has_words(f"{choice.key} {choice.words} {choice.detail} {choice.group}", words)
        ]


class _Answers(OptionList):
    """The answers to a question, whose keys are named below."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select", "Choose")]


class ConfirmScreen(Dialog[bool]):
    """A question, with labels for yes and no; y and n answer it too."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(False)", "Cancel"),
        Binding("y", "dismiss(True)", show=False),
        Binding("n", "dismiss(False)", show=False),
    ]

    def __init__(self, question: str, details: str, yes: str, no: str) -> None:
        """Store the question; yes is highlighted first, so Enter confirms."""
        super().__init__(question)
        self._details = details
        self._answers = [Option(answer) for answer in (yes, no)]
        self.chose_more = False
        """Whether the answer was yes to more, if that was offered."""

    def content(self) -> ComposeResult:
        """Put the details above the answers."""
        yield Static(self._details, classes="details", markup=False)
        yield _Answers(*self._answers, markup=False)

    def offer_more(self, answer: str) -> None:
        """Put another way to say yes before no, whenever it is known."""
        self._answers.insert(1, Option(in_one_line(answer), id=MORE))
        if answers := self.query_one_optional(_Answers):
            highlighted = answers.highlighted_option
            answers.set_options(self._answers)
            answers.highlighted = self._answers.index(highlighted) if highlighted else 0

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return the answer."""
        self.chose_more = event.option_id == MORE
        self.dismiss(self.chose_more or event.option_index == 0)


def deletion(question: str, content: str, undo: str) -> ConfirmScreen:
    """Return the question before something is deleted: its first line, and how to get it back."""
    line = in_one_line(content).strip()
    shown = f"{line[:LONGEST_EXCERPT].rstrip()}…" if len(line) > LONGEST_EXCERPT else line
    return ConfirmScreen(question, f"{shown}\n\n{undo}", "Delete", "Keep")


class TextScreen(ModalScreen[str | None]):
    """A text to write or edit; a click outside does not discard it."""

    CSS_PATH = STYLES

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
