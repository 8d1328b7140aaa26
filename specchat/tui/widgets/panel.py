"""The stats panel: what speculation is doing."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Digits, Static

from specchat import drafter_registry
from specchat.chat.figure_text import SAME_SPEED
from specchat.engine.api import EngineFacts
from specchat.pacing.exactness_cache import exact_drafts
from specchat.percentage import percent
from specchat.tui.figures import Figures, bar, in_bytes, position_bars, spark

BAR_WIDTH = 16
TIME_BAR_WIDTH = 12
MAX_POSITIONS = 10


class Panel(VerticalScroll, can_focus=True):
    """Tokens per second, speedup, acceptance, and where the time goes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.leave", "Back", show=False)]

    def compose(self) -> ComposeResult:
        """Put the large figures first."""
        yield Static("tokens per second", classes="label", markup=False)
        yield Digits("-", id="rate")
        yield Static("", id="rates", classes="spark", markup=False)
        yield Static("speedup", classes="label", markup=False)
        yield Digits("-", id="speedup")
        yield Static("recent acceptance", classes="label", markup=False)
        yield Static("", id="acceptance", classes="spark", markup=False)
        yield Static("", id="verdict", markup=False)
        yield Static("", id="details", markup=False)

    def show(self, figures: Figures, facts: EngineFacts | None) -> None:
        """Show figures and facts about the loaded pair, unless the panel is hidden."""
        if not self.display:
            return
        stats = figures.statistics
        rate = f"{stats.tokens_per_second:.1f}" if stats.generated_tokens else "-"
        speedup = figures.speedup if not stats.speculation_off_reason else 0.0
        rates = list(figures.rates)
        self.query_one("#rate", Digits).update(rate)
        digits = self.query_one("#speedup", Digits)
        digits.update(f"{speedup:.2f}x" if speedup else "-")
        digits.set_class(speedup >= 1 + SAME_SPEED, "-faster")
        digits.set_class(0 < speedup <= 1 - SAME_SPEED, "-slower")
        self._put("#rates", spark(rates, max(rates, default=1.0)))
        self._put("#acceptance", spark(list(figures.acceptance), 1.0))
        self._put("#verdict", figures.verdict())
        self._put("#details", _details(figures, facts))

    def _put(self, name: str, words: str | Text) -> None:
        self.query_one(name, Static).update(words)


def _details(figures: Figures, facts: EngineFacts | None) -> Text:
    """Return the small figures, one per line."""
    text = Text()
    if figures.statistics.generated_tokens:
        _add_rates(text, figures)
        _add_positions(text, figures)
        _add_times(text, figures)
    if facts is not None:
        if facts.exact_draft is not None:
            _add(text, "bit-exact", exact_drafts(facts.exact_draft, facts.exact_cost))
        _add(text, "weights", in_bytes(facts.target_bytes + facts.draft_bytes))
        _add(text, "KV cache", in_bytes(facts.cache_bytes))
        for notice in facts.notices:
            text.append(f"{notice}\n", "dim")
    return text


def _add_rates(text: Text, figures: Figures) -> None:
    stats = figures.statistics
    _add(text, "now", f"{figures.rate_now:.1f} tokens/s")
    if stats.drafted:
        _add(text, "accepted", f"{percent(stats.acceptance_rate)} of {stats.drafted} drafted")
    _add(text, "tokens per target pass", f"{stats.tokens_per_step:.2f}")
    length = "0" if stats.speculation_off_reason else f"{stats.drafted_per_step:.1f}"
    _add(text, "draft length", length)
    if reason := figures.why_this_length():
        text.append(f"  {reason}\n", "italic")
    counts = {drafter_registry.origin(name).label: count for name, count in figures.origins.items()}
    text.append("tokens from\n", "dim")
    for label, count in sorted(counts.items()):
        _add(text, f"  {label}", str(count))


def _add_positions(text: Text, figures: Figures) -> None:
    shares = figures.statistics.accepted_by_position[:MAX_POSITIONS]
    if shares:
        text.append("\naccepted by position\n", "dim")
    text.append_text(position_bars(shares, BAR_WIDTH))


def _add_times(text: Text, figures: Figures) -> None:
    stats = figures.statistics
    text.append("\ntime\n", "dim")
    parts = {"draft": stats.draft_s, "verify": stats.verify_s, "other": stats.overhead_s}
    for name, seconds in parts.items():
        share = seconds / (stats.decode_s or 1.0)
        text.append(
            f"{name:<7}{bar(share, TIME_BAR_WIDTH):<{TIME_BAR_WIDTH}} {percent(share):>5}\n"
        )
    text.append("\n")
    _add(text, "first token", f"{stats.time_to_first_token_s:.2f} s")
    _add(text, "prompt", f"{stats.prompt_tokens} tokens ({stats.cached_tokens} cached)")


def _add(text: Text, name: str, value: str) -> None:
    text.append(f"{name} ", "dim")
    text.append(f"{value}\n")
