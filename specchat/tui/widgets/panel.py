"""The panel of figures: how speculation goes, while it goes."""

from __future__ import annotations

from textwrap import wrap
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Digits, Static

from specchat.engine.api import EngineFacts
from specchat.tui.figures import Figures, bar, in_bytes, spark

__all__ = ["Panel"]

BAR_WIDTH = 16
MOST_POSITIONS = 10


class Panel(VerticalScroll, can_focus=True):
    """Tokens per second, speedup, acceptance, and where the time goes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back", show=False)]

    class Left(Message):
        """The user goes back to the composer."""

    DEFAULT_CSS = """
    Panel:focus { border-left: solid $accent; }
    Panel { width: 34; border-left: solid $surface-lighten-2; padding: 0 1; scrollbar-size: 1 1; }
    Panel Digits { width: 1fr; color: $text-accent; }
    Panel .label { color: $text-muted; }
    Panel .spark { color: $primary; height: 1; margin-bottom: 1; text-wrap: nowrap; }
    Panel #speedup { color: $text-success; }
    Panel #verdict { margin-top: 1; height: auto; max-height: 6; }
    Panel #details { margin-top: 1; }
    """

    def __init__(self) -> None:
        """Start without an answer."""
        super().__init__(id="panel")
        self._facts: EngineFacts | None = None
        self._heights: dict[str, int] = {}

    def compose(self) -> ComposeResult:
        """Put the big figures first."""
        yield Static("tokens per second", classes="label", markup=False)
        yield Digits("-", id="rate")
        yield Static("", id="rates", classes="spark", markup=False)
        yield Static("times plain decoding", classes="label", markup=False)
        yield Digits("-", id="speedup")
        yield Static("acceptance of late", classes="label", markup=False)
        yield Static("", id="acceptance", classes="spark", markup=False)
        yield Static("", id="verdict", markup=False)
        yield Static("", id="details", markup=False)

    def say_facts(self, facts: EngineFacts | None) -> None:
        """Take what the engine turned out to be."""
        self._facts = facts

    def show(self, figures: Figures) -> None:
        """Show figures, where they can be seen."""
        if not self.display:
            return
        stats = figures.statistics
        is_known = bool(stats.generated_tokens)
        rate = f"{stats.tokens_per_second:.1f}" if is_known else "-"
        self._update(Digits, "#rate", rate)
        speedup = figures.speedup if not stats.speculation_off_reason else 0.0
        self._update(Digits, "#speedup", f"{speedup:.2f}" if speedup else "-")
        rates = list(figures.rates)
        self._put("#rates", Text(spark(rates, max(rates, default=1.0))))
        self._put("#acceptance", Text(spark(list(figures.acceptance), 1.0)))
        self._put("#verdict", Text(figures.verdict()))
        self._put("#details", self._details(figures))

    def action_leave(self) -> None:
        """Go back."""
        self.post_message(self.Left())

    def _put(self, name: str, words: Text) -> None:
        """Show a text; the layout stays as it is unless the text takes other lines than before."""
        widget = self.query_one(name, Static)
        width = max(1, widget.content_size.width)
        height = sum(len(wrap(line, width)) or 1 for line in words.plain.split("\n"))
        widget.update(words, layout=height != self._heights.get(name))
        self._heights[name] = height

    def _update(self, kind: type[Digits], name: str, value: str) -> None:
        widget = self.query_one(name, kind)
        if widget.value != value:
            widget.update(value)

    def _details(self, figures: Figures) -> Text:
        """Return the small figures, a line each."""
        stats = figures.statistics
        text = Text()
        if stats.generated_tokens:
            self._add_rates(text, figures)
            self._add_positions(text, figures)
            self._add_times(text, figures)
        facts = self._facts
        if facts is not None:
            models = in_bytes(facts.target_bytes + facts.draft_bytes)
            _line(text, "memory", f"{models} + {in_bytes(facts.cache_bytes)} cache")
            for notice in facts.notices:
                text.append(f"{notice}\n", "dim")
        return text

    @staticmethod
    def _add_rates(text: Text, figures: Figures) -> None:
        stats = figures.statistics
        _line(text, "now", f"{figures.rate_now:.1f} tokens/s")
        if stats.drafted:
            _line(text, "accepted", f"{stats.acceptance_rate:.0%} of {stats.drafted} drafted")
        _line(text, "tokens per step", f"{stats.tokens_per_step:.2f}")
        length = "0" if stats.speculation_off_reason else f"{stats.drafted_per_step:.1f}"
        _line(text, "draft length", length)
        if reason := figures.why_this_length():
            text.append(f"  {reason}\n", "italic")
        brought = [f"{origin} {count}" for origin, count in sorted(figures.origins.items())]
        _line(text, "tokens from", ", ".join(brought))

    @staticmethod
    def _add_positions(text: Text, figures: Figures) -> None:
        shares = figures.statistics.accepted_by_position[:MOST_POSITIONS]
        if shares:
            text.append("\naccepted by position\n", "dim")
        for place, share in enumerate(shares, 1):
            text.append(f"{place:>2} ")
            text.append(f"{bar(share, BAR_WIDTH):<{BAR_WIDTH}}", "green")
            text.append(f" {share:4.0%}\n")

    @staticmethod
    def _add_times(text: Text, figures: Figures) -> None:
        stats = figures.statistics
        text.append("\ntime\n", "dim")
        for name, share in zip(("draft", "verify", "rest"), figures.split(), strict=True):
            text.append(f"{name:<7}{bar(share, 12):<12} {share:4.0%}\n")
        text.append("\n")
        _line(text, "first token", f"{stats.time_to_first_token_s:.2f} s")
        _line(text, "prompt", f"{stats.prompt_tokens} ({stats.cached_tokens} reused)")


def _line(text: Text, name: str, value: str) -> None:
    text.append(f"{name} ", "dim")
    text.append(f"{value}\n")
