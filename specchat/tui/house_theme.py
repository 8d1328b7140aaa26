"""The themes of the house: a dark one, which is the default, and a light one.

Each colour has one meaning. Green, blue and amber are those of the tokens' origins (as tints behind
text, the `-muted` ones), red is for what was rejected or has failed. In answers, headings are blue,
links teal and inline code orange; `line` is for quiet borders and scrollbars. All text stands out
from its ground by at least 4.5 : 1, lines and signs by 3 : 1 (WCAG 2.2), which a test checks.
"""

from textual.theme import Theme

DARK = Theme(
    "specchat-dark",
    primary="#7aa2f7",
    secondary="#5bc8c9",
    accent="#f0a878",
    success="#7fd38d",
    warning="#e5c25b",
    error="#f27f8e",
    foreground="#e4e7f0",
    background="#11131b",
    surface="#191c27",
    panel="#232738",
    variables={
        "line": "#697194",
        "question": "#1c202e",
        "surface-lighten-1": "#20242f",
        "primary-muted": "#21345f",
        "success-muted": "#1c3a29",
        "warning-muted": "#43380f",
        "foreground-darken-3": "#a9adba",
        "block-cursor-background": "#2b3557",
        "block-cursor-foreground": "#e4e7f0",
        "block-cursor-blurred-background": "#23293d",
        "footer-background": "#11131b",
        "footer-key-foreground": "#a7c1f9",
        "footer-description-foreground": "#a9adba",
    },
)
LIGHT = Theme(
    "specchat-light",
    primary="#2a56b8",
    secondary="#006a75",
    accent="#9a4b12",
    success="#1c6b36",
    warning="#7a5200",
    error="#b3243c",
    foreground="#16181f",
    background="#f8f8f5",
    surface="#eeeeea",
    panel="#e2e2dc",
    dark=False,
    variables={
        "line": "#7a7f8d",
        "question": "#eeeeea",
        "surface-lighten-1": "#e6e6e1",
        "primary-muted": "#cfdefc",
        "success-muted": "#c9e9cf",
        "warning-muted": "#f6e3ab",
        "foreground-darken-3": "#565a66",
        "secondary-lighten-2": "#006a75",
        "text-primary": "#1f4aa5",
        "text-secondary": "#005f69",
        "text-accent": "#8a4310",
        "text-success": "#15602f",
        "text-warning": "#6e4a00",
        "text-error": "#a31d35",
        "block-cursor-background": "#cfdcf7",
        "block-cursor-foreground": "#16181f",
        "block-cursor-blurred-background": "#e0e5ef",
        "footer-background": "#f8f8f5",
        "footer-key-foreground": "#1f4aa5",
        "footer-description-foreground": "#565a66",
    },
)
HOUSE = (DARK, LIGHT)


def own_variables(theme: Theme) -> dict[str, str]:
    """Return the colours that the chat needs and only its own themes have, for another theme."""
    colours = theme.to_color_system().generate()
    return {"line": f"{colours['foreground']} 20%", "question": colours["surface"]}


def readable_theme(theme: Theme, colours: str | None) -> str:
    """Return the name of a theme that is readable with this colour system (see `colours_of`).

    Without colours, ANSI themes would be black on black; with only 16 colours, all other themes
    would be grey.
    """
    if colours is None and theme.ansi:
        return (DARK if theme.dark else LIGHT).name
    brightness = "dark" if theme.dark else "light"
    return f"ansi-{brightness}" if colours == "standard" and not theme.ansi else theme.name
