"""The strip above the composer: gain, token rate and acceptance in two rows; no widgets here.

It shows the figures that matter most where the stats panel has no room. Nothing in it moves while
an answer is written: each figure has its column.
"""

from textual.content import Content

from specchat.tui.commands import KeyOf
from specchat.tui.texts import figure_words
from specchat.tui.texts.cards import MEASURED, MUTED, TONES
from specchat.tui.texts.figure_words import spark
from specchat.tui.texts.figures import Figures
from specchat.wording import percent, rate_text

BARS_FROM = 84
"""Columns from which the rates are drawn as bars."""
GAIN_WIDTH, LABEL_WIDTH, LONGEST_BAR, REST_WIDTH = 18, 9, 40, 28
UNIT, GAP = " tokens/s", "   "
SEPARATOR = " · "
FIRST_WORDS = "Ask something to see what speculation brings."
KEYS = {"steps": "steps", "compare": "race", "panel": "all figures"}
"""The commands named above the rows, by what they show."""


def strip_rule(width: int, key_of: KeyOf) -> Content:
    """Return the line above the rows, which names the keys for more."""
    title = "─ this answer, with and without speculation "
    title = title if width >= BARS_FROM else "─ this answer "
    words = [f"[@click=app.{name}]{key_of(name)} {shown}[/]" for name, shown in KEYS.items()]
    keys = Content.from_markup(f" {SEPARATOR.join(words)} ─")
    room = width - len(title) - keys.cell_length
    parts = [title, "─" * room, keys] if room > 0 else [title, "─" * (width - len(title))]
    return Content.assemble(*parts).stylize(MUTED)


def strip_rows(figures: Figures, width: int, advice: str = "") -> tuple[Content, Content]:
    """Return both rows for this width; advice takes the place of the second one."""
    if not figures.statistics.generated_tokens:
        return Content.styled(FIRST_WORDS, MUTED), Content()
    first, second = (_in_words if width < BARS_FROM else _with_bars)(figures, width)
    if advice:
        second = Content(advice).stylize("$text-primary").stylize_before("@click=app.improve")
    return first, second


def _in_words(figures: Figures, width: int) -> tuple[Content, Content]:
    """Return gain, rate and acceptance, and below them the seconds saved or the reason."""
    without, own = figures.rates_compared()
    both = f"{rate_text(own)} ({_sign(figures)}{without:.1f} without"
    rates = [f"{both} drafts)", f"{both})"] * bool(without) + [rate_text(own) if own else ""]
    forms = [
        Content(SEPARATOR).join([_gain(figures), *(Content(each) for each in (rate, kept) if each)])
        for rate in rates
        for kept in _kept(figures)
    ]
    first = next((form for form in forms if form.cell_length <= width), forms[-1])
    return first, _saved(figures, width) or _reason(figures)


def _with_bars(figures: Figures, width: int) -> tuple[Content, Content]:
    """Return the rate with speculation as a bar, and below it the one without."""
    without, own = figures.rates_compared()
    digits = len(_sign(figures)) + max(len(f"{rate:.1f}") for rate in (without, own))
    rest = width - GAIN_WIDTH - LABEL_WIDTH - digits - len(UNIT) - 1 - len(GAP)
    room = max(1, min(LONGEST_BAR, rest - REST_WIDTH))

    def rated(label: str, rate: str, bar: str, style: str) -> Content:
        words = f"{label:<{LABEL_WIDTH}}", MUTED
        return Content.assemble(words, (f"{bar:<{room}}", style), f" {rate:>{digits}}{UNIT}{GAP}")

    def drawn(rate: float) -> str:
        return "█" * max(1, round(room * rate / max(without, own)))

    gain = _padded(_gain(figures), GAIN_WIDTH)
    kept = _kept(figures)[0]
    if not own:
        return gain + Content(kept), _reason(figures)
    if not without:
        rates = list(figures.rates)[-room:]
        bars = spark(rates, max(rates, default=0.0))
        words = Content.styled(kept, "") if kept else Content()
        return gain + rated("", f"{own:.1f}", bars, MEASURED) + words, _reason(figures)
    saved = figure_words.savings(figures)
    own_saved = Content.styled(saved[0] if figures.tone == "good" and saved else "", _good(figures))
    cost = figure_words.checking(figures) if figures.tone == "bad" else ""
    more = SEPARATOR.join(saved[bool(own_saved) :]) or cost
    return (
        gain + rated("with", f"{own:.1f}", drawn(own), TONES[figures.tone]) + kept,
        _padded(own_saved, GAIN_WIDTH)
        + rated("without", f"{_sign(figures)}{without:.1f}", drawn(without), MUTED)
        + Content.styled(more, MUTED),
    )


def _sign(figures: Figures) -> str:
    """Return the mark of a rate without speculation that was estimated, not measured."""
    return "" if figures.is_raced else "≈"


def _gain(figures: Figures) -> Content:
    return Content.styled(figure_words.gain_words(figures), f"bold {TONES[figures.tone]}")


def _kept(figures: Figures) -> list[str]:
    """Return the acceptance rate, in full and in short; empty texts without drafts."""
    stats = figures.statistics
    if not stats.drafted:
        return [""]
    kept = f"kept {percent(stats.acceptance_rate)}"
    return [f"{kept} of {stats.drafted} drafted", kept]


def _saved(figures: Figures, width: int) -> Content:
    """Return the seconds saved by this answer, today and ever, as far as they fit."""
    parts = figure_words.savings(figures)
    while len(SEPARATOR.join(parts)) > width:
        parts.pop()
    return Content.styled(SEPARATOR.join(parts), _good(figures))


def _good(figures: Figures) -> str:
    return TONES["good"] if figures.tone == "good" else MUTED


def _reason(figures: Figures) -> Content:
    """Return why nothing can be said of the gain, or why there is none."""
    return Content.styled(figure_words.why(figures) or figure_words.verdict(figures), MUTED)


def _padded(text: Content, width: int) -> Content:
    return text + " " * max(1, width - text.cell_length)
