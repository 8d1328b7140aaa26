"""The plot of a benchmark as SVG: three panels of bars side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TEMPLATE = Path(__file__).with_suffix(".svg")
PANEL_WIDTH, MARGIN, TOP, BOTTOM, HEIGHT = 400, 28, 70, 312, 340
MAX_BAR_WIDTH = 40


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its label, its value and the ends of the value's confidence interval."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def top(self) -> float:
        """The highest value drawn."""
        return self.high or self.value


def draw(
    heading: str, speedups: Sequence[Bar], acceptance: Sequence[Bar], costs: Sequence[Bar]
) -> str:
    """Return the SVG of speedup by task, acceptance by position and cost of a target pass."""
    from jinja2 import Environment

    content = (
        ("speedup by task", speedups, 1.0),
        ("acceptance by draft position", acceptance, 0.0),
        ("cost of a target pass by its tokens (one = 1)", costs, 1.0),
    )
    template = Environment(autoescape=True, trim_blocks=True).from_string(
        TEMPLATE.read_text("utf-8")
    )
    return template.render(
        heading=heading,
        panels=[_panel(place, *panel) for place, panel in enumerate(content)],
        width=PANEL_WIDTH * len(content),
        height=HEIGHT,
        top=TOP,
        bottom=BOTTOM,
    )


def _panel(place: int, title: str, bars: Sequence[Bar], line: float) -> dict[str, object]:
    """Return a panel's geometry; a dashed line is drawn across at the value `line`, 0 for none."""
    step = (PANEL_WIDTH - 2 * MARGIN) / max(1, len(bars))
    return {
        "title": title,
        "bars": bars,
        "line": line,
        "left": PANEL_WIDTH * place + MARGIN,
        "middle": PANEL_WIDTH * (place + 0.5),
        "right": PANEL_WIDTH * (place + 1) - MARGIN,
        "step": step,
        "bar_width": min(0.7 * step, MAX_BAR_WIDTH),
        "scale": (BOTTOM - TOP) / (1.1 * max([line, 0.01, *(bar.top for bar in bars)])),
    }
