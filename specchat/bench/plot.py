"""A picture of a benchmark, as SVG and without any library: three panels side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

__all__ = ["Bar", "draw"]

PANEL, HEIGHT, MARGIN, TITLE = 400, 300, 28, 40
INK, FAINT, FILL = "#333333", "#cccccc", "#3b7dd8"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its label, its value, and what the value may really be."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class _Panel:
    """Bars under a title; `line` is drawn across at a value."""

    title: str
    bars: Sequence[Bar]
    line: float | None = None


def draw(
    heading: str, speedups: Sequence[Bar], acceptance: Sequence[Bar], costs: Sequence[Bar]
) -> str:
    """Return the SVG of speedup by task, acceptance by position and cost of a target pass."""
    panels = [
        _Panel("speedup by task", speedups, 1.0),
        _Panel("acceptance by draft position", acceptance),
        _Panel("cost of a target pass by its tokens (one = 1)", costs, 1.0),
    ]
    width = PANEL * len(panels)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT + TITLE}"'
            ' font-family="sans-serif" font-size="11">'
        ),
        f'<rect width="{width}" height="{HEIGHT + TITLE}" fill="white"/>',
        _text(width / 2, 22, heading, size=14),
    ]
    for place, panel in enumerate(panels):
        parts += _drawn(panel, PANEL * place)
    return "\n".join([*parts, "</svg>", ""])


def _drawn(panel: _Panel, left: float) -> list[str]:
    """Return one panel's elements."""
    bottom, top = TITLE + HEIGHT - MARGIN, TITLE + 30
    parts = [_text(left + PANEL / 2, TITLE + 16, panel.title, size=12)]
    if not panel.bars:
        return [*parts, _text(left + PANEL / 2, (top + bottom) / 2, "nothing measured")]
    largest = 1.1 * max([panel.line or 0.0, *(bar.high or bar.value for bar in panel.bars), 0.01])
    scale = (bottom - top) / largest
    inner = PANEL - 2 * MARGIN
    step = inner / len(panel.bars)
    for place, bar in enumerate(panel.bars):
        middle = left + MARGIN + step * (place + 0.5)
        parts += _bar(bar, middle, min(0.7 * step, 40), bottom, scale)
    if panel.line is not None:
        height = bottom - panel.line * scale
        parts.append(_line(left + MARGIN, height, left + PANEL - MARGIN, height, FAINT, "4 3"))
    parts.append(_line(left + MARGIN, bottom, left + PANEL - MARGIN, bottom, INK))
    return parts


def _bar(bar: Bar, middle: float, width: float, bottom: float, scale: float) -> list[str]:
    height = bar.value * scale
    parts = [
        (
            f'<rect x="{middle - width / 2:.1f}" y="{bottom - height:.1f}" width="{width:.1f}"'
            f' height="{height:.1f}" fill="{FILL}"/>'
        ),
        _text(middle, bottom + 14, bar.label),
        _text(middle, bottom - (bar.high or bar.value) * scale - 5, f"{bar.value:.2f}", size=9),
    ]
    if bar.low is not None and bar.high is not None:
        parts.append(
            _line(middle, bottom - bar.low * scale, middle, bottom - bar.high * scale, INK)
        )
    return parts


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, dashes: str = "none") -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"'
        f' stroke-dasharray="{dashes}"/>'
    )


def _text(x: float, y: float, text: str, size: int = 11) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{INK}"'
        f' text-anchor="middle">{escape(text)}</text>'
    )
