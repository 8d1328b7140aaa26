"""Where the user writes: several lines, history, and files by @."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Key
from textual.message import Message
from textual.widgets import TextArea

__all__ = ["Composer"]

LONGEST_HISTORY = 200


class Composer(TextArea):
    """A text area that sends with Enter and remembers what was sent."""

    DEFAULT_CSS = """
    Composer { height: auto; min-height: 3; max-height: 12; border: round $primary; padding: 0 1; }
    Composer:focus { border: round $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "Send"),
        Binding("shift+up", "to_messages", "Messages", show=False),
    ]

    @dataclass
    class Sent(Message):
        """The user sends a text."""

        text: str

    class LeftUpwards(Message):
        """The user goes to the messages."""

    @dataclass
    class Completing(Message):
        """The user wants a file's name completed; `word` is what stands behind the @."""

        word: str

    def __init__(self) -> None:
        """Start empty."""
        super().__init__(
            soft_wrap=True,
            show_line_numbers=False,
            tab_behavior="focus",
            placeholder="Ask something.  Enter sends, Ctrl+J begins a new line, @ names a file.",
            id="composer",
        )
        self.cursor_blink = False  # what blinks keeps an idle machine awake
        self._history: list[str] = []
        self._place = 0
        self._draft = ""

    def remember(self, texts: list[str]) -> None:
        """Take up what was sent before, oldest first."""
        self._history = texts[-LONGEST_HISTORY:]
        self._place = len(self._history)

    def action_send(self) -> None:
        """Send what is written."""
        text = self.text.strip()
        if not text:
            return
        self._history = [*self._history, text][-LONGEST_HISTORY:]
        self._place = len(self._history)
        self.text = ""
        self.post_message(self.Sent(text))

    def action_newline(self) -> None:
        """Begin a new line."""
        self.insert("\n")

    def action_to_messages(self) -> None:
        """Go to the messages."""
        self.post_message(self.LeftUpwards())

    def action_complete(self) -> None:
        """Complete the file's name that is being written, else go on to the next widget."""
        word = self.word_behind_at
        if word is None:
            self.screen.focus_next()
        else:
            self.post_message(self.Completing(word))

    @property
    def word_behind_at(self) -> str | None:
        """What stands between the last @ and the cursor, unless that is no name."""
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        start = before.rfind("@")
        is_name = start >= 0 and (start == 0 or before[start - 1].isspace())
        return before[start + 1 :] if is_name and " " not in before[start:] else None

    def complete_with(self, name: str) -> None:
        """Put a name in place of the one being written."""
        word = self.word_behind_at
        if word is not None:
            row, column = self.cursor_location
            self.replace(name, (row, column - len(word)), (row, column))

    async def _on_key(self, event: Key) -> None:
        """Do what these keys mean here; all others are the text area's own.

        They are taken in turn with the characters before them: bindings with priority would
        overtake what was typed or pasted quickly.
        """
        acts = {
            "enter": self.action_send,
            "shift+enter": self.action_newline,
            "alt+enter": self.action_newline,
            "ctrl+j": self.action_newline,
            "shift+up": self.action_to_messages,
            "tab": self.action_complete,
        }
        if event.key in acts:
            event.prevent_default()
            event.stop()
            acts[event.key]()
        else:
            self._walk_through_history(event)

    def _walk_through_history(self, event: Key) -> None:
        """Go to what was sent before, and back, at the upper and lower edge."""
        is_at_top = event.key == "up" and self.cursor_at_first_line
        is_at_bottom = event.key == "down" and self.cursor_at_last_line
        if self._history and (is_at_top or (is_at_bottom and self._place < len(self._history))):
            event.prevent_default()
            event.stop()
            self._recall(-1 if is_at_top else 1)

    def _recall(self, step: int) -> None:
        if self._place == len(self._history):
            self._draft = self.text
        self._place = min(max(self._place + step, 0), len(self._history))
        is_past = self._place == len(self._history)
        self.text = self._draft if is_past else self._history[self._place]
        self.move_cursor(self.document.end)
