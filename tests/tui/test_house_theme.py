"""Everything can be read in the themes of the house, in their colours and in greys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from scripted_chat import Script, chat
from specchat import drafter_registry
from specchat.options.declarations import ScreenOptions
from specchat.tui import app as app_module
from specchat.tui.house_theme import DARK, HOUSE, LIGHT
from specchat.tui.markdown.typesetter import CODE_STYLES, STYLES, Typesetter
from specchat.tui.texts.cards import REJECTED, TONES
from tables import table
from tui.contrast import (
    READABLE,
    VISIBLE,
    colours_of_theme,
    contrast,
    distance,
    on_ground,
)

STYLE_SHEET = "".join(
    Path(app_module.__file__).with_name(name).read_text("utf-8")
    for name in ("specchat.tcss", "dialogs.tcss")
)
DECLARATION = re.compile(r"([\w-]+): ([^;{}]+);")
TEXTS = {
    "color", "border-title-color", "border-subtitle-color", "link-color", "link-color-hover",
}  # fmt: skip
CURSOR = "block-cursor"
"""Begins the names of the colours under the cursor, where no border stands."""
APART = 12.0
"""The least distance of two colours that mean different things."""
NAMES = [theme.name for theme in HOUSE]
THEMES = dict(zip(NAMES, HOUSE, strict=True))


@pytest.fixture
def anyio_backend() -> str:
    """Run coroutines as Textual does."""
    return "asyncio"


def colour(value: str, colours: dict[str, str]) -> Color:
    """Return the colour that a value of the style sheet names, such as "$foreground 20%"."""
    name, _, share = value.removeprefix("$").partition(" ")
    found = colours[name]
    if found.startswith("auto"):
        return Color.automatic(float(found.removeprefix("auto ").rstrip("%")))
    return Color.parse(found).multiply_alpha(float(share.rstrip("%") or 100) / 100)


def declared(kinds: str) -> set[str]:
    """Return the values that the style sheet gives to texts, grounds or signs."""
    found = set()
    for name, value in DECLARATION.findall(STYLE_SHEET):
        is_sign = name.startswith(("border", "scrollbar-color")) and name not in TEXTS
        kind = "text" if name in TEXTS else "ground" if name == "background" else ""
        kind = "sign" if is_sign else kind
        if kind == kinds and "$" in value:
            found.add(value[value.index("$") :].strip())
    return found


def grounds(theme: Theme, *, with_cursor: bool) -> dict[str, Color]:
    """Return the grounds on which texts stand, over the screen and over dialogs."""
    colours = colours_of_theme(theme)
    values = {"$background", "$surface", *declared("ground")}
    values |= {"$block-cursor-background", "$block-cursor-blurred-background"}
    return {
        f"{value} over {below}": Color.parse(colours[below]) + colour(value, colours)
        for value in values
        for below in ("background", "surface")
        if with_cursor or CURSOR not in value
    }


def seen(one: Color, ground: Color) -> Iterator[float]:
    """Yield the contrast in colour, then without colours."""
    yield contrast(one, ground)
    yield contrast(one.monochrome, ground.monochrome)


@table("name", NAMES)
def test_texts_of_the_style_sheet_can_be_read(name: str) -> None:
    """Each colour of a text on each ground, also those under the mouse or the cursor."""
    theme = THEMES[name]
    colours = colours_of_theme(theme)
    texts = declared("text") | {*TONES.values(), REJECTED, "$text"}
    texts |= {f"${each.colour}" for each in drafter_registry.origins() if each.colour}
    texts |= {"$footer-key-foreground", "$footer-description-foreground"}
    faint = {
        (text, where)
        for text in texts
        for where, ground in grounds(theme, with_cursor=True).items()
        for found in seen(on_ground(colour(text, colours), ground), ground)
        if found < READABLE
    }
    assert {"$text-muted", "$text-error", "$foreground"} <= texts
    assert not faint


@table("name", NAMES)
def test_borders_and_scrollbars_can_be_seen(name: str) -> None:
    """Each on the screen, in dialogs and around messages."""
    theme = THEMES[name]
    colours = colours_of_theme(theme)
    faint = {
        (sign, where)
        for sign in declared("sign")
        for where, ground in grounds(theme, with_cursor=False).items()
        for found in seen(on_ground(colour(sign, colours), ground), ground)
        if found < VISIBLE
    }
    assert {"$line", "$primary"} <= declared("sign")
    assert not faint


@table("name", NAMES)
def test_answers_can_be_read_in_all_tints(name: str) -> None:
    """Each style of Markdown and of code, on each ground and on the tint of each origin."""
    theme = THEMES[name]
    colours = colours_of_theme(theme)
    typesetter = Typesetter(colours)
    tints = [typesetter.origin_style(each.name) for each in drafter_registry.origins()]
    styles = [
        Style.parse(style.format(**colours)) for style in [*STYLES.values(), *CODE_STYLES.values()]
    ]
    code = Color.parse(colours["surface-lighten-1"])
    behind = [*grounds(theme, with_cursor=False).values(), code]
    faint = {
        (str(style + tint), ground.hex)
        for style in [Style(), Style(dim=True), *styles]
        for tint in tints
        for ground in behind
        for found in seen(*pair(style + tint, Color.parse(colours["foreground"]), ground))
        if found < READABLE
    }
    assert not faint


def pair(style: Style, text: Color, ground: Color) -> tuple[Color, Color]:
    """Return the colour of a text and that of its ground, as they are drawn."""
    front = Color.from_rich_color(style.color) if style.color else text
    back = Color.from_rich_color(style.bgcolor) if style.bgcolor else ground
    front = on_ground(front, back, is_dim=bool(style.dim))
    return (back, front) if style.reverse else (front, back)


@table("name", NAMES)
def test_colours_with_different_meanings_differ(name: str) -> None:
    """The tints of the origins from each other and the ground; the parts of an answer; lines."""
    colours = {key: value for key, value in colours_of_theme(THEMES[name]).items() if "#" in value}
    origins = [each.colour for each in drafter_registry.origins() if each.colour]
    for names in (
        ["background", "success-muted", "primary-muted", "warning-muted"],
        [*origins, REJECTED.removeprefix("$"), "foreground"],
        ["foreground", "text-primary", "text-secondary", "text-accent"],
        ["line", "primary", "secondary", "warning", "error"],
    ):
        near = {
            (one, other)
            for one, other in combinations(names, 2)
            if distance(Color.parse(colours[one]), Color.parse(colours[other])) < APART
        }
        assert not near


@pytest.mark.anyio
async def test_the_dark_one_is_there_from_the_first_frame() -> None:
    """It is the default; Textual's own can be chosen too."""
    app = chat(Script())
    assert app.theme == DARK.name
    assert app.theme_variables["background"] == str(DARK.background).upper()
    async with app.run_test():
        assert app.theme == DARK.name
        assert {"nord", "textual-dark", LIGHT.name} <= set(app.available_themes)


@pytest.mark.anyio
async def test_an_unknown_theme_is_named() -> None:
    """The default shows then."""
    app = chat(Script(), screen=ScreenOptions(theme="no-such"))
    async with app.run_test():
        assert app.theme == DARK.name
        assert [each.message for each in app._notifications] == [
            "Unknown theme no-such. /theme lists all."
        ]
