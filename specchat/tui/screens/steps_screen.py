"""An answer step by step: the tokens of each step as chips, and what could have stood there."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Click, Key
from textual.geometry import Region
from textual.style import Style
from textual.widgets import Static

from specchat.chat.safe_text import harmless
from specchat.decoding.chunk import Alternative, Chunk
from specchat.drafter_registry import CHOSEN, TARGET, origin
from specchat.tui.cards import MUTED, REJECTED, origin_style, packed
from specchat.tui.figures import spark
from specchat.tui.screens.dialogs import CLOSING, Dialog
from specchat.wording import percent

OTHER_ROWS = 9
"""Rows that a step needs, excluding the text before it."""
KEPT, DROPPED, OWN = "✔", "✘", "+"
"""The marks of tokens, so that they can be told apart without colours."""
CHIP, ALTERNATIVE = "chip", "alternative"
"""The keys of a chip's and an alternative's position in the metadata of their styles."""
BAR_WIDTH = 12
END = "(end of the answer)"
"""Stands for the token that ends a turn, which has no text."""


class StepsScreen(Dialog[Sequence[Chunk]]):
    """One step at a time; returns the steps to continue from with another token, if chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *CLOSING,
        Binding("1,2,3,4,5,6", "branch", "Continue with", key_display="1-6"),
        Binding("left,h", "go(-1)", "Previous"),
        Binding("right,l,space", "go(1)", "Next"),
        Binding("up,k", "point(-1)", "Token", key_display="↑↓"),
        Binding("down,j", "point(1)", show=False),
        Binding("d", "seek(False)", "Next draft"),
        Binding("x", "seek(True)", "Next rejected"),
        Binding("home", "go(-1000000)", "First"),
        Binding("end", "go(1000000)", "Last"),
        Binding("pageup", "page(-1)", "Scroll", key_display="PgUp/PgDn"),
        Binding("pagedown", "page(1)", show=False),
    ]

    def __init__(self, steps: Sequence[Chunk]) -> None:
        """Store the steps of an answer; at least one must have tokens."""
        super().__init__()
        self._steps = [step for step in steps if step.tokens]
        self._is_complete = steps[-1].finish == "stop"
        drafted = (index for index, step in enumerate(self._steps) if _has_draft(step))
        self._place = next(drafted, 0)
        self._cursor = 0
        """The index of the chip under the cursor."""

    def content(self) -> ComposeResult:
        """Yield the overview, the answer so far, and the step with its tokens and their legend."""
        yield Static(id="place", markup=False)
        with VerticalScroll(can_focus=False):
            yield Static(id="before", markup=False)
            yield Static(id="step", markup=False)

    def on_resize(self) -> None:
        """Fit the new size."""
        self.call_after_refresh(self._show)

    def action_go(self, step: int) -> None:
        """Move by a number of steps."""
        self._go_to(min(max(self._place + step, 0), len(self._steps) - 1))

    def action_seek(self, is_rejected: bool) -> None:
        """Move to the next rejected token, or to the next step with a draft."""
        for place in range(self._place, len(self._steps)):
            for chip, (mark, _, _) in enumerate(_marked_tokens(self._steps[place])):
                is_wanted = mark == DROPPED if is_rejected else mark != OWN and chip == 0
                if is_wanted and (place, chip) > (self._place, self._cursor):
                    self._go_to(place, chip)
                    return
        self.notify(f"No {'rejected token' if is_rejected else 'draft'} after this one.")

    def action_point(self, step: int) -> None:
        """Move the cursor by a number of chips."""
        shown = self._steps[self._place]
        last = len(shown.texts) + len(shown.rejected) - 1
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
        return _index_in_answer(self._steps[self._place], self._cursor)

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
        area, chips = self.query_one(VerticalScroll), self.query_one("#step")
        shown = islice(_chips(self._steps[self._place], self._cursor), self._cursor + 1)
        row = len(packed(shown, area.scrollable_content_region.width))
        area.scroll_to_region(Region(0, chips.virtual_region.y + row, 1, 1), animate=False)

    def action_page(self, step: int) -> None:
        """Scroll a step with many drafts by a page, up (-1) or down (1)."""
        area = self.query_one(VerticalScroll)
        (area.scroll_page_up, area.scroll_page_down)[step > 0](animate=False)

    def _show(self) -> None:
        area = self.query_one(VerticalScroll)
        width = area.scrollable_content_region.width
        step = self._steps[self._place]
        if self._is_complete and step is self._steps[-1] and not step.texts[-1]:
            step = step._replace(texts=(*step.texts[:-1], END))
        room = width * max(2, area.size.height - OTHER_ROWS)
        steps = self._steps[: self._place]
        before = harmless("".join(text for step in steps for text in step.texts))
        start = "…" if len(before) > room else ""
        lines = [
            Content(),
            *packed(_chips(step, self._cursor), width),
            _probabilities(step, self._cursor),
            *_alternatives(step, self._index),
            Content(),
            *_legend(step),
        ]
        self.query_one("#place", Static).update(self._overview(width))
        text = Content.styled(f"{start}{before[-room:]}", MUTED)
        self.query_one("#before", Static).update(text)
        self.query_one("#step", Static).update(Content("\n").join(lines))

    def _overview(self, width: int) -> Content:
        """Return the position in the answer, and its steps as bars whose height is their tokens."""
        counts = [len(step.tokens) for step in self._steps]
        first = max(0, min(self._place - width // 2, len(counts) - width))
        bars = spark(counts[first : first + width], max(counts))
        here = self._place - first
        number = f"step {self._place + 1} of {len(counts)}"
        count = counts[self._place]
        words = f" · {count} token{'s' * (count != 1)} from one pass of the target"
        title = Content.assemble((number, "bold"), (words, MUTED))
        strip = Content.assemble(
            (bars[:here], MUTED), (bars[here], "bold $text-primary"), (bars[here + 1 :], MUTED)
        )
        return Content("\n").join([title, strip, Content()])


def _has_draft(step: Chunk) -> bool:
    return bool(step.rejected) or any(name not in {TARGET.name, CHOSEN} for name in step.origins)


def _is_own(step: Chunk) -> bool:
    """Return True if the step's last token was not drafted."""
    return step.origins[-1] in {TARGET.name, CHOSEN}


def _index_in_answer(step: Chunk, chip: int) -> int:
    """Return the index among a step's tokens of the one at a chip, or of the one in its place.

    For a rejected token that is the target's own; the ones after it have no place in the answer.
    """
    num_kept = len(step.tokens) - _is_own(step)
    if chip <= num_kept:
        return chip
    return num_kept if chip == num_kept + len(step.rejected) else len(step.tokens)


def _with(step: Chunk, index: int, chosen: Alternative) -> Chunk:
    """Return a step up to one of its tokens, with another token in the place of that one."""
    return Chunk(
        "".join(step.texts[:index]),
        (*step.tokens[:index], chosen[0]),
        (*step.origins[:index], CHOSEN),
        (*step.texts[:index], ""),  # a part of a character has no text: the engine decides
        step.proposed[:index],
        chances=step.chances[:index],
        alternatives=step.alternatives[: index + 1],
    )


def _alternatives(step: Chunk, index: int) -> Iterator[Content]:
    """Yield the tokens that could have stood at an index, with the model's own probabilities."""
    found = step.alternatives[index] if index < len(step.alternatives) else ()
    if not found:
        return
    yield Content()
    yield Content.styled("probability before sampling · 1-6 continues with it", MUTED)
    width = max(cell_len(_visible(text)) for _, text, _ in found)
    for number, (token, text, share) in enumerate(found):
        shown = _visible(text) if text else END
        bar = "█" * round(BAR_WIDTH * share)
        note = "  in the answer" if token == step.tokens[index] else ""
        line = Content.assemble(
            (f"{number + 1} ", "bold"), f"{shown:<{width}}  ", (f"{bar:<{BAR_WIDTH}}", MUTED),
            f" {percent(share):>5}", (note, MUTED),
        )  # fmt: skip
        yield line.stylize(Style.from_meta({ALTERNATIVE: number}))


def _marked_tokens(step: Chunk) -> list[tuple[str, str, str]]:
    """Return the mark, text and origin of each token: the draft in order, then the target's own."""
    kept = [(KEPT, *each) for each in zip(step.texts, step.origins, strict=True)]
    own = [(OWN, *kept.pop()[1:])] if _is_own(step) else []
    return [*kept, *((DROPPED, piece, "") for piece in step.rejected), *own]


def _chips(step: Chunk, cursor: int) -> Iterator[Content]:
    """Yield the tokens of a step as chips.

    The chip under the cursor is in brackets; clicking a chip moves the cursor to it.
    """
    for place, (mark, piece, name) in enumerate(_marked_tokens(step)):
        style = origin_style(name) if name else f"{REJECTED} strike"
        left, right = "[]" if place == cursor else "  "
        chip = Content.styled(f"{left}{mark} {_visible(piece)}{right}", f"reverse {style}")
        yield chip.stylize(Style.from_meta({CHIP: place}))


def _probabilities(step: Chunk, cursor: int) -> Content:
    """Return the probabilities of the drafted token under the cursor, if known."""
    if not step.chances or cursor >= len(step.proposed):
        return Content()
    if cursor >= len(step.chances):
        return Content.styled("not checked: a token before it was rejected", MUTED)
    target, drafter = map(percent, step.chances[cursor])
    words = ("probability: drafter ", MUTED), drafter, (" · target ", MUTED), target
    return Content.assemble(*words)


def _legend(step: Chunk) -> Iterator[Content]:
    kept = Counter(name for name in step.origins if name not in {TARGET.name, CHOSEN})
    for name, count in kept.items():
        yield _line(KEPT, f"{count} accepted", origin(name).label, origin_style(name))
    if step.rejected:
        yield _line(DROPPED, f"{len(step.rejected)} rejected", "", REJECTED)
    if step.origins[-1] == CHOSEN:
        yield _line(OWN, "chosen by you", "the answer goes on from here", origin_style(CHOSEN))
    elif _is_own(step):
        yield _line(OWN, "the target's own", _kind(step), origin_style(TARGET.name))


def _line(mark: str, words: str, detail: str, style: str) -> Content:
    return Content.assemble(
        (f"{mark} ", f"bold {style}"), words, (f" · {detail}" if detail else "", MUTED)
    )


def _kind(step: Chunk) -> str:
    if step.rejected:
        return "correction: replaces the first rejected token"
    if len(step.origins) > 1:
        return "free token: all draft tokens accepted"
    return "plain decoding: no drafts"


def _visible(piece: str) -> str:
    """Return a token's text, with visible signs for line ends, tabs and surrounding spaces."""
    shown = harmless(piece).replace("\n", "⏎").replace("\t", "⇥")
    inner = shown.strip(" ")
    before, _, after = shown.partition(inner) if inner else ("", "", shown)
    return f"{'·' * len(before)}{inner}{'·' * len(after)}" or "(part of a character)"
