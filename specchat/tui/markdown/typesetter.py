"""Lays out blocks of Markdown as screen lines, tinted by the origins of their tokens."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.theme import Theme as RichTheme
from textual.app import App
from textual.strip import Strip

from specchat import drafter_registry
from specchat.tui.markdown.growing_text import markdown_parser

if TYPE_CHECKING:
    from specchat.tui.markdown.markdown_elements import ThemedMarkdown

LINE_ENDS = dict.fromkeys(map(ord, "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), " ")
"""Characters that end a line for Rich, but not in Markdown."""
DIM = Style(dim=True)
STYLES = {
    "h1": "bold {text-primary}",
    "h2": "bold {text-primary}",
    "h3": "bold {text-primary}",
    "h4": "bold",
    "code": "{text-accent} on {surface-lighten-1}",
    "code_block": "on {surface-lighten-1}",
    "block_quote": "italic",
    "item.bullet": "bold {text-primary}",
    "item.number": "{text-primary}",
    "hr": "dim",
    "math": "italic",
    "link": "{text-secondary} underline",
    "link_url": "dim underline",
    "table.border": "dim",
    "table.header": "bold",
}
"""Rich's Markdown styles, with placeholders for the theme's colours."""
CODE_STYLES = {
    "Comment": "dim italic",
    "Keyword": "{text-primary}",
    "Operator.Word": "{text-primary}",
    "Name.Builtin": "{text-secondary}",
    "Name.Class": "bold",
    "Name.Decorator": "{text-accent}",
    "Name.Function": "bold",
    "Name.Tag": "{text-primary}",
    "Name.Attribute": "{text-secondary}",
    "Literal.Number": "{text-accent}",
    "Literal.String": "{text-success}",
    "Generic.Deleted": "{text-error}",
    "Generic.Heading": "bold {text-primary}",
    "Generic.Inserted": "{text-success}",
    "Generic.Subheading": "bold {text-primary}",
}
"""The same for code, by Pygments' names of its parts; others have the colour of the text."""


class Typesetter:
    """Lays out Markdown in the colours of a theme."""

    def __init__(self, colours: Mapping[str, str], *, has_colours: bool = True) -> None:
        """Create the styles from the theme's colours, which are keyed by Textual's names.

        Without `has_colours` tokens are underlined instead of tinted.
        """
        colours = {name: _rich_colour(colour) for name, colour in colours.items()}
        self._colours = colours
        self._rejected = Style.parse(f"strike {colours['text-error']}")
        self._origins = {
            origin.name: Style.parse(_tint(origin, colours, has_colours=has_colours))
            for origin in drafter_registry.origins()
        }
        styles = {
            f"markdown.{name}": Style.parse(style.format(**colours))
            for name, style in STYLES.items()
        }
        self._console = Console(
            file=io.StringIO(),
            force_terminal=True,
            color_system="truecolor",
            theme=RichTheme(styles),
            legacy_windows=False,
        )

    @cached_property
    def _rendering(self) -> ThemedMarkdown:
        from specchat.tui.markdown.markdown_elements import ThemedMarkdown

        styles = {
            name: Style.parse(style.format(**self._colours)) for name, style in CODE_STYLES.items()
        }
        return ThemedMarkdown(styles, self._colours["surface-lighten-1"])

    def markdown(self, block: str, width: int) -> list[Strip]:
        """Return the lines of one block, followed by an empty line."""
        tokens = markdown_parser().parse(block.translate(LINE_ENDS))
        if not tokens:
            return []
        options = self._console.options.update(width=max(1, width), height=None)
        rendered = self._console.render_lines(self._rendering.of(tokens), options, pad=False)
        lines = [Strip(line) for line in rendered]
        # empty lines in a code block belong to the code
        if len(tokens) > 1 or tokens[0].type != "fence":
            while lines and not lines[0].text.strip():
                lines.pop(0)
            while lines and not lines[-1].text.strip():
                lines.pop()
        return [*lines, Strip.blank(0)]

    def origin_style(self, origin: str) -> Style:
        """Return the style to add to tokens of an origin."""
        return self._origins.get(origin, Style())

    def with_ghost(self, line: Strip, text: str, width: int, *, is_rejected: bool) -> Strip:
        """Return a line with drafted text behind its last word, cut to a width."""
        used = cell_len(line.text.rstrip())
        room = max(0, width - used)
        shown = set_cell_size(text, room) if cell_len(text) > room else text
        style = (self._rejected if is_rejected else DIM) + _ground(line)
        rest = line.crop(used + cell_len(shown))
        return Strip([*line.crop(0, used), Segment(shown, style), *rest])

    def tinted(self, line: Strip, origins: Sequence[str]) -> Strip:
        """Return a line with the style of its origin added to each character."""
        segments, start = [], 0
        for text, style, _ in line:
            here = origins[start : start + len(text)]
            for origin, run in groupby(zip(text, here, strict=True), itemgetter(1)):
                own = (style or Style()) + self.origin_style(origin)
                segments.append(Segment("".join(character for character, _ in run), own))
            start += len(text)
        return Strip(segments)


def _ground(line: Strip) -> Style:
    """Return the background at the end of a line."""
    styles = [style for _, style, _ in line]
    return Style(bgcolor=styles[-1].bgcolor) if styles and styles[-1] else Style()


def _tint(
    origin: drafter_registry.TokenOrigin, colours: Mapping[str, str], *, has_colours: bool
) -> str:
    """Return the style of an origin: a background, or a text style if there are few colours."""
    colour = colours.get(origin.colour, "")
    background = colours.get(f"{origin.colour.removeprefix('text-')}-muted", "")
    if has_colours and colour.startswith("#") and background:
        return f"on {background}"
    return f"not dim {colour} {origin.mark}" if colour or origin.mark else ""


def _rich_colour(colour: str) -> str:
    """Return Rich's name of a colour; Textual prefixes the terminal's colours with "ansi_"."""
    return "default" if colour == "transparent" else colour.removeprefix("ansi_")


class CodeBlock(NamedTuple):
    """A fenced block of code, and its language as the fence names it."""

    content: str
    language: str


def code_fences(text: str) -> list[CodeBlock]:
    """Return all fenced blocks; the last one may still be open."""
    return [
        CodeBlock(token.content, token.info.strip().partition(" ")[0])
        for token in markdown_parser().parse(text)
        if token.type == "fence"
    ]


def code_blocks(text: str) -> list[str]:
    """Return the contents of all fences; the last one may still be open."""
    return [block.content for block in code_fences(text)]


def colours_of(app: App[None]) -> str | None:
    """Return Rich's name of the terminal's colour system; None without colours."""
    return None if os.environ.get("NO_COLOR") else app.console.color_system
