"""An answer step by step: what was drafted, what was accepted, what replaced the rest."""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from specchat.chat.safe_text import harmless
from specchat.decoding.chunk import Chunk
from specchat.drafter_registry import TARGET, origin
from specchat.tui.screens.dialogs import CLOSING, Dialog

MAX_BEFORE = 200
"""Characters shown of the text before a step."""
END = "(end of the answer)"
"""Stands for the token that ends a turn, which has no text."""


class StepsScreen(Dialog[None]):
    """One step at a time."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *CLOSING,
        Binding("left,up,h,k", "go(-1)", "Previous"),
        Binding("right,down,l,j,space", "go(1)", "Next"),
        Binding("home", "go(-1000000)", "First"),
        Binding("end", "go(1000000)", "Last"),
        Binding("pageup", "page(-1)", "Scroll", key_display="PgUp/PgDn"),
        Binding("pagedown", "page(1)", show=False),
    ]

    def __init__(self, steps: Sequence[Chunk]) -> None:
        """Store the steps of an answer, at least one of which has tokens."""
        super().__init__()
        self._steps = [step for step in steps if step.tokens]
        self._is_complete = steps[-1].finish == "stop"
        self._place = 0

    def content(self) -> ComposeResult:
        """Put the legend below the step."""
        with VerticalScroll(can_focus=False):
            yield Static(id="step", markup=False)
        yield Static("✔ accepted   ✘ rejected   + target", classes="label", markup=False)

    def on_mount(self) -> None:
        """Show the first step."""
        self._show()

    def action_go(self, step: int) -> None:
        """Move by a number of steps."""
        self._place = min(max(self._place + step, 0), len(self._steps) - 1)
        self._show()

    def action_page(self, step: int) -> None:
        """Scroll a step with many drafts by a page, up (-1) or down (1)."""
        area = self.query_one(VerticalScroll)
        (area.scroll_page_up, area.scroll_page_down)[step > 0](animate=False)

    def _show(self) -> None:
        before = "".join(each.text for each in self._steps[: self._place])
        start = "…" if len(before) > MAX_BEFORE else ""
        text = Text()
        text.append(f"step {self._place + 1} of {len(self._steps)}\n\n", "bold")
        text.append(f"{start}{harmless(before)[-MAX_BEFORE:]}\n\n", "dim")
        step = self._steps[self._place]
        if self._is_complete and step is self._steps[-1] and not step.texts[-1]:
            step = step._replace(texts=(*step.texts[:-1], END))
        text.append_text(_tokens(step))
        self.query_one("#step", Static).update(text)
        self.query_one(VerticalScroll).scroll_home(animate=False)


def _tokens(step: Chunk) -> Text:
    text = Text()
    for piece, name in zip(step.texts, step.origins, strict=True):
        if name != TARGET.name:
            text.append(f"  ✔ {_visible(piece)}", "green")
            text.append(f"   {origin(name).label}\n", "dim")
    for piece in step.rejected:
        text.append("  ✘ ", "red")
        text.append(f"{_visible(piece)}\n", "red strike")
    if step.origins and step.origins[-1] == TARGET.name:
        text.append(f"  + {_visible(step.texts[-1])}", "bold")
        text.append(f"   {_kind(step)}\n", "dim")
    return text


def _kind(step: Chunk) -> str:
    """Return why the target added a token of its own."""
    if step.rejected:
        return "correction: replaces the first rejected token"
    if len(step.origins) > 1:
        return "free token: all draft tokens accepted"
    return "plain decoding: no drafts"


def _visible(piece: str) -> str:
    return harmless(piece).replace("\n", "⏎").replace("\t", "⇥") or "(part of a character)"
