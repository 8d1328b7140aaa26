"""The text area for questions: history, @ for files, / for commands, folded pastes."""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain, count
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.events import Key, Paste
from textual.message import Message
from textual.timer import Timer
from textual.widgets import TextArea

from specchat.chat.draft import Draft
from specchat.safe_text import harmless
from specchat.system.current_folder import current_folder
from specchat.tui.commands import COMPOSER_COMMANDS, FOOTER, is_slash, key_of, takes_lines
from specchat.tui.mentions import completions, pasted_files
from specchat.tui.widgets.suggestions import Suggestions

KEYS = {
    key: each.id
    for each in COMPOSER_COMMANDS
    for key in each.key.split(",")
    if not each.id.startswith("app.")
}
LONGEST_HISTORY = 200
UNFINISHED_NAME = re.compile(r'(?<![^\s(\[{<"\'])@("[^"]*|[^\s"]\S*|)$')
"""The name being typed after an @; in quotation marks it may contain spaces."""
PASTED_SECONDS, QUIET_SECONDS = 0.008, 0.03
"""Where the terminal does not mark pasted text, its lines arrive like typed ones, but faster: an
Enter this soon after a character sends only if nothing follows for a moment."""
LONGEST_PASTE, MOST_LINES = 2000, 20
"""A pasted text with more characters or lines is folded into a placeholder."""


class Composer(TextArea):
    """A text area that sends its text on Enter, and has a history of what was sent."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(each.key, each.id, each.title, show=each.id in FOOTER) for each in COMPOSER_COMMANDS
    ]

    @dataclass
    class Sent(Message):
        """The user sends a text; `written` has placeholders for long pasted texts."""

        written: str
        text: str

    @dataclass
    class Commanded(Message):
        """The user sends a slash command."""

        text: str

    def __init__(self) -> None:
        newline, *_ = key_of("newline").split(",")
        super().__init__(
            soft_wrap=True,
            show_line_numbers=False,
            tab_behavior="focus",
            placeholder=f"Ask anything · {newline} newline · @ file · / commands",
            id="composer",
        )
        self.cursor_blink = False  # blinking would keep waking an idle machine
        self._history: list[str] = []
        self._index = 0
        """The index of the shown text in the history; its length for the text being written."""
        self._draft = ""
        self._pasted: dict[str, str] = {}
        self.leaves_undo = False
        """Whether something was deleted since the text changed last: that is restored first."""
        self._is_cleared = False
        """Whether the text was cleared away, so that undo brings it back."""
        self._typed_at = 0.0
        self._sends: Timer | None = None

    @property
    def draft(self) -> Draft:
        """The text that has not been sent."""
        used = {words: text for words, text in self._pasted.items() if words in self.text}
        return Draft(self.text, used)

    def restore(self, draft: Draft) -> None:
        """Put a text back that was not sent, above what has been typed meanwhile."""
        self._pasted.update(draft.pasted)
        self.put_above(harmless(draft.text))

    def put_above(self, text: str) -> None:
        """Put a text above what is written."""
        self.rewrite("\n\n".join(filter(None, [text, self.text])))

    @property
    def written(self) -> tuple[str, str]:
        """The text, and the text with its pasted texts in full."""
        return self.text, unfold(self.text.strip(), self._pasted)

    def remember(self, texts: list[str]) -> None:
        """Set the history, oldest first."""
        self._history = [harmless(text) for text in texts[-LONGEST_HISTORY:]]
        self._index = len(self._history)

    def forget(self, text: str) -> None:
        """Leave out of the history the text that was sent last, as it was no valid command."""
        if self._history and self._history[-1] == text:
            self._history.pop()
            self._index = len(self._history)

    @property
    def first_line(self) -> str:
        """The text if it is a single line, as commands are; otherwise empty."""
        return self.text if self.document.line_count == 1 else ""

    @property
    def word_behind_at(self) -> str | None:
        """The text between the last @ and the cursor; None unless it may be a file name."""
        row, column = self.cursor_location
        found = UNFINISHED_NAME.search(self.document.get_line(row)[:column])
        return found[1] if found else None

    def on_text_area_changed(self) -> None:
        """List what the text may become, unless Up recalled it: the next Up goes on from there."""
        self.leaves_undo = False
        if self.text in self._history[self._index : self._index + 1]:
            return
        suggestions = self.screen.query_one_optional(Suggestions)  # gone while the chat closes
        if suggestions is not None and not suggestions.follow(self.first_line):
            self.suggest_files()

    @work(exclusive=True)
    async def suggest_files(self) -> None:
        """List the files that complete the name being typed."""
        word = self.word_behind_at
        names = [] if word is None else await asyncio.to_thread(completions, word, current_folder())
        suggestions = self.screen.query_one_optional(Suggestions)  # gone while the chat closes
        if suggestions and word == self.word_behind_at and (names or suggestions.has_files):
            suggestions.list_files([name for name in names if name != word])

    def complete(self, name: str) -> None:
        """Replace the name being typed by the name of a file."""
        if (word := self.word_behind_at) is not None:
            row, column = self.cursor_location
            self.replace(name, (row, column - len(word)), (row, column))

    def rewrite(self, text: str) -> None:
        """Replace the text, and focus it with the cursor at its end; undo restores it."""
        self.replace(text, (0, 0), self.document.end)
        self.move_cursor(self.document.end)
        self._is_cleared = not text
        self.focus()

    def action_send(self) -> None:
        """Send the text."""
        written, text = self.text, self.text.strip()
        if not text:
            return
        self._is_cleared = False
        self._history = [*self._history, text][-LONGEST_HISTORY:]
        self._index = len(self._history)
        self.text = ""
        if is_slash(written.rstrip()):
            self.post_message(self.Commanded(unfold(text, self._pasted)))
            return
        in_history = "\n".join(self._history)
        self._pasted = {words: each for words, each in self._pasted.items() if words in in_history}
        self.post_message(self.Sent(text, unfold(text, self._pasted)))

    def _stop_sending(self) -> None:
        """Do not send at an Enter that something followed at once."""
        if self._sends is not None:
            self._sends.stop()
            self._sends = None

    def _send_after_all(self) -> None:
        """Send at an Enter right after a character: nothing followed, so nobody pasted."""
        self._stop_sending()
        self.action_send()

    def action_newline(self) -> None:
        """Begin a new line."""
        self.insert("\n")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave the key to the app's undo where nothing was written, and after a deletion."""
        if action == "undo":
            return bool(self.text or self._is_cleared) and not self.leaves_undo
        return super().check_action(action, parameters)

    def action_complete(self) -> None:
        """Complete a file name with a single match; outside of names, focus the next widget."""
        word = self.word_behind_at
        if word is None:
            self.screen.focus_next()
        elif len(names := completions(word, current_folder())) == 1:
            self.complete(names[0])

    def on_key(self, event: Key) -> None:
        """Handle the composer's own keys, and leave all others to the text area.

        Priority bindings would be handled before earlier characters when text is typed or pasted
        quickly.
        """
        if self._sends is not None:  # an Enter in the middle of a paste
            self._stop_sending()
            self.insert("\n")
        if event.key == "enter":  # what was typed quickly may not be followed yet
            self._suggestions.follow(self.first_line)
            is_fast = event.time - self._typed_at < PASTED_SECONDS
            text = self.text.rstrip()
            may_go_on = takes_lines(text) or not is_slash(text)
            if is_fast and may_go_on and not self._suggestions.display:
                event.prevent_default()
                event.stop()
                self._sends = self.set_timer(QUIET_SECONDS, self._send_after_all)
                return
        elif event.is_printable:
            self._typed_at = event.time
        acts = {
            **{key: getattr(self, f"action_{command}") for key, command in KEYS.items()},
            **({} if self.text else {"end": self._show_latest}),
            **self._history_acts(),
            **(self._suggestion_acts() if self._suggestions.display else {}),
        }
        if event.key in acts:
            event.prevent_default()
            event.stop()
            acts[event.key]()

    def _show_latest(self) -> None:
        self.app.call_later(self.app.run_action, "app.latest")

    @property
    def _suggestions(self) -> Suggestions:
        return self.screen.query_one(Suggestions)

    def _suggestion_acts(self) -> dict[str, Callable[[], object]]:
        """Return the actions of keys while suggestions are listed."""
        listed = self._suggestions

        def take() -> None:
            if listed.has_files:
                self.complete(listed.marked)
            else:
                self.text = f"/{listed.marked}"
                self.move_cursor(self.document.end)

        def take_and_send() -> None:
            is_file = listed.has_files and listed.highlighted is not None
            if is_file or not listed.has_files:
                take()
            if not is_file:
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

    def _history_acts(self) -> dict[str, Callable[[], object]]:
        """Return the actions of Up on the first line and of Down on the last line."""
        acts: dict[str, Callable[[], object]] = {}
        if self._history and self.cursor_at_first_line:
            acts["up"] = lambda: self._recall(-1)
        if self._index < len(self._history) and self.cursor_at_last_line:
            acts["down"] = lambda: self._recall(1)
        return acts

    def _recall(self, step: int) -> None:
        """Show an earlier or later text of the history, which ends with the one being written."""
        if self._index == len(self._history):
            self._draft = self.text
        self._index = min(max(self._index + step, 0), len(self._history))
        is_newest = self._index == len(self._history)
        self.text = self._draft if is_newest else self._history[self._index]
        self.move_cursor(self.document.end)

    def on_paste(self, event: Paste) -> None:
        """Attach pasted paths, which is what terminals send for dropped files; fold a long text."""
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        files = pasted_files(event.text, current_folder())
        if files:
            self._put(" ".join(files) + " ", event)
        elif len(text) > LONGEST_PASTE or text.count("\n") >= MOST_LINES:
            self._put(self._folded(text), event)
        elif harmless(text) != event.text:
            self._put(harmless(text), event)

    def _folded(self, text: str) -> str:
        size, unit = len(text), "characters"
        if size <= LONGEST_PASTE:
            size, unit = text.count("\n") + 1, "lines"
        words = f"[pasted {size:,} {unit}"
        numbered = (f"{words}, {number}]" for number in count(2))
        candidates = chain([f"{words}]"], numbered)
        placeholder = next(candidate for candidate in candidates if candidate not in self._pasted)
        self._pasted[placeholder] = text
        return placeholder

    def _put(self, text: str, event: Paste) -> None:
        event.prevent_default()
        event.stop()
        self.move_cursor(self.replace(text, *self.selection).end_location)


def unfold(text: str, pasted: Mapping[str, str]) -> str:
    """Return a text with each placeholder replaced by the pasted text."""
    placeholders = "|".join(map(re.escape, pasted))
    return re.sub(placeholders, lambda found: pasted[found[0]], text) if placeholders else text
