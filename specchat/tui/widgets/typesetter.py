"""From blocks of Markdown, or coloured tokens, to lines of the screen."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markdown import Markdown
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme
from textual.strip import Strip

from specchat import drafters
from specchat.decoding.chunk import Origin
from specchat.tui.widgets.growing_markdown import parser

__all__ = ["Typesetter", "code_blocks"]


class Typesetter:
    """Lays out text in the colours of a theme."""

    def __init__(self, colours: Mapping[str, str], *, is_dark: bool = True) -> None:
        """Take the theme's colours by Textual's names for them."""
        colours = {name: _as_rich(colour) for name, colour in colours.items()}
        accent, muted = colours["text-accent"], colours["text-secondary"]
        self._code_theme = "monokai" if is_dark else "default"
        self._code_background = colours["surface-lighten-1"]
        self._origins: Mapping[Origin, Style] = {
            origin.name: Style.parse(f"{colours.get(origin.colour, '')} {origin.mark}".strip())
            for origin in drafters.origins()
        }
        styles = {
            "markdown.h1": Style.parse(f"bold {accent}"),
            "markdown.h2": Style.parse(f"bold {accent}"),
            "markdown.h3": Style.parse(f"bold {colours['text-primary']}"),
            "markdown.h4": Style.parse("bold"),
            "markdown.code": Style.parse(f"bold {accent} on {self._code_background}"),
            "markdown.code_block": Style.parse(f"on {self._code_background}"),
            "markdown.block_quote": Style.parse("italic"),
            "markdown.item.bullet": Style.parse(f"bold {accent}"),
            "markdown.item.number": Style.parse(accent),
            "markdown.hr": Style.parse(muted),
            "markdown.link": Style.parse(f"{accent} underline"),
            "markdown.link_url": Style.parse(f"{muted} underline"),
            "markdown.table.border": Style.parse(muted),
            "markdown.table.header": Style.parse(f"bold {accent}"),
        }
        self._parser = parser()
        self._console = Console(
            file=io.StringIO(),
            force_terminal=True,
            color_system="truecolor",
            theme=Theme(styles),
            legacy_windows=False,
        )

    def markdown(self, block: str, width: int) -> list[Strip]:
        """Lay out one block, with an empty line after it."""
        tokens = self._parser.parse(block)
        if len(tokens) == 1 and tokens[0].type == "fence":
            return self._fence(tokens[0].content, tokens[0].info, width)
        if not tokens:
            return []
        rendering = Markdown("", hyperlinks=False, code_theme=self._code_theme)
        rendering.parsed = tokens
        lines = self._lines(rendering, width)
        while lines and not lines[0].text.strip():
            lines.pop(0)
        while lines and not lines[-1].text.strip():
            lines.pop()
        return [*lines, Strip.blank(0)]

    def tokens(self, pieces: Sequence[tuple[str, Origin]], width: int) -> list[Strip]:
        """Lay out a line of tokens in the colours of where they came from."""
        text = Text(end="")
        for piece, origin in pieces:
            text.append(piece.rstrip("\n"), self.origin_style(origin))
        return self._lines(text, width) or [Strip.blank(0)]

    def origin_style(self, origin: Origin) -> Style:
        """Return the style of tokens that came from there, for a legend."""
        return self._origins.get(origin, Style())

    def _fence(self, code: str, info: str, width: int) -> list[Strip]:
        """Lay out a block of code on a background of its own."""
        rendering = Syntax(
            code.rstrip("\n"),
            (info.split() or ["text"])[0],
            theme=self._code_theme,
            background_color=self._code_background,
            word_wrap=True,
            padding=(0, 1),
        )
        return [*self._lines(rendering, width), Strip.blank(0)]

    def _lines(self, rendering: Markdown | Syntax | Text, width: int) -> list[Strip]:
        options = self._console.options.update(width=max(1, width), height=None)
        lines = self._console.render_lines(rendering, options, pad=False)
        return [Strip(line) for line in lines]


def _as_rich(colour: str) -> str:
    """Return Rich's name of a colour: Textual puts "ansi_" before those of the terminal."""
    return "default" if colour == "transparent" else colour.removeprefix("ansi_")


def code_blocks(text: str) -> list[str]:
    """Return the contents of all fences of a text, the last of which may still be open."""
    return [token.content for token in parser().parse(text) if token.type == "fence"]
