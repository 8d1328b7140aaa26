"""How well colours can be told apart, and the colours of the chat's themes."""

from __future__ import annotations

from textual.color import Color, rgb_to_lab
from textual.constants import DIM_FACTOR
from textual.theme import Theme

from specchat.tui.house_theme import own_variables

READABLE, VISIBLE = 4.5, 3.0
"""The contrasts that WCAG 2.2 asks of text, and of large text and signs."""


def luminance(colour: Color) -> float:
    """Return the relative luminance of a colour, 0 to 1 (WCAG 2.2)."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour.normalized
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Color, other: Color) -> float:
    """Return the contrast of two colours, 1 to 21 (WCAG 2.2)."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def distance(one: Color, other: Color) -> float:
    """Return how different two colours look (CIE 1976); 2 is just noticed side by side."""
    first, second = rgb_to_lab(one), rgb_to_lab(other)
    return float(sum((a - b) ** 2 for a, b in zip(first, second, strict=True)) ** 0.5)


def colours_of_theme(theme: Theme) -> dict[str, str]:
    """Return the colours of a theme by their names, as the style sheet gets them."""
    return {**own_variables(theme), **theme.to_color_system().generate(), **theme.variables}


def on_ground(colour: Color, ground: Color, *, is_dim: bool = False) -> Color:
    """Return a colour as it looks on a ground."""
    seen = ground + (ground.get_contrast_text(colour.a) if colour.auto else colour)
    return ground.blend(seen, DIM_FACTOR) if is_dim else seen
