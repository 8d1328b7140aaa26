"""The strip above the composer: rates with and without drafts, gain, acceptance; no widgets here.

It shows in one line what matters most where the stats panel has no room; the panel has the rest.
"""

from collections.abc import Iterator

from textual.content import Content

from specchat.tui.texts import figure_words
from specchat.tui.texts.cards import MUTED, TONES
from specchat.tui.texts.figures import Figures
from specchat.wording import WITHOUT_REPEATS, accepted_share, rate_text

SEPARATOR = " · "
GAIN_WIDTH = 16
"""Cells of most gains, so that what follows does not move once an answer's gain is known."""


def strip_line(figures: Figures, width: int, advice: str = "") -> Content:
    """Return the longest form of the line that fits; advice begins with its key."""
    if not figures.statistics.generated_tokens:
        return Content()
    forms = list(_forms(figures, advice))
    return next((form for form in forms if form.cell_length <= width), forms[-1])


def _forms(figures: Figures, advice: str) -> Iterator[Content]:
    """Yield the forms of the line, the longest first."""
    without, own = figures.rates_compared()
    rate = rate_text(own) if own else ""
    plain = f"{'' if figures.is_raced else '≈'}{without:.1f}"
    long_rate, long_plain = _labelled("with drafts", rate), _labelled("without", plain)
    rates = [[Content(rate)]]
    if without:
        rates = [[long_rate, long_plain], [Content(rate), long_plain], [Content(rate)]]
    style = f"bold {TONES[figures.tone]}"
    gain = figure_words.gain_with_error(figures)
    stats = figures.statistics
    accepted = accepted_share(stats.acceptance_rate, stats.repeated) if stats.drafted else ""
    may_move = not accepted or figures.is_counted
    fixed = Content.styled(gain if may_move else f"{gain:<{GAIN_WIDTH}}", style)
    rests = [[fixed, Content(accepted)], [fixed]]
    if accepted and stats.repeated:
        rests.insert(0, [Content.styled(f"{gain} {WITHOUT_REPEATS}", style), Content(accepted)])
    if reason := figure_words.off_reason(figures):
        rests.insert(0, [Content.styled(gain, style), Content.styled(reason, MUTED)])
    for words in (advice, "") if advice else ("",):
        link = Content(words).stylize("$text-primary").stylize_before("@click=app.improve")
        for rest in rests:
            for known in rates:
                parts = [*known, *rest, link]
                yield Content(SEPARATOR).join([part for part in parts if part.plain.strip()])


def _labelled(label: str, value: str) -> Content:
    return Content.assemble((f"{label} ", MUTED), value)
