"""The stats panel: whether speculation helps, by how much and why, as cards of figures."""

from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from specchat.engine.api import EngineFacts
from specchat.tui.commands import KeyOf
from specchat.tui.texts.cards import CARDS, figure_texts
from specchat.tui.texts.figures import Figures
from specchat.tui.widgets.click_line import ClickLine

WIDEST = 76
"""Columns of the widest cards, as in the style sheet."""


class FigureView(Static):
    """A figure; clicking it opens its explanation."""

    @dataclass
    class Explain(Message):
        """The user asks what a figure means; `shown` is its current text."""

        figure: str
        shown: Content

    def __init__(self, figure: str) -> None:
        """Start hidden, without a value."""
        super().__init__(markup=False)
        self.figure = figure
        self._shown = Content()
        self.display = False

    def on_click(self) -> None:
        """Ask what it means."""
        self.explain()

    def explain(self) -> None:
        """Ask what it means."""
        self.post_message(self.Explain(self.figure, self._shown))

    def put(self, text: Content | None) -> None:
        """Show a value; hide the figure if there is none."""
        self.display = text is not None
        if text is None or text.is_same(self._shown):
            return
        self._shown = text
        height = text.get_height({}, max(1, self.content_size.width))
        self.update(text, layout=height != self.content_size.height)


class Card(Vertical):
    """Figures with a title."""

    def __init__(self, title: str, *lines: Static) -> None:
        super().__init__(*lines)
        self.border_title = title
        self._figures = [line for line in lines if isinstance(line, FigureView)]

    def show(self, texts: dict[str, Content]) -> None:
        """Show the known figures; hide the card if there are none."""
        for figure in self._figures:
            figure.put(texts.get(figure.figure))
        self.display = any(figure.display for figure in self._figures)


class Panel(VerticalScroll, can_focus=True):
    """The cards, and a cursor on one of the figures."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Previous", show=False),
        Binding("down,j", "move(1)", "Next", show=False),
        Binding("enter,space,question_mark", "explain", "Explain"),
        Binding("escape", "app.leave", "Back"),
    ]

    def __init__(self, key_of: KeyOf) -> None:
        """Put the cursor on the first figure; `key_of` returns the keys in effect."""
        super().__init__()
        self._key_of = key_of
        self._cards: list[Card] = []
        """Made once there is room for them: the first frame has no figures to show."""
        self._advice = ClickLine("improve", "advice")
        self._advice.display = False
        self._index = 0
        """The index of the marked figure among the visible ones."""
        self._shown: tuple[Figures, EngineFacts | None, str] | None = None

    def show(self, figures: Figures, facts: EngineFacts | None, advice: str = "") -> None:
        """Show figures, facts about the loaded pair, and advice, unless the panel is hidden."""
        self._shown = figures, facts, advice
        room = min(self.scrollable_content_region.width, WIDEST)
        if not self.display or room <= 0:  # `on_resize` shows the figures after the layout
            return
        if not self._cards:
            self._add_cards()
        width = room - self._cards[-1].gutter.width
        texts = figure_texts(figures, facts, width)
        for card in self._cards:
            card.show(texts)
            card.set_class(figures.tone == "good", "-good")
            card.set_class(figures.tone == "bad", "-bad")
        if advice != self._advice.content:
            self._advice.display = bool(advice)
            self._advice.update(advice)

    def _add_cards(self) -> None:
        """Add the cards; the first one holds the verdict and the advice."""
        self._cards = [Card(title, *map(FigureView, names)) for title, names in CARDS.items()]
        verdict = self._cards[0]
        verdict.id = "verdict"
        verdict.border_subtitle = f"{self._key_of('help')} explains"
        verdict.compose_add_child(self._advice)
        self.mount(*self._cards)

    def on_resize(self) -> None:
        """Fit the new size."""
        if self._shown:
            self.show(*self._shown)

    @property
    def under_cursor(self) -> FigureView | None:
        """The figure under the mouse, or else the marked one if the panel has the focus."""
        over = self.app.mouse_over
        marked = self._visible[self._index] if self.has_focus and self._visible else None
        return over if isinstance(over, FigureView) else marked

    def action_move(self, step: int) -> None:
        """Move the mark by a number of figures."""
        self._index = min(max(self._index + step, 0), len(self._visible) - 1)
        self._mark()

    def action_explain(self) -> None:
        """Explain the marked figure."""
        if self._visible:
            self._visible[self._index].explain()

    def watch_has_focus(self, has_focus: bool) -> None:
        """Show or hide the cursor."""
        super().watch_has_focus(has_focus)
        self._mark()

    @property
    def _visible(self) -> list[FigureView]:
        return [each for each in self.query(FigureView) if each.display]

    def _mark(self) -> None:
        self._index = min(self._index, max(0, len(self._visible) - 1))
        for index, figure in enumerate(self._visible):
            figure.set_class(self.has_focus and index == self._index, "-marked")
        if self.has_focus and self._visible:
            self.scroll_to_widget(self._visible[self._index], animate=False)
