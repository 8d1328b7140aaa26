"""An answer step by step: the tokens of each step as chips, and what could have stood there."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Click, Key
from textual.geometry import Region
from textual.widgets import Static

from specchat.decoding.chunk import Alternative, Chunk
from specchat.drafter_registry import CHOSEN
from specchat.tui.screens.dialogs import CLOSING, Dialog
from specchat.tui.texts.step_drafts import has_draft
from specchat.tui.texts.step_drawing import CHIP, drawn
from specchat.tui.texts.step_text import ALTERNATIVE, END, alternatives, heading, legend, sentence
from specchat.tui.texts.step_tokens import (
    DROPPED,
    OWN,
    fate,
    index_in_answer,
    tokens_of,
)

ROOMY = 24
"""Rows from which empty lines separate the parts."""
FEWEST_ROWS = 2
"""Rows of the answer that are shown on the smallest screen."""


class StepsScreen(Dialog[Sequence[Chunk]]):
    """One step at a time; returns the steps to continue from with another token, if chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *CLOSING,
        Binding("left,h", "go(-1)", "Step", key_display="←→"),
        Binding("right,l,space", "go(1)", show=False),
        Binding("up,k", "point(-1)", "Token", key_display="↑↓"),
        Binding("down,j", "point(1)", show=False),
        Binding("1,2,3,4,5,6", "branch", "Go on", key_display="1-6"),
        Binding("d", "seek(False)", "Draft"),
        Binding("x", "seek(True)", "Rejected"),
        Binding("home", "go(-1000000)", "First"),
        Binding("end", "go(1000000)", "Last"),
        Binding("pageup", "page(-1)", "Scroll", key_display="PgUp/PgDn"),
        Binding("pagedown", "page(1)", show=False),
    ]

    def __init__(self, steps: Sequence[Chunk], temperature: float | None = None) -> None:
        """Store the steps of an answer, one of which must have tokens, and its temperature."""
        super().__init__()
        self._temperature = temperature
        self._steps = [step for step in steps if step.tokens]
        self._is_complete = steps[-1].finish == "stop"
        drafted = (index for index, step in enumerate(self._steps) if has_draft(step))
        self._place = next(drafted, 0)
        self._cursor = 0
        """The index of the chip under the cursor."""

    def content(self) -> ComposeResult:
        """Yield what the step did, the answer around it, its tokens and what else was probable."""
        yield Static(id="place", markup=False)
        with VerticalScroll(can_focus=False):
            yield Static(id="sentence", markup=False)
            yield Static(id="step", markup=False)

    def on_mount(self) -> None:
        """Say what this is."""
        self.query_one(".dialog").border_title = "How this answer was written, step by step"

    def on_resize(self) -> None:
        """Fit the new size."""
        self.call_after_refresh(self._show)

    def action_go(self, step: int) -> None:
        """Move by a number of steps."""
        self._go_to(min(max(self._place + step, 0), len(self._steps) - 1))

    def action_seek(self, is_rejected: bool) -> None:
        """Move to the next rejected token, or to the next step with a draft."""
        for place in range(self._place, len(self._steps)):
            for chip, token in enumerate(tokens_of(self._steps[place])):
                is_wrong = token.mark == DROPPED and not token.is_branch
                is_wanted = is_wrong if is_rejected else token.mark != OWN and chip == 0
                if is_wanted and (place, chip) > (self._place, self._cursor):
                    self._go_to(place, chip)
                    return
        self.notify(f"No {'rejected token' if is_rejected else 'draft'} after this one.")

    def action_point(self, step: int) -> None:
        """Move the cursor by a number of chips."""
        last = len(tokens_of(self._steps[self._place])) - 1
        self._move_cursor(min(max(self._cursor + step, 0), last))

    def on_click(self, event: Click) -> None:
        """Move the cursor to the chip that was clicked."""
        if CHIP in event.style.meta:
            self._move_cursor(event.style.meta[CHIP])
        elif ALTERNATIVE in event.style.meta:
            self._branch(event.style.meta[ALTERNATIVE])

    def on_key(self, event: Key) -> None:
        """Continue from the token under the cursor with the alternative of that number."""
        if event.character in tuple("123456"):
            event.stop()
            self._branch(int(event.character) - 1)

    def action_branch(self) -> None:
        """Continue from the token under the cursor; `on_key` knows with which alternative."""

    def _branch(self, number: int) -> None:
        step, index = self._steps[self._place], self._index
        found = step.alternatives[index] if index < len(step.alternatives) else ()
        if number >= len(found):
            self.notify("No alternative with this number here.")
            return
        self.dismiss([*self._steps[: self._place], _with(step, index, found[number])])

    @property
    def _index(self) -> int:
        """The index among the emitted tokens of the one under the cursor, or in its place."""
        return index_in_answer(self._steps[self._place], self._cursor)

    def _go_to(self, place: int, chip: int = 0) -> None:
        self._place = place
        self.query_one(VerticalScroll).scroll_home(animate=False)
        self._move_cursor(chip)

    def _move_cursor(self, chip: int) -> None:
        self._cursor = chip
        self._show()
        self.call_after_refresh(self._scroll_to_cursor)

    def _scroll_to_cursor(self) -> None:
        """Scroll a step with many drafts just enough to show the cursor."""
        area, shows_step = self.query_one(VerticalScroll), self.query_one("#step")
        width = area.scrollable_content_region.width
        _, row = drawn(self._steps[self._place], self._cursor, width)
        below = shows_step.virtual_region.y + row + 1
        area.scroll_to_region(Region(0, below, 1, 1), animate=False)

    def action_page(self, step: int) -> None:
        """Scroll a step with many drafts by a page, up (-1) or down (1)."""
        area = self.query_one(VerticalScroll)
        (area.scroll_page_up, area.scroll_page_down)[step > 0](animate=False)

    def _show(self) -> None:
        """Show the step; again where a scroll bar appears or goes, which changes the width."""
        area = self.query_one(VerticalScroll)
        width = area.scrollable_content_region.width
        self._show_in(area, width)

        def again() -> None:
            if self.is_mounted and (now := area.scrollable_content_region.width) != width:
                self._show_in(area, now)

        self.call_after_refresh(again)

    def _show_in(self, area: VerticalScroll, width: int) -> None:
        steps = [*self._steps]
        last = steps[-1]
        if self._is_complete and not last.texts[-1]:
            steps[-1] = last._replace(texts=(*last.texts[:-1], END))
        step, is_roomy = steps[self._place], self.size.height >= ROOMY
        gap = [Content()] * is_roomy
        lines = [
            *gap,
            *drawn(step, self._cursor, width)[0],
            *legend(self._steps, width),
            *gap,
            fate(step, self._cursor, self._temperature),
        ]
        others = len(gap) + len(lines) + 1 + max(map(len, step.alternatives), default=-1)
        rows = max(FEWEST_ROWS, area.size.height - others)
        text = sentence(steps, self._place, self._index, width, rows)
        lines += alternatives(step, self._index, width)
        self.query_one("#place", Static).update(heading(steps, self._place, width))
        self.query_one("#sentence", Static).update(Content("\n").join([*gap, *text]))
        self.query_one("#step", Static).update(Content("\n").join(lines))


def _with(step: Chunk, index: int, chosen: Alternative) -> Chunk:
    """Return a step up to one of its tokens, with another token in the place of that one.

    Of a tree the accepted tokens stay, one behind another.
    """
    kept = [each for each in tokens_of(step) if each.place < index and each.mark != DROPPED]
    return Chunk(
        "".join(step.texts[:index]),
        (*step.tokens[:index], chosen[0]),
        (*step.origins[:index], CHOSEN),
        (*step.texts[:index], ""),  # a part of a character has no text: the engine decides
        step.proposed[:index],
        chances=tuple(each.chances for each in kept if each.chances),
        alternatives=step.alternatives[: index + 1],
    )
