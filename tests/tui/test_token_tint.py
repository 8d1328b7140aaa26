"""Tokens are tinted by their origins over rendered Markdown, and code is copied with one click."""

from __future__ import annotations

import random

import pytest
from rich.style import Style
from textual.pilot import Pilot
from textual.theme import BUILTIN_THEMES

from scripted_chat import Script, chat
from specchat import drafter_registry
from specchat.bench.race_frame import ANSI_SHADES, shades
from specchat.decoding.chunk import Piece
from specchat.tui.app import ChatApp
from specchat.tui.markdown.growing_text import MAX_LINES, GrowingMarkdown
from specchat.tui.markdown.prose import visible
from specchat.tui.markdown.token_tint import TokenTint
from specchat.tui.markdown.typesetter import Typesetter
from specchat.tui.texts.cards import REJECTED
from tables import table
from tui.driving import say, screen_text, until
from tui.test_blocks import COLOURS, TEXT
from tui.test_mouse import prose

ORIGINS = ("draft", "suffix", "target")
CODE = "Before.\n\n```python\nfirst = 1\n```\n\n- item\n  ```sh\n  second\n  ```\n"


@pytest.fixture
def anyio_backend() -> str:
    """Run coroutines as Textual does."""
    return "asyncio"


def cut(text: str, seed: int) -> list[Piece]:
    """Return a text as tokens of random lengths and origins."""
    chance = random.Random(seed)
    pieces = []
    while text:
        length = chance.randint(1, 6)
        pieces.append(Piece(text[:length], chance.choice(ORIGINS)))
        text = text[length:]
    return pieces


@table("width", [24, 60])
@table("seed", range(5))
def test_every_word_has_the_origins_of_its_tokens(width: int, seed: int) -> None:
    """Headings, lists, tables, code and quotations, but neither bullets nor borders."""
    pieces = cut(TEXT, seed)
    characters = [origin for piece, origin, _ in pieces for _ in piece]
    growing, typesetter, tint = GrowingMarkdown(), Typesetter(COLOURS), TokenTint(pieces)
    blocks = [*growing.append(TEXT), growing.tail]
    place = 0
    shown: dict[str, list[str]] = {}
    for block in blocks:
        lines = [visible(line) for line in typesetter.markdown(block, width)]
        found, place = tint.of_lines(lines, place)
        for line, origins in zip(lines, found, strict=True):
            assert len(line) == len(origins)
            assert all(not o for c, o in zip(line, origins, strict=True) if c in "•─▌")
            for word in ("heading", "bold", "code", "python", "two", "quoted", "deeper", "last"):
                if (start := line.find(word)) >= 0 and word not in shown:
                    shown[word] = origins[start : start + len(word)]
    for word in ("heading", "bold", "two", "quoted", "deeper", "last"):
        start = TEXT.index(word)
        assert shown[word] == characters[start : start + len(word)], word
    assert place == len(TEXT)


def test_tokens_may_arrive_while_they_are_shown() -> None:
    """The origins of what was shown stay, those of new tokens follow."""
    pieces = [Piece("one", "draft")]
    tint = TokenTint(pieces)
    assert tint.of_lines(["one"], 0) == ([["draft"] * 3], 3)
    pieces.append(Piece(" two", "suffix"))
    assert tint.of_lines(["one two"], 0) == ([["draft"] * 3 + ["suffix"] * 4], 7)


def drawn(app: ChatApp, word: str) -> set[Style]:
    """Return the styles a word is drawn in."""
    strips = app.screen._compositor.render_strips()
    line = next(each for each in strips if word in each.text)
    start = line.text.index(word)
    return {style for _, style, _ in line.crop(start, start + len(word)) if style is not None}


@pytest.mark.slow(keep=1)
@pytest.mark.anyio
@pytest.mark.parametrize("is_monochrome", [False, True])
async def test_markdown_stays_rendered_under_the_tint(
    monkeypatch: pytest.MonkeyPatch, *, is_monochrome: bool
) -> None:
    """With colours by a background, otherwise by a line below; while writing and after it."""
    monkeypatch.setenv("COLORTERM", "truecolor")
    if is_monochrome:
        monkeypatch.setenv("NO_COLOR", "1")
    script = Script(["# Title\n\nplain **strong** words\n\n- item\n"], pause=0.05)
    app = chat(script)
    async with app.run_test(size=(110, 36)) as pilot:
        await pilot.press("f4")
        await say(pilot, "Tint this")
        await until(pilot, lambda: "• item" in screen_text(app))
        assert "**" not in screen_text(app)
        styles = drawn(app, "plain")
        assert any(style.underline for style in styles) == is_monochrome
        assert (len({style.bgcolor for style in styles}) > 1) != is_monochrome
        assert all(style.bold for style in drawn(app, "strong"))
        await pilot.press("f4")
        await pilot.pause()
        assert len(drawn(app, "plain")) == 1
        await pilot.press("f4")
        await pilot.pause()
        assert drawn(app, "plain") == styles


async def click_copy(pilot: Pilot[None], app: ChatApp, language: str) -> None:
    """Click the word that copies the first code of a language."""
    rows = screen_text(app).splitlines()
    row = next(n for n, line in enumerate(rows) if f" {language} " in line)
    text = prose(app, 1)
    offset = rows[row].index("copy") - text.region.x, row - text.region.y
    await pilot.click(text, offset=offset)


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize(("language", "code"), [("python", "first = 1\n"), ("sh", "second\n")])
async def test_a_click_copies_the_code_below_it(language: str, code: str) -> None:
    """Every block names its language, and is copied alone."""
    app = chat(Script([CODE]))
    async with app.run_test(size=(110, 36)) as pilot:
        await say(pilot, "Code")
        await click_copy(pilot, app, language)
        await until(pilot, lambda: app.clipboard == code)


@pytest.mark.slow
@pytest.mark.anyio
async def test_long_code_has_one_language_and_no_gaps() -> None:
    """It is laid out in parts, which cannot be seen."""
    lines = [f"value_{number} = {number}" for number in range(2 * MAX_LINES + 5)]
    code = "\n".join(["```python", *lines, "```"])
    app = chat(Script([code]))
    async with app.run_test(size=(110, 2 * MAX_LINES + 20)) as pilot:
        await say(pilot, "Long code")
        rows = [line.strip(" ▌") for line in screen_text(app).splitlines()]
        first = next(n for n, line in enumerate(rows) if line.startswith("value_0"))
        shown = [line.split("   ")[0] for line in rows[first : first + len(lines)]]
        assert shown == lines
        assert sum(line.startswith("python") for line in rows) == 1
        await click_copy(pilot, app, "python")
        await until(pilot, lambda: app.clipboard == "\n".join([*lines, ""]))


@table("theme", BUILTIN_THEMES)
@table("has_colours", [True, False])
def test_every_origin_has_a_tint_of_its_own(theme: str, *, has_colours: bool) -> None:
    """In each theme, with few colours or none too; only the target's own tokens have none."""
    all_origins = drafter_registry.origins()
    chosen = BUILTIN_THEMES[theme]
    colours = chosen.to_color_system().generate()
    typesetter = Typesetter(colours, has_colours=has_colours)
    tints = [typesetter.origin_style(each.name) for each in all_origins]
    assert len(set(tints)) == len(tints)
    assert [not tint for tint in tints] == [each == drafter_registry.TARGET for each in all_origins]
    assert len({each.mark for each in all_origins}) == len(all_origins)
    for shown in (None, ANSI_SHADES):
        assert len({shades(each, shown) for each in all_origins}) == len(all_origins)


@table("name", BUILTIN_THEMES)
def test_a_colour_of_a_token_means_one_thing(name: str) -> None:
    """In no theme do tokens of two origins, or rejected ones, look alike."""
    colours = BUILTIN_THEMES[name].to_color_system().generate()
    meanings = [each.colour for each in drafter_registry.origins() if each.colour]
    meanings.append(REJECTED.removeprefix("$"))
    assert len({colours[each] for each in meanings}) == len(meanings)


def test_readable_formulas_have_the_origins_of_their_source() -> None:
    """Symbols those of their commands, and the words behind them their own."""
    text = r"so $x^2 \leq \alpha$ holds"
    pieces = [Piece(r"so $x^", "target"), Piece(r"2 \leq", "draft"), Piece(r" \alpha$", "suffix")]
    pieces.append(Piece(" holds", "target"))
    assert "".join(piece.text for piece in pieces) == text
    [line, _] = Typesetter(COLOURS).markdown(text, 60)
    [origins], _ = TokenTint(pieces).of_lines([line.text], 0)
    shown = dict(zip(line.text, origins, strict=True))
    assert [shown[each] for each in "x²≤\N{GREEK SMALL LETTER ALPHA}d"] == [
        "target",
        "draft",
        "draft",
        "suffix",
        "target",
    ]
