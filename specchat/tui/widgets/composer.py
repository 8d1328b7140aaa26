"""Where the user writes: several lines, history, files by @, commands by /, long texts folded."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Key, Paste
from textual.message import Message
from textual.widgets import TextArea

from specchat.chat.safe_text import harmless
from specchat.tui.mentions import pasted_files
from specchat.tui.slash import is_slash
from specchat.tui.widgets.suggestions import Suggestions

__all__ = ["LONGEST_HISTORY", "Composer"]

LONGEST_HISTORY = 200
UNFINISHED_NAME = re.compile(r'(?<![^\s(\[{<"\'])@("[^"]*|[^\s"]\S*|)$')
"""What is being written behind an @: after a quotation mark it may have spaces in it."""
LONGEST_PASTE = 2000
"""Characters of a pasted text that are shown; a longer one is folded into a few words."""


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
        """The user sends a text, as it was written: `pasted` is what its folded places hold."""

        written: str
        pasted: Mapping[str, str] = field(default_factory=dict)

        def unfold(self, text: str) -> str:
            """Return a text with what was pasted in place of the words that stand for it."""
            for words, content in self.pasted.items():
                text = text.replace(words, content)
            return text

    @dataclass
    class Commanded(Message):
        """The user sends a command: a text that begins with a slash."""

        text: str

    @dataclass
    class Paged(Message):
        """The user looks through the conversation, a page up (-1) or down (1)."""

        step: int

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
            placeholder="Ask something.  Ctrl+J: new line, @: file, /: commands",
            id="composer",
        )
        self.cursor_blink = False  # what blinks keeps an idle machine awake
        self._history: list[str] = []
        self._place = 0
        self._draft = ""
        self._pasted: dict[str, str] = {}

    def remember(self, texts: list[str]) -> None:
        """Take up what was sent before, oldest first."""
        self._history = [harmless(text) for text in texts[-LONGEST_HISTORY:]]
        self._place = len(self._history)

    def action_send(self) -> None:
        """Send what is written."""
        written, text = self.text, self.text.strip()
        if not text:
            return
        self._history = [*self._history, text][-LONGEST_HISTORY:]
        self._place = len(self._history)
        self.text = ""
        if is_slash(written.rstrip()):
            self.post_message(self.Commanded(text))
            return
        in_history = "\n".join(self._history)
        self._pasted = {words: each for words, each in self._pasted.items() if words in in_history}
        self.post_message(self.Sent(text, dict(self._pasted)))

    def action_newline(self) -> None:
        """Begin a new line."""
        self.insert("\n")

    def action_to_messages(self) -> None:
        """Go to the messages."""
        self.post_message(self.LeftUpwards())

    def action_bring_back(self) -> None:
        """Bring back what was deleted last: there is nothing written that could be undone."""
        self.app.call_later(self.app.run_action, "undo")

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
        found = UNFINISHED_NAME.search(self.document.get_line(row)[:column])
        return found[1] if found else None

    def complete_with(self, name: str) -> None:
        """Put a name in place of the one being written."""
        word = self.word_behind_at
        if word is not None:
            row, column = self.cursor_location
            self.replace(name, (row, column - len(word)), (row, column))

    @property
    def first_line(self) -> str:
        """The text where it is of one line: only such may be a command."""
        return self.text if self.document.line_count == 1 else ""

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
            **({} if self.text else {"ctrl+z": self.action_bring_back}),
            "pageup": lambda: self.post_message(self.Paged(-1)),
            "pagedown": lambda: self.post_message(self.Paged(1)),
            **(self._acts_on_suggestions() if self._suggestions.display else {}),
        }
        if event.key == "enter" and self._suggestions.follow(self.first_line):
            acts |= self._acts_on_suggestions()
        if event.key in acts:
            event.prevent_default()
            event.stop()
            acts[event.key]()
        else:
            self._walk_through_history(event)

    @property
    def _suggestions(self) -> Suggestions:
        return self.screen.query_one(Suggestions)

    def _acts_on_suggestions(self) -> dict[str, Callable[[], object]]:
        """Return what keys do while commands are listed."""
        listed = self._suggestions

        def take() -> None:
            self.text = f"/{listed.marked}"
            self.move_cursor(self.document.end)

        def take_and_send() -> None:
            take()
            self.action_send()

        def hide() -> None:
            listed.display = False

        return {
            "up": listed.action_cursor_up,
            "down": listed.action_cursor_down,
            "tab": take,
            "enter": take_and_send,
            "escape": hide,
        }

    async def _on_paste(self, event: Paste) -> None:
        """Attach a file whose path is pasted, as terminals do with what is dropped; fold a book."""
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        files = pasted_files(event.text, Path.cwd())
        if files:
            self._put(" ".join(files) + " ", event)
        elif len(event.text) > LONGEST_PASTE:
            words = f"[pasted {len(event.text):,} characters".replace(",", " ")
            again = sum(each.startswith(words) for each in self._pasted)
            words += f", {again + 1}]" if again else "]"
            self._pasted[words] = text
            self._put(words, event)
        elif harmless(text) != event.text:
            self._put(harmless(text), event)

    def _put(self, text: str, event: Paste) -> None:
        """Write a text in the place of what was pasted."""
        event.prevent_default()
        event.stop()
        self.move_cursor(self.replace(text, *self.selection).end_location)

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
