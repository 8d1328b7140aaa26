"""What is said of an answer's figures: the verdict on speculation, and why; no widgets here."""

from collections.abc import Sequence

from specchat.decoding.step_times import MIN_SECONDS
from specchat.safe_text import harmless
from specchat.tui.texts.figures import Figures
from specchat.wording import duration_text, gain_text, saved_text, speedup_text

RARELY = 0.2
"""Drafted tokens per pass below which drafting hardly changes the speed."""
BARS = "▁▂▃▄▅▆▇█"


def verdict(figures: Figures) -> str:
    """Return whether speculation helps, as a sentence."""
    stats = figures.statistics
    if not stats.generated_tokens:
        return ""
    if stats.speculation_off_reason:
        return f"Speculation is off: {stats.speculation_off_reason}."
    if stats.served_by and (words := _served_verdict(figures)):
        return words
    if stats.draft_off_reason and not stats.drafted:
        return f"No drafts: {stats.draft_off_reason}."
    if figures.kind == "plain":
        return f"Plain speed: {_undrafted(figures)}."
    if figures.kind == "measuring" and figures.is_counted:
        words = gain_words(figures)
        return f"{words[0].upper()}{words[1:]} what speculation brought."
    if figures.kind == "measuring":
        return "Measuring what speculation brings."
    words = gain_text(figures.speedup, figures.gain.error)
    return {
        "good": f"Speculation helps: {words}.",
        "bad": f"Speculation is slowing this answer down: {words}.",
        "": "Speculation makes no difference here.",
    }[figures.tone]


def _served_verdict(figures: Figures) -> str:
    """Return what is not known of an answer that a server wrote; empty if it reports all."""
    stats = figures.statistics
    server = harmless(stats.served_by)
    if not figures.reports("drafted"):  # some report them at the end only
        is_over = figures.is_counted
        return f"{server} {'does not report' if is_over else 'has not reported any'} drafts."
    if stats.drafted and not figures.speedup and not figures.reports("reported_gain"):
        return f"{server} does not report what its drafts gain."
    return ""


def _undrafted(figures: Figures) -> str:
    return "nothing was drafted" if figures.is_counted else "no drafts so far"


def off_reason(figures: Figures) -> str:
    """Return why nothing is drafted, to follow the words "plain speed".

    Empty if something is drafted, or may be: not every server reports that.
    """
    is_plain = figures.kind == "plain" and figures.reports("drafted")
    is_plain = is_plain or bool(figures.statistics.speculation_off_reason)
    if not is_plain:
        return ""
    words = verdict(figures).removesuffix(".").removeprefix("Plain speed: ")
    return words[0].lower() + words[1:]


def why(figures: Figures) -> str:
    """Return why speculation helps little or not at all, and what does not count."""
    stats = figures.statistics
    if figures.kind == "plain" or stats.speculation_off_reason:
        return ""
    short = stats.short_drafts_reason
    cost = f"Drafts are short: {short}." if short else _cost(figures)
    return " ".join(filter(None, [cost, _left_out(stats.repeated)]))


def _left_out(num_repeated: int) -> str:
    """Return which of an answer's tokens count in some of its figures alone."""
    if not num_repeated:
        return ""
    left_out = f"The speedup leaves out {num_repeated} tokens that repeat a passage"
    return f"{left_out}; what was accepted does not."


def _cost(figures: Figures) -> str:
    """Return what takes the time that drafts save."""
    stats = figures.statistics
    if figures.tone == "good" or figures.kind == "measuring" or not figures.reports("steps"):
        return ""
    if stats.drafted_per_step < RARELY:
        return "Little was drafted: drafting more would not help."
    passes = f"{stats.tokens_per_step / figures.speedup:.1f}"
    cost = checking(figures) or f"a pass took as long as {passes} plain ones"
    return f"{cost[0].upper()}{cost[1:]}."


def checking(figures: Figures) -> str:
    """Return what checking the usual number of tokens costs here; empty if unknown."""
    stats = figures.statistics
    tokens = round(figures.nodes_per_step or stats.drafted_per_step) + 1
    plain, ours = (stats.pass_costs.get(count, 0.0) for count in (1, tokens))
    if not plain or not ours or tokens == 1:
        return ""
    return f"checking {tokens} tokens costs {ours / plain:.1f}x checking one"


def gain_words(figures: Figures) -> str:
    """Return what speculation brings, in two or three words; empty before the first token."""
    if not figures.statistics.generated_tokens:
        return ""
    if not figures.reports("drafted"):
        return "drafts not reported"
    if figures.kind == "plain":
        return "plain speed"
    if figures.kind != "measuring":
        return speedup_text(figures.speedup, error=figures.gain.error)
    if not figures.reports("reported_gain"):
        return "gain not reported"
    if not figures.is_counted:
        return "measuring"
    return (
        "too short to tell" if figures.statistics.decode_s < MIN_SECONDS else "not enough to tell"
    )


def gain_with_error(figures: Figures) -> str:
    """Return what speculation brings, with the error of what was measured."""
    if figures.speedup and figures.kind != "plain":
        return gain_text(figures.speedup, figures.gain.error)
    return gain_words(figures)


def savings(figures: Figures) -> list[str]:
    """Return the seconds saved by this answer, and those saved today, or else ever.

    Within its error an answer saved none; the sums have what it is estimated to have.
    """
    own = figures.gain.saved_s
    uncounted = 0.0 if figures.is_counted else own
    today, ever = (before + uncounted for before in figures.saved_before)
    words, more = saved_text(own) if figures.tone == "good" else "", ""
    if today > max(own, 0.0) + 1.0:
        more = f"saved today {duration_text(today)}"
    elif ever > max(today, 0.0) + 1.0:
        more = f"saved in all {duration_text(ever)}"
    return [part for part in (words, more) if part]


def spark(values: Sequence[float], highest: float) -> str:
    """Return a line of bars between 0 and `highest`."""
    top = len(BARS) - 1
    return "".join(BARS[round(top * min(value / (highest or 1.0), 1.0))] for value in values)
