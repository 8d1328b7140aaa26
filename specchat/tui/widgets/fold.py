"""Collapsible text under a title: reasoning, and attached files."""

from dataclasses import dataclass

from textual.containers import Vertical
from textual.events import Click
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from specchat.chat.conversation import Attachment
from specchat.safe_text import harmless
from specchat.wording import size_text

MAX_SHOWN = 20_000
"""The most characters of a file to show."""


class Fold(Vertical):
    """A title that opens and closes the widget below it; hidden until it has a title."""

    @dataclass
    class Opened(Message):
        """The reader has opened a fold."""

        fold: "Fold"

    def __init__(self, body: Widget, *, is_open: bool) -> None:
        self._title = Static(classes="title", markup=False)
        super().__init__(self._title, body)
        self._body = body
        body.display = is_open
        self._words = ""

    def say(self, title: str) -> None:
        """Set the title."""
        self._words = title
        self.display = True
        shown = f"{'▾' if self._body.display else '▸'} {title}"
        before = str(self._title.content)
        if before != shown:  # a layout costs a pass over the whole screen, so only for a new length
            self._title.update(shown, layout=len(before) != len(shown))

    @property
    def is_open(self) -> bool:
        """Whether the text below the title is shown."""
        return bool(self._body.display)

    def toggle(self) -> None:
        """Open or close the fold."""
        self._body.display = not self._body.display
        if self._words:
            self.say(self._words)
        if self.is_open:
            self.post_message(self.Opened(self))

    def on_click(self, event: Click) -> None:
        """Open or close the fold on a click on the title."""
        if event.widget is self._title:
            self.toggle()


class TextFold(Fold):
    """A fold of plain text, closed at first."""

    def __init__(self, title: str, content: str) -> None:
        rest = len(content) - MAX_SHOWN
        more = f"\n… and {rest} more characters" if rest > 0 else ""
        text = Static(harmless(content[:MAX_SHOWN] + more), markup=False)
        super().__init__(text, is_open=False)
        self.say(title)


def attached_view(attachment: Attachment) -> TextFold:
    """Return a fold of a file, titled with its name and size."""
    size = size_text(len(attachment.content.encode()))
    return TextFold(f"{harmless(attachment.name)} · {size}", attachment.content)
