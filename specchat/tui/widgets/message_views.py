"""One message on the screen: a question, or an answer with its reasoning and its statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import Reactive
from textual.strip import Strip
from textual.widgets import Static

from specchat.chat.reasoning import split_reasoning
from specchat.decoding.chunk import Chunk, Origin
from specchat.tui.widgets.prose import Prose
from specchat.tui.widgets.typesetter import Typesetter, code_blocks
from specchat.tui.widgets.version_switch import Versions

__all__ = ["AnswerView", "Fold", "MessageView", "Plain", "QuestionView"]


class Fold(Vertical):
    """Text behind a title that opens and closes it."""

    DEFAULT_CSS = """
    Fold { height: auto; display: none; margin-bottom: 1; }
    Fold > .fold--title { color: $text-muted; text-style: italic; width: auto; }
    Fold > .fold--title:hover { color: $text-accent; }
    Fold > Prose { color: $text-muted; border-left: solid $surface-lighten-2; padding-left: 1; }
    """

    def __init__(self, typesetter: Typesetter, *, is_open: bool) -> None:
        """Start closed or open, and unseen until there is something in it."""
        super().__init__()
        self.prose = Prose(typesetter)
        self.prose.display = is_open
        self._title = Static(classes="fold--title", markup=False)
        self._words = ""

    def compose(self) -> ComposeResult:
        """Put the title above the text."""
        yield self._title
        yield self.prose

    def say(self, words: str) -> None:
        """Show a title."""
        self._words = words
        self.display = True
        self._title.update(f"{'▾' if self.prose.display else '▸'} {words}")

    def toggle(self) -> None:
        """Open or close it."""
        self.prose.display = not self.prose.display
        self.say(self._words)

    def on_click(self, event: Click) -> None:
        """Open or close it by mouse, at its title."""
        if event.widget is self._title:
            self.toggle()


class Plain(Vertical):
    """A column whose own lines are all alike: one is drawn for them all."""

    virtual_size = Reactive(Size(0, 0), layout=False)  # as in Prose

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return one line, as often as it is asked for."""
        return super().render_lines(Region(crop.x, 0, crop.width, 1)) * crop.height


class MessageView(Plain, can_focus=True):
    """A message that can be chosen, and what can be done with it."""

    DEFAULT_CSS = """
    MessageView { height: auto; padding: 0 1 0 1; margin: 0 0 1 0; border-left: outer $background; }
    MessageView:focus { border-left: outer $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "choose(-1)", "Previous", show=False),
        Binding("down,j", "choose(1)", "Next", show=False),
        Binding("c,y", "act('copy')", "Copy"),
        Binding("b", "act('copy_code')", "Copy code"),
        Binding("e", "act('edit')", "Edit"),
        Binding("r", "act('regenerate')", "Again"),
        Binding("left,h", "act('previous_branch')", "Branch ←"),
        Binding("right,l", "act('next_branch')", "Branch →"),
        Binding("d,delete", "act('delete')", "Delete"),
        Binding("s", "act('steps')", "Steps"),
        Binding("space,enter", "fold", "Reasoning", show=False),
        Binding("escape", "leave", "Back", show=False),
    ]

    @dataclass
    class Asked(Message):
        """Something is to be done with a message."""

        view: MessageView
        action: str

    @dataclass
    class Left(Message):
        """The reader goes on from here by so many messages, 0 to the composer."""

        view: MessageView
        step: int

    message_id: int | None = None
    """The message's number in the store, once it has one."""

    @property
    def text(self) -> str:
        """The message as it was written."""
        return ""

    @property
    def code(self) -> list[str]:
        """The blocks of code in it."""
        return code_blocks(self.text)

    def restyle(self, typesetter: Typesetter) -> None:
        """Show it in other colours."""
        for prose in self.query(Prose):
            prose.restyle(typesetter)

    def action_act(self, action: str) -> None:
        """Ask for something to be done."""
        self.post_message(self.Asked(self, action))

    def on_versions_turned(self, event: Versions.Turned) -> None:
        """Ask for another version."""
        self.action_act("next_branch" if event.step > 0 else "previous_branch")

    def action_choose(self, step: int) -> None:
        """Go to another message."""
        self.post_message(self.Left(self, step))

    def action_leave(self) -> None:
        """Go back to the composer."""
        self.post_message(self.Left(self, 0))

    def action_fold(self) -> None:
        """Open or close the reasoning."""
        for fold in self.query(Fold):
            fold.toggle()


class QuestionView(MessageView):
    """What the user wrote, as it was written."""

    DEFAULT_CSS = """
    QuestionView { background: $surface; border-left: outer $primary; padding: 0 1; }
    """

    def __init__(self, typesetter: Typesetter, text: str, files: Sequence[Fold] = ()) -> None:
        """Show a question, and the files that went with it."""
        super().__init__()
        self._files = files
        self._text = text
        self._prose = Prose(typesetter)
        self._prose.append_tokens([(text, "target")])
        self._versions = Versions()

    def compose(self) -> ComposeResult:
        """Put the text above the versions."""
        yield self._prose
        yield from self._files
        yield self._versions

    def say_branch(self, number: int, total: int) -> None:
        """Tell which of several versions this is."""
        self._versions.say(number, total)

    @property
    def text(self) -> str:
        """The question."""
        return self._text


class AnswerView(MessageView):
    """What the model wrote, while it writes it and after."""

    DEFAULT_CSS = """
    AnswerView > .foot { height: auto; margin-top: 1; display: none; }
    AnswerView .note { color: $text-muted; width: 1fr; height: auto; }
    AnswerView .note.-failed { color: $text-error; }
    """

    def __init__(
        self, typesetter: Typesetter, *, shows_origins: bool = False, folds: bool = True
    ) -> None:
        """Start empty."""
        super().__init__()
        self.steps: list[Chunk] = []
        self.pieces: list[tuple[str, Origin]] = []
        """Every token's text and where it came from."""
        self._typesetter = typesetter
        self._shows_origins = shows_origins
        self._text = ""
        self._shown = self._thought = 0
        self._began, self._thought_for = monotonic(), 0.0
        self._fold = Fold(typesetter, is_open=not folds)
        self._prose = Prose(typesetter)
        self._note = Static(classes="note", markup=False)
        self._versions = Versions()
        self._foot = Horizontal(self._versions, self._note, classes="foot")
        self._words = ""

    def compose(self) -> ComposeResult:
        """Put the reasoning above the answer, and the statistics below."""
        yield self._fold
        yield self._prose
        yield self._foot

    @property
    def text(self) -> str:
        """The answer as it came, reasoning included."""
        return self._text

    def add(self, chunks: Sequence[Chunk]) -> None:
        """Show what some steps added."""
        self.steps.extend(chunks)
        new = [piece for chunk in chunks for piece in zip(chunk.texts, chunk.origins, strict=True)]
        self.pieces.extend(new)
        self._text += "".join(chunk.text for chunk in chunks)
        if self._shows_origins:
            self._prose.append_tokens(new)
        else:
            self._show_new()

    def restore(
        self, text: str, pieces: Sequence[tuple[str, Origin]] = (), thought_s: float = 0.0
    ) -> None:
        """Show an answer from before."""
        self._text, self.pieces = text, list(pieces)
        self._thought_for = thought_s
        self._show_all()

    def say(self, words: str, *, has_failed: bool = False) -> None:
        """Show a line below: the statistics, or what went wrong."""
        self._words = words
        self._note.set_class(has_failed, "-failed")
        self._refresh_note()

    def say_branch(self, number: int, total: int) -> None:
        """Tell which of several versions this is."""
        self._versions.say(number, total)
        self._refresh_note()

    def show_origins(self, shows: bool) -> None:
        """Colour tokens by where they came from, or show Markdown."""
        if shows != self._shows_origins:
            self._shows_origins = shows
            self._show_all()

    @property
    def thought_s(self) -> float:
        """How long the model was thinking, in seconds."""
        return self._thought_for

    def _refresh_note(self) -> None:
        self._foot.display = bool(self._words) or self._versions.display
        self._note.update(self._words)

    def _show_all(self) -> None:
        self._prose.clear()
        self._fold.prose.clear()
        self._shown = self._thought = 0
        if self._shows_origins and self.pieces:
            self._fold.display = False
            self._prose.append_tokens(self.pieces)
        else:
            self._show_new()

    def _show_new(self) -> None:
        """Show what is not on the screen yet, reasoning and answer each in its place."""
        reasoning, answer, is_open = split_reasoning(self._text)
        if reasoning and self._shown > len(answer):  # what was shown turns out to be reasoning
            self._prose.clear()
            self._shown = 0
        if len(reasoning) > self._thought:
            self._fold.prose.append(reasoning[self._thought :])
            self._thought = len(reasoning)
        if reasoning:
            if is_open:
                self._thought_for = monotonic() - self._began
            seconds = f" {self._thought_for:.0f} s" if self._thought_for else ""
            self._fold.say(f"thinking{seconds}" if is_open else f"thought{seconds}")
        if len(answer) > self._shown:
            self._prose.append(answer[self._shown :])
            self._shown = len(answer)
