"""What the stats panel shows: the current text of every figure, by name; no widgets here.

Every name is a heading of the glossary (specchat/docs), which explains the figure. Theme colours
have one meaning each: those of the origins and `REJECTED` for tokens; other quantities are grey.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

from textual.content import Content

from specchat import drafter_registry
from specchat.engine.api import EngineFacts
from specchat.safe_text import harmless, in_one_line
from specchat.tui.texts import figure_words
from specchat.tui.texts.figure_words import spark
from specchat.tui.texts.figures import Figures
from specchat.wording import exact_drafts, percent, read_again_texts, size_text, speedup_text

CARDS: Mapping[str, Sequence[str]] = {
    "Speculation": ("speculation",),
    "Speed": ("tokens per second",),
    "Speedup": ("speedup",),
    "Acceptance": (
        "accepted", "accepted by position", "tokens per target pass", "draft length",
    ),
    "Tokens": ("tokens from",),
    "Time": ("time", "first token", "prompt"),
    "Loaded model": ("server", "weights", "KV cache", "bit-exact"),
}  # fmt: skip
"""The figures on each card, the most important first; the first card holds the verdict."""

MEASURED, MUTED, REJECTED = "$foreground 60%", "dim", "$text-error"
ACCEPTED = "$text-success"
TONES = {"good": "$text-success", "bad": "$text-error", "": "$foreground"}
ORIGIN_GLYPHS, KEPT_GLYPH, REJECTED_GLYPH = "█▓▒▚▞▄", "█", "░"
"""The characters for the parts of a bar, distinct even without colours; ░ means rejected alone."""
COLUMN_WIDTH, MAX_POSITIONS, NAMES_WIDTH = 4, 10, 8
COLUMNS = " ▁▂▃▄▅▆▇█"
GAP = 2
"""Cells between two parts of a legend."""
MANY_ROWS = 44
"""Panel height in rows from which charts are higher, as for -high in the style sheet."""
UNREPORTED = "not reported"
FIRST_WORDS = "Ask something to see whether speculation makes the answer faster, and why."


class Part(NamedTuple):
    """A part of a whole, as a bar and its legend show it."""

    label: str
    amount: int
    style: str


def origin_style(name: str) -> str:
    """Return the theme colour for tokens of an origin."""
    colour = drafter_registry.origin(name).colour
    return f"${colour}" if colour else "$foreground"


def figure_texts(
    figures: Figures, facts: EngineFacts | None, width: int, rows: int = 0
) -> dict[str, Content]:
    """Return the text of each known figure by name, laid out for cards of this width.

    `rows` is the height of the panel.
    """
    texts = {"speculation": speculation_text(figures)}
    stats = figures.statistics
    if stats.generated_tokens:
        texts["tokens per second"] = _rate(figures, width)
        if figures.speedup:
            texts["speedup"] = _speedup(figures, width)
        texts |= _acceptance(figures, width, has_room=rows >= MANY_ROWS)
        texts["tokens from"] = _origins(figures, width)
        texts |= _times(figures, width)
    if facts is not None:
        texts |= _memory(facts, width)
    return {name: text for name, text in texts.items() if text.plain}


def speculation_text(figures: Figures) -> Content:
    """Return whether speculation helps, and why."""
    if not figures.statistics.generated_tokens:
        return Content.styled(FIRST_WORDS, MUTED)
    verdict = Content.styled(figure_words.verdict(figures), f"bold {TONES[figures.tone]}")
    savings = Content.styled(" · ".join(figure_words.savings(figures)), TONES["good"])
    return _lines(verdict, savings, Content.styled(figure_words.why(figures), MUTED))


def _rate(figures: Figures, width: int) -> Content:
    is_known = figures.reports("tokens_per_second")
    rate = f"{figures.statistics.tokens_per_second:.1f}" if is_known else UNREPORTED
    lines = [_row("tokens per second", rate, width)]
    if is_known and (rates := list(figures.rates)):
        now = f" now {figures.rate_now:.1f}"
        bars = spark(rates[len(now) - width :], max(rates))
        lines.append(Content.assemble((bars, MEASURED), (now, MUTED)))
    return _lines(*lines)


def _speedup(figures: Figures, width: int) -> Content:
    style = TONES[figures.tone]
    words = speedup_text(figures.speedup, error=figures.gain.error)
    plain, ours = figures.rates_compared()
    rows = (("with", ours, style), ("without", plain, MUTED))
    numbers = max(len(f"{rate:.1f}") for _, rate, _ in rows)
    room = width - NAMES_WIDTH - 1 - numbers
    lines = [
        Content.assemble(
            (f"{name:<{NAMES_WIDTH}}", MUTED),
            (f"{'█' * max(1, round(room * rate / max(plain, ours))):<{room}}", colour),
            f" {rate:>{numbers}.1f}",
        )
        for name, rate, colour in rows
    ]
    return _lines(
        _row("in the race" if figures.is_raced else "estimated", words, width, style), *lines
    )


def _acceptance(figures: Figures, width: int, *, has_room: bool) -> dict[str, Content]:
    stats = figures.statistics
    has_steps = figures.reports("steps")
    per_pass = f"{stats.tokens_per_step:.2f}" if has_steps else UNREPORTED
    texts = {"tokens per target pass": _row("tokens per target pass", per_pass, width)}
    if not figures.reports("drafted"):
        texts["accepted"] = _row("accepted", UNREPORTED, width)
    length = f"{stats.drafted_per_step:.1f}" if has_steps else UNREPORTED
    texts["draft length"] = _lines(
        _row("draft length", length, width),
        _row("with branches", f"{figures.nodes_per_step:.1f}", width)
        if figures.nodes_per_step
        else Content(),
        Content.styled(figure_words.why_this_length(figures), MUTED),
    )
    if stats.drafted:
        rate = f"{percent(stats.acceptance_rate)} of {stats.drafted} drafted"
        parts = (
            Part("kept", stats.accepted, ACCEPTED),
            Part("rejected", stats.drafted - stats.accepted, REJECTED),
        )
        recent = spark(list(figures.acceptance), 1.0) if has_room else ""
        texts["accepted"] = _lines(
            _row("accepted", rate, width),
            _stacked(parts, width, KEPT_GLYPH + REJECTED_GLYPH),
            Content.assemble((recent and "recent ", MUTED), (recent, MEASURED)),
        )
        shares = stats.accepted_by_position
        texts["accepted by position"] = position_columns(shares, width, 1 + has_room)
    return texts


def position_columns(shares: Sequence[float], width: int, height: int) -> Content:
    """Return a column chart of acceptance by draft position, with percentages below.

    Of more positions than there is room for, some are shown, close together at the beginning.
    """
    room = min(MAX_POSITIONS, (width - NAMES_WIDTH) // COLUMN_WIDTH)
    positions = _spread(len(shares), room)
    if not positions:
        return Content()
    shown = [shares[position - 1] for position in positions]
    eighths = [round(8 * height * share) for share in shown]
    drawn = [
        [2 * COLUMNS[min(max(eighth - 8 * row, 0), 8)] for eighth in eighths]
        for row in reversed(range(height))
    ]
    columns = [Content.styled(_spaced("", row), ACCEPTED) for row in drawn]
    kept = Content(_spaced("kept %", [percent(share).partition(" ")[0] for share in shown]))
    numbers = Content.styled(_spaced("position", map(str, positions)), MUTED)
    return _lines(*columns, kept.stylize(MUTED, 0, NAMES_WIDTH), numbers)


def _spread(count: int, room: int) -> list[int]:
    """Return at most `room` of the numbers from 1 to `count`, at growing distances."""
    if count <= room or room < 2:
        return list(range(1, min(count, room) + 1))
    return sorted({round(count ** (step / (room - 1))) for step in range(room)})


def _spaced(name: str, cells: Iterable[str]) -> str:
    """Return a name followed by a line of narrow columns."""
    return f"{name:<{NAMES_WIDTH}}" + "".join(f"{cell:>{COLUMN_WIDTH}}" for cell in cells)


def _origins(figures: Figures, width: int) -> Content:
    counts = figures.origins
    drawn = [
        (Part(each.label, counts[each.name], origin_style(each.name)), glyph)
        for each, glyph in zip(drafter_registry.origins(), cycle(ORIGIN_GLYPHS), strict=False)
        if counts[each.name]
    ]
    if not drawn:
        return Content()
    parts, glyphs = zip(*drawn, strict=True)
    reasoning = figures.statistics.reasoning_tokens
    words = [Content.styled(f"{reasoning} reasoning", MUTED)] if reasoning else []
    return _stacked(parts, width, "".join(glyphs), words)


def _times(figures: Figures, width: int) -> dict[str, Content]:
    stats = figures.statistics
    drafting, passes = ("draft", "verify") if stats.drafted else ("looking for drafts", "target")
    seconds = {drafting: stats.draft_s, passes: stats.verify_s, "other": stats.overhead_s}
    total = sum(seconds.values()) or 1.0
    shares = [
        Content.assemble((f"{name} ", MUTED), percent(each / total))
        for name, each in seconds.items()
        if each and figures.reports("overhead_s")
    ]
    cached = f"{stats.prompt_tokens} tokens"
    cached += f" ({stats.cached_tokens} cached)" if figures.reports("cached_tokens") else ""
    cached = cached if figures.reports("prompt_tokens") else UNREPORTED
    share = stats.draft_prompt_s / stats.prompt_s if stats.prompt_s else 0.0
    of_head = f"prediction head: {percent(share)} of its time" if share else ""
    notes = [of_head, *read_again_texts(stats.read_again)]
    return {
        "time": _lines(*packed(shares, width)),
        "first token": _row("first token", f"{stats.time_to_first_token_s:.2f} s", width),
        "prompt": _lines(
            _row("prompt", cached, width), *(Content.styled(note, MUTED) for note in notes)
        ),
    }


def _memory(facts: EngineFacts, width: int) -> dict[str, Content]:
    if facts.served_by:
        notices = [Content.styled(in_one_line(notice), MUTED) for notice in facts.notices]
        return {"server": _lines(Content(in_one_line(facts.plan)), *notices)}
    weights = _row("weights", size_text(facts.target_bytes + facts.draft_bytes), width)
    on_gpu = Content.styled(f"on {facts.gpu}" if facts.gpu else "", MUTED)
    cache = _row("KV cache", size_text(facts.cache_bytes), width)
    notices = [Content.styled(harmless(each), MUTED) for each in facts.notices]
    texts = {"weights": _lines(weights, on_gpu), "KV cache": _lines(cache, *notices)}
    if facts.exact_draft is not None:
        exact = exact_drafts(facts.exact_draft, facts.exact_cost)
        exact = exact if facts.exact_draft else "not with drafts"
        texts["bit-exact"] = _row("bit-exact", exact, width)
    return texts


# --- drawing figures


def _row(name: str, value: str, width: int, style: str = "") -> Content:
    """Return a name and its right-aligned value."""
    room = max(1, width - len(name) - len(value))
    return Content.assemble((name, MUTED), " " * room, (value, f"bold {style}".strip()))


def _lines(*lines: Content) -> Content:
    """Return the lines stacked, without the empty ones."""
    return Content("\n").join([line for line in lines if line.plain])


def _stacked(
    parts: Sequence[Part], width: int, glyphs: str, more: Iterable[Content] = ()
) -> Content:
    """Return a stacked bar of all parts, and a legend below it that `more` extends."""
    bar, legend = Content(), list[Content]()
    for part, glyph, cells in zip(parts, glyphs, _cells(parts, width), strict=False):
        bar += Content.styled(glyph * cells, part.style)
        words = f" {part.label} {part.amount}"
        legend.append(Content.assemble((glyph, part.style), words))
    return _lines(bar, *packed([*legend, *more], width))


def packed(items: Iterable[Content], width: int) -> list[Content]:
    """Return items side by side, wrapped to this width."""
    lines: list[Content] = []
    for item in items:
        if lines and lines[-1].cell_length + GAP + item.cell_length <= width:
            lines[-1] = Content.assemble(lines[-1], " " * GAP, item)
        else:
            lines.append(item)
    return lines


def _cells(parts: Iterable[Part], width: int) -> list[int]:
    """Return the width of each part of a bar: at least one cell unless the part is empty."""
    amounts = [part.amount for part in parts]
    total = sum(amounts)
    if not total:
        return [0] * len(amounts)
    cells = [max(1, round(width * each / total)) if each else 0 for each in amounts]
    cells[cells.index(max(cells))] += width - sum(cells)
    return cells
