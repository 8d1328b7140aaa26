"""Messages on the screen: a question, or an answer with all its parts and its statistics."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.events import Click
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from specchat.chat.conversation import Mark
from specchat.decoding.chunk import Kind
from specchat.safe_text import harmless
from specchat.tui.answer_parts import AnswerParts
from specchat.tui.markdown.prose import Prose, virtual_size_alone
from specchat.tui.markdown.token_tint import TokenTint
from specchat.tui.markdown.typesetter import Typesetter
from specchat.tui.texts.ghost_text import Ghost
from specchat.tui.widgets.call_text import calls_markdown
from specchat.tui.widgets.facts_line import FactsLine
from specchat.tui.widgets.fold import Fold, TextFold

LONGEST_QUESTION, SHOWN_PART = 2000, 500
"""The length from which a question is folded, as in the composer, and that of the ends shown."""


SUMMARY_NOTE = "Summary: the model gets the answer below instead of the messages above."
"""Shown in place of the question for a summary."""


def render_alike(self: Widget, crop: Region) -> list[Strip]:
    """Return the background of a widget whose lines are identical, rendering only one of them.

    Containers use it as their `render_lines`. While a transcript grows, every update draws all
    visible containers, and this saves a quarter of the CPU time.
    """
    return Widget.render_lines(self, Region(crop.x, 0, crop.width, 1)) * crop.height


class MessageView(Vertical, can_focus=True):
    """A message that can be focused, and the keys that act on it."""

    render_lines = render_alike
    virtual_size = virtual_size_alone()
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "app.step_focus(-1)", "Previous", show=False),
        Binding("down,j", "app.step_focus(1)", "Next", show=False),
        Binding("c,y", "app.message('copy')", "Copy"),
        Binding("b", "app.message('copy_code')", "Copy code"),
        Binding("e", "app.message('edit')", "Edit"),
        Binding("r", "app.message('regenerate')", "Regenerate"),
        Binding("left,h", "app.message('previous_branch')", "Versions", key_display="←→"),
        Binding("right,l", "app.message('next_branch')", "Next version", show=False),
        Binding("p", "app.message('pin')", "Pin"),
        Binding("d,delete", "app.message('delete')", "Delete"),
        Binding("s", "app.message('steps')", "Steps"),
        Binding("space,enter", "fold", "Reasoning", show=False),
        Binding("escape", "app.leave", "Back", show=False),
    ]

    message_id = 0
    """The message's number in the store, once it has one."""
    is_armed = False
    """Whether letters act on it: once the keyboard moved the focus here, not after a click or a
    search. Otherwise what is typed goes to the composer."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self.text = text
        """The text of the message; of an answer, without reasoning and tool calls."""
        self._versions = Static(classes="versions", markup=False)
        self._versions.display = False
        self._pin = Static("▪ pinned", classes="versions", markup=False)
        self._pin.display = False

    def say_mark(self, mark: Mark) -> None:
        """Show whether the message is pinned."""
        self._pin.display = mark == "pinned"

    def say_branch(self, number: int, total: int) -> None:
        """Show which version this is."""
        self._versions.display = total > 1
        self._versions.update(f"◂ {number}/{total} ▸")

    def takes(self, act: str) -> bool:
        """Return whether the message has what a key acts on."""
        if act == "copy_code":
            return any(fence in self.text for fence in ("```", "~~~"))
        return self._versions.display if act in {"previous_branch", "next_branch"} else True

    def arm(self) -> None:
        """Take the focus, on purpose: letters act on this message until it loses the focus."""
        self.focus()
        self.is_armed = True

    def on_blur(self) -> None:
        """Leave letters to the composer again."""
        self.is_armed = False

    def restyle(self, typesetter: Typesetter) -> None:
        """Follow the theme."""
        for prose in self.query(Prose):
            prose.restyle(typesetter)

    async def on_click(self, event: Click) -> None:
        """On a click on the switch, show the previous (left half) or next version (right half)."""
        switch = self._versions.content_region
        if switch.contains(event.screen_x, event.screen_y):
            is_next = event.screen_x >= switch.x + switch.width / 2
            await self.run_action(f"app.message('{'next' if is_next else 'previous'}_branch')")

    def action_fold(self) -> None:
        """Open or close the reasoning and the attached files."""
        for fold in self.query(Fold):
            fold.toggle()

    def unfold(self) -> None:
        """Open the reasoning and the attached files."""
        for fold in self.query(Fold):
            if not fold.is_open:
                fold.toggle()


class QuestionView(MessageView):
    """A question as the user wrote it; only the beginning and the end of a long one are shown."""

    def __init__(self, text: str, files: Sequence[Widget] = ()) -> None:
        super().__init__(text)
        self._files = list(files)
        shown = text
        if len(text) > LONGEST_QUESTION:
            shown = f"{text[:SHOWN_PART].rstrip()}\n…\n{text[-SHOWN_PART:].lstrip()}"
            self._files.insert(0, TextFold(f"all {len(text):,} characters", text))
        self._shown = harmless(shown)

    def takes(self, act: str) -> bool:
        """Return whether the question has what a key acts on."""
        return act != "steps" and super().takes(act)

    def compose(self) -> ComposeResult:
        """Put the text above the files."""
        yield Static(self._shown, markup=False)
        yield from self._files
        yield self._versions
        yield self._pin


class AnswerView(MessageView):
    """An answer, finished or still being written."""

    def __init__(
        self, typesetter: Typesetter, *, shows_origins: bool = False, folds: bool = True
    ) -> None:
        """Start empty; `folds` hides the reasoning until the user opens it."""
        super().__init__()
        self._parts = AnswerParts()
        self._ghost: Ghost | None = None
        self._shows_origins = shows_origins
        self._reasoning, self._prose = Prose(typesetter), Prose(typesetter)
        self._calls = Prose(typesetter)
        self._calls.add_class("calls")
        self._calls.display = False
        self._fold = Fold(self._reasoning, is_open=not folds)
        self._notes, self._older_note = ("", ""), ""
        self._note = FactsLine(classes="note", markup=False)
        self._foot = Horizontal(self._versions, self._pin, self._note, classes="foot")

    def takes(self, act: str) -> bool:
        """Return whether the answer has what a key acts on."""
        return act != "edit" and super().takes(act)

    def compose(self) -> ComposeResult:
        """Put the reasoning above the answer, and its tool calls and the statistics below."""
        yield self._fold
        yield self._prose
        yield self._calls
        yield self._foot

    def show(self, parts: AnswerParts, drafted: Ghost | None = None) -> None:
        """Show what has been written of an answer; only new text is drawn.

        `drafted` stands behind the last line.
        """
        is_other, self._parts, self.text = parts is not self._parts, parts, parts.text
        self._ghost = drafted
        self._show(is_anew=is_other)

    def say(
        self, words: str, details: str = "", older: str = "", *, has_failed: bool = False
    ) -> None:
        """Show a line below the answer.

        `details` replace it while the answer has the focus, `older` once another message follows.
        """
        self._notes, self._older_note = (words, details or words), older or words
        self._note.set_class(has_failed, "-failed")
        self._note.update(self._notes[self.has_focus])
        self._show_foot(has_words=bool(words))

    def follow_up(self) -> None:
        """Show the line of an answer that another message follows."""
        self._notes = self._older_note, self._notes[True]
        self._note.update(self._notes[self.has_focus])

    def watch_has_focus(self, has_focus: bool) -> None:
        """Show the details while the answer has the focus."""
        super().watch_has_focus(has_focus)
        self._note.update(self._notes[has_focus])

    def say_branch(self, number: int, total: int) -> None:
        """Show which version this is."""
        super().say_branch(number, total)
        self._show_foot(has_words=bool(self._note.content))

    def say_mark(self, mark: Mark) -> None:
        """Show whether the message is pinned."""
        super().say_mark(mark)
        self._show_foot(has_words=bool(self._note.content))

    def _show_foot(self, *, has_words: bool) -> None:
        self._foot.display = has_words or self._versions.display or self._pin.display

    def on_fold_opened(self, message: Fold.Opened) -> None:
        """Do not scroll to the opened fold while the answer is being written."""
        if self._parts.is_growing:
            message.stop()

    def show_origins(self, shows: bool) -> None:
        """Turn the tinting of tokens by origin on or off."""
        if shows != self._shows_origins:
            self._shows_origins = shows
            self._show(is_anew=True)

    def _show(self, *, is_anew: bool = False) -> None:
        """Draw new text: reasoning in the fold, the answer below; `is_anew` redraws everything."""
        parts = self._parts
        self._grow(self._reasoning, parts.reasoning, "reasoning", is_anew=is_anew)
        ghost = self._ghost or Ghost("")
        shown = parts.text[: len(parts.text) - ghost.held]
        self._grow(self._prose, shown, "answer", is_anew=is_anew)
        self._prose.show_ghost(ghost.text, is_rejected=ghost.is_rejected)
        calls = calls_markdown(parts.tool_calls, parts.open_call, is_growing=parts.is_growing)
        self._grow(self._calls, calls, None, is_anew=is_anew)
        self._calls.display = bool(calls)
        self._prose.display = not calls or bool(parts.text.strip())
        if parts.reasoning:
            self._fold.say(thought_title(parts))

    def _grow(self, prose: Prose, text: str, kind: Kind | None, *, is_anew: bool) -> None:
        """Extend a widget to the new text, tinted by the tokens of that kind."""
        if text == prose.source and not is_anew:
            return
        if is_anew or not prose.source or not text.startswith(prose.source):
            tint = TokenTint(self._parts.pieces, kind) if kind and self._shows_origins else None
            prose.clear(tint)
        prose.append(text[len(prose.source) :])


def thought_title(parts: AnswerParts) -> str:
    """Return how long the model has been reasoning, or did reason, and in how many tokens."""
    taken = parts.reasoning_s
    seconds = f" {taken:.0f} s" if taken >= 1 else " <1 s" if taken else ""
    tokens, count = "", parts.reasoning_tokens
    if count:
        tokens = f" · {count} token{'s' * (count != 1)}"
    return ("thinking" if parts.is_thinking else "thought") + seconds + tokens
