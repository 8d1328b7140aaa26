"""From blocks of Markdown, or tokens with their origins, to lines on the screen."""

import io
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.style import Style
from rich.text import Text
from rich.theme import Theme
from textual.strip import Strip

from specchat import drafter_registry
from specchat.chat.conversation import Piece
from specchat.tui.widgets.growing_text import markdown_parser
from specchat.tui.widgets.markdown_elements import Code, ThemedMarkdown

STYLES = {
    "h1": "bold {accent}",
    "h2": "bold {accent}",
    "h3": "bold {primary}",
    "h4": "bold",
    "code": "bold {accent} on {code}",
    "code_block": "on {code}",
    "block_quote": "italic",
    "item.bullet": "bold {accent}",
    "item.number": "{accent}",
    "hr": "{muted}",
    "link": "{accent} underline",
    "link_url": "{muted} underline",
    "table.border": "{muted}",
    "table.header": "bold {accent}",
}
"""Rich's styles of Markdown, in the colours of the theme."""


class Typesetter:
    """Lays out text in the colours of a theme."""

    def __init__(self, colours: Mapping[str, str], *, is_dark: bool = True) -> None:
        """Create the styles from the theme's colours, by Textual's names for them."""
        colours = {name: _rich_colour(colour) for name, colour in colours.items()}
        self._code_theme = "monokai" if is_dark else "default"
        self._code_background = colours["surface-lighten-1"]
        self._origins = {
            origin.name: Style.parse(f"{colours.get(origin.colour, '')} {origin.mark}".strip())
            for origin in drafter_registry.origins()
        }
        names = {
            "accent": colours["text-accent"],
            "primary": colours["text-primary"],
            "muted": colours["text-secondary"],
            "code": self._code_background,
        }
        styles = {f"markdown.{name}": style.format(**names) for name, style in STYLES.items()}
        self._parser = markdown_parser()
        self._console = Console(
            file=io.StringIO(),
            force_terminal=True,
            color_system="truecolor",
            theme=Theme({name: Style.parse(style) for name, style in styles.items()}),
            legacy_windows=False,
        )

    def markdown(self, block: str, width: int) -> list[Strip]:
        """Return the lines of one block, followed by an empty line."""
        tokens = self._parser.parse(block)
        if not tokens:
            return []
        if len(tokens) == 1 and tokens[0].type == "fence":
            return [*self._code(tokens[0].content, tokens[0].info, width), Strip.blank(0)]
        rendering = ThemedMarkdown(tokens, self._code_theme, self._code_background)
        lines = self._lines(rendering, width)
        while lines and not lines[0].text.strip():
            lines.pop(0)
        while lines and not lines[-1].text.strip():
            lines.pop()
        return [*lines, Strip.blank(0)]

    def tokens(self, pieces: Sequence[Piece], width: int) -> list[Strip]:
        """Return one line of tokens, wrapped, in the colours of their origins."""
        text = Text(end="")
        for piece, origin in pieces:
            text.append(piece, self.origin_style(origin))
        return self._lines(text, width) or [Strip.blank(0)]

    def origin_style(self, origin: str) -> Style:
        """Return the style of tokens of that origin."""
        return self._origins.get(origin, Style())

    def _code(self, code: str, info: str, width: int) -> list[Strip]:
        lexer = (info.split() or ["text"])[0]
        return self._lines(Code(code, lexer, self._code_theme, self._code_background), width)

    def _lines(self, rendering: ThemedMarkdown | Code | Text, width: int) -> list[Strip]:
        options = self._console.options.update(width=max(1, width), height=None)
        lines = self._console.render_lines(rendering, options, pad=False)
        return [Strip(line) for line in lines]


def _rich_colour(colour: str) -> str:
    """Return Rich's name of a colour: Textual prefixes those of the terminal with "ansi_"."""
    return "default" if colour == "transparent" else colour.removeprefix("ansi_")


def code_blocks(text: str) -> list[str]:
    """Return the contents of all fences, of which the last may still be open."""
    return [token.content for token in markdown_parser().parse(text) if token.type == "fence"]
