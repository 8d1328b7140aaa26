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
from specchat.tui.texts.figures import Figures
from specchat.wording import exact_drafts, percent, read_again_texts, size_text

CARDS: Mapping[str, Sequence[str]] = {
    "Speculation": ("speculation",),
    "Speed": ("speedup", "tokens per second"),
    "Drafts": (
        "accepted", "accepted by position", "tokens per target pass", "draft length",
        "tokens from",
    ),
    "Time": ("time", "first token", "prompt", "images"),
    "Loaded model": ("server", "weights", "KV cache", "bit-exact"),
}  # fmt: skip
"""The figures of each group, the most important first; the first one holds the verdict."""

MUTED, REJECTED = "dim", "$text-error"
ACCEPTED = "$text-success"
TONES = {"good": "$text-success", "bad": "$text-error", "": "$foreground"}
ORIGIN_GLYPHS, KEPT_GLYPH, REJECTED_GLYPH = "█▓▒▚▞▄", "█", "░"
"""The characters for the parts of a bar, distinct even without colours; ░ means rejected alone."""
COLUMN_WIDTH, NAMES_WIDTH = 3, 12
COLUMNS = " ▁▂▃▄▅▆▇█"
GAP = 2
"""Cells between two parts of a legend."""
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


def figure_texts(figures: Figures, facts: EngineFacts | None, width: int) -> dict[str, Content]:
    """Return the text of each known figure by name, laid out for cards of this width."""
    texts = {"speculation": speculation_text(figures)}
    stats = figures.statistics
    if stats.generated_tokens:
        if figures.speedup:
            texts["speedup"] = _speedup(figures, width)
        elif figures.rate or not figures.reports("tokens_per_second"):
            texts["tokens per second"] = _rate(figures, width)
        texts |= _acceptance(figures, width)
        texts["tokens from"] = _origins(figures, width)
        texts |= _times(figures, width)
    if facts is not None:
        texts |= _memory(facts, width)
    return {name: text for name, text in texts.items() if text.plain}


def speculation_text(figures: Figures) -> Content:
    """Return whether speculation helps, and what it saved or why it does not."""
    if not figures.statistics.generated_tokens:
        return Content.styled(FIRST_WORDS, MUTED)
    verdict = Content.styled(figure_words.verdict(figures), f"bold {TONES[figures.tone]}")
    savings = Content.styled(" · ".join(figure_words.savings(figures)), TONES["good"])
    return _lines(verdict, savings, Content.styled(figure_words.why(figures), MUTED))


def _rate(figures: Figures, width: int) -> Content:
    is_known = figures.reports("tokens_per_second")
    rate = f"{figures.rate:.1f}" if is_known else UNREPORTED
    return _row("tokens per second", rate, width)


def _speedup(figures: Figures, width: int) -> Content:
    """Return both rates in tokens per second, as bars, and how the plain one is known."""
    plain, ours = figures.rates_compared()
    rows = (("with drafts", ours, TONES[figures.tone]), ("without", plain, MUTED))
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
    how = "in the race" if figures.is_raced else "estimated"
    return _lines(*lines, Content.styled(f"tokens per second, {how}", MUTED))


def _acceptance(figures: Figures, width: int) -> dict[str, Content]:
    stats = figures.statistics
    has_steps = figures.reports("steps")
    per_pass = f"{stats.tokens_per_step:.2f}" if has_steps else UNREPORTED
    length = f"{stats.drafted_per_step:.1f}" if has_steps else UNREPORTED
    texts = {
        "tokens per target pass": _row("tokens per target pass", per_pass, width),
        "draft length": _row("draft length", length, width),
    }
    if not figures.reports("drafted"):
        texts["accepted"] = _row("accepted", UNREPORTED, width)
    if stats.drafted:
        rate = f"{percent(stats.acceptance_rate)} of {stats.drafted} drafted"
        parts = (
            Part("accepted", stats.accepted, ACCEPTED),
            Part("rejected", stats.drafted - stats.accepted, REJECTED),
        )
        texts["accepted"] = _lines(
            _row("accepted", rate, width), _stacked(parts, width, KEPT_GLYPH + REJECTED_GLYPH)
        )
        texts["accepted by position"] = position_columns(stats.accepted_by_position, width)
    return texts


def position_columns(shares: Sequence[float], width: int) -> Content:
    """Return a column for the acceptance at each draft position, as far as there is room."""
    name = "by position "
    room = (width - len(name)) // COLUMN_WIDTH
    shown = [f"{2 * COLUMNS[round(8 * share)]} " for share in shares[:room]]
    return Content.assemble((name, MUTED), ("".join(shown), ACCEPTED)) if shown else Content()


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
    bar = _stacked(parts, width, "".join(glyphs))
    return _lines(Content.styled("tokens from", MUTED), bar)


def _times(figures: Figures, width: int) -> dict[str, Content]:
    stats = figures.statistics
    total = stats.draft_s + stats.verify_s + stats.overhead_s
    drafting = percent(stats.draft_s / total) if total and stats.draft_s else ""
    is_known = drafting and figures.reports("overhead_s")
    prompt = f"{stats.prompt_tokens} tokens"
    prompt += f" ({stats.cached_tokens} cached)" if figures.reports("cached_tokens") else ""
    prompt = prompt if figures.reports("prompt_tokens") else UNREPORTED
    notes = [Content.styled(note, MUTED) for note in read_again_texts(stats.read_again)]
    images = f"{stats.image_tokens} tokens, {stats.image_s:.1f} s" if stats.image_tokens else ""
    return {
        "time": _row("time spent drafting", drafting, width) if is_known else Content(),
        "first token": _row("first token", f"{stats.time_to_first_token_s:.2f} s", width),
        "prompt": _lines(_row("prompt", prompt, width), *notes),
        "images": _row("images", images, width) if images else Content(),
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


def _stacked(parts: Sequence[Part], width: int, glyphs: str) -> Content:
    """Return a stacked bar of all parts, and a legend below it."""
    bar, legend = Content(), list[Content]()
    for part, glyph, cells in zip(parts, glyphs, _cells(parts, width), strict=False):
        bar += Content.styled(glyph * cells, part.style)
        legend.append(Content.assemble((glyph, part.style), f" {part.label}"))
    return _lines(bar, *packed(legend, width))


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
