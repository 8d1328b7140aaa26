"""Screens for the documentation: one topic per page, or the meaning of one figure."""

import re
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from specchat.docs import read, topics
from specchat.tui.commands import KeyOf
from specchat.tui.markdown.prose import Prose
from specchat.tui.markdown.typesetter import Typesetter
from specchat.tui.screens.dialogs import CLOSING, ChoiceScreen, Dialog, ListEntry

LINK = re.compile(r"\[([^\]]+)\]\(\w+\.md(?:#[\w-]+)?\)")
"""A link to another topic; only its text is shown, because it cannot be followed here."""


FENCE = re.compile(r"\s*(```|~~~)")
BLOCK = re.compile(r"\s*([-*+] |\d+[.)] |#|\||>|<|$)")
"""How a line begins that is no continuation of the one before it."""


def flowing(text: str) -> str:
    """Return Markdown with each paragraph and list item on one line.

    The files are wrapped to be read as text; the screen keeps line breaks and wraps by its width.
    """
    lines: list[str] = []
    is_code = may_go_on = False
    for line in text.split("\n"):
        is_fence = bool(FENCE.match(line))
        if may_go_on and not (is_code or is_fence or BLOCK.match(line)):
            lines[-1] += f" {line.strip()}"
            continue
        lines.append(line)
        is_code ^= is_fence
        may_go_on = bool(line.strip()) and not (is_code or is_fence or line[0] in "#|")
    return "\n".join(lines)


class Page(VerticalScroll):
    """A scrollable page of Markdown, which shows a text once it is mounted."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Yield the text widget, in the colours of the theme."""
        app = self.app
        yield Prose(Typesetter(app.theme_variables))

    def on_mount(self) -> None:
        """Show the first text."""
        self.put(self._text)

    def put(self, text: str) -> None:
        """Show a text from its beginning; a page that is closed while it opens has no widget."""
        for prose in self.query(Prose):
            prose.clear()
            prose.append(LINK.sub(r"\1", flowing(text)))
        self.scroll_home(animate=False)


class ExplainScreen(Dialog[None]):
    """The glossary's text on a figure: what it means, what is good, and what to do."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *CLOSING,
        Binding("enter,f1", "dismiss", "Close", show=False),
    ]

    def __init__(self, figure: str, shown: Content, explanation: str) -> None:
        super().__init__(figure[0].upper() + figure[1:])
        self._shown, self._explanation = shown, explanation

    def content(self) -> ComposeResult:
        """Put the figure above its explanation."""
        yield Static(self._shown, classes="figure", markup=False)
        yield Page(self._explanation)


class HelpScreen(Dialog[None]):
    """One topic at a time; the first lists all keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *CLOSING,
        Binding("left,h", "turn(-1)", "Previous", priority=True),
        Binding("right,l", "turn(1)", "Next", priority=True),
        Binding("t,enter", "choose", "Topics"),
        Binding("f1", "dismiss", show=False),
    ]

    def __init__(self, key_of: KeyOf) -> None:
        """Start with the first topic; `key_of` returns the keys in effect."""
        self._key_of = key_of
        self._topics = topics()
        self._topic: str = next(iter(self._topics))
        super().__init__(self._title)

    def content(self) -> ComposeResult:
        """Yield the page."""
        yield Page(self._page)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave the arrows to the list of topics while it is open."""
        return self.is_current and super().check_action(action, parameters)

    def action_turn(self, step: int) -> None:
        """Show the previous or the next topic."""
        names = list(self._topics)
        self._show(names[(names.index(self._topic) + step) % len(names)])

    def action_choose(self) -> None:
        """Choose a topic from a list."""
        choices = [ListEntry(name, title) for name, title in self._topics.items()]
        screen = ChoiceScreen("Help topics", choices, marked=self._topic)
        self.app.push_screen(screen, lambda name: self._show(name or self._topic))

    def _show(self, name: str) -> None:
        self._topic = name
        self.query_one(".title", Static).update(self._title)
        self.query_one(Page).put(self._page)

    @property
    def _title(self) -> str:
        page = f"{list(self._topics).index(self._topic) + 1}/{len(self._topics)}"
        return f"Help: {self._topics[self._topic]} · {page}"

    @property
    def _page(self) -> str:
        """The topic's text without its heading."""
        return read(self._topic, self._key_of).partition("\n")[2]
