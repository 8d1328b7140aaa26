"""The plot of a benchmark as SVG: three bar charts side by side, laid out by a template."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

TEMPLATE = Path(__file__).with_suffix(".svg")


class Bar(NamedTuple):
    """One bar: its label, its value, and the ends of its interval (0 if unknown)."""

    label: str
    value: float
    low: float = 0.0
    high: float = 0.0


def draw(
    heading: str, speedups: Sequence[Bar], acceptance: Sequence[Bar], costs: Sequence[Bar]
) -> str:
    """Return an SVG of the speedup by task, acceptance by position and cost of a target pass.

    Each panel has a title, its bars, and the value of a dashed reference line, 0 for none.
    """
    from jinja2 import Environment

    panels = [
        ("speedup by task", speedups, 1.0),
        ("acceptance by draft position", acceptance, 0.0),
        ("cost of a target pass by its tokens (one = 1)", costs, 1.0),
    ]
    environment = Environment(autoescape=True, trim_blocks=True)
    template = environment.from_string(TEMPLATE.read_text("utf-8"))
    return template.render(heading=heading, panels=panels)
