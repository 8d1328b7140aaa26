"""One frame of a race as terminal lines.

Drafted tokens are chips, shaded by step; the target's own are text.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

from specchat.bench.race_record import Lane, Race, RaceStep
from specchat.drafter_registry import TARGET, TokenOrigin, origin, origins
from specchat.safe_text import harmless, in_one_line
from specchat.wording import rate_text

Shades: TypeAlias = Mapping[str, tuple[str, str]]
SHADES: Shades = {
    "": ("#ccd2dc", "#a9b2c1"),
    "text-success": ("#93dd9b", "#68c474"),
    "text-primary": ("#a3cdf5", "#74aee6"),
    "text-warning": ("#f5c885", "#e5a94f"),
    "foreground-darken-3": ("#e9b8c9", "#d592ab"),
}
"""The chips' colours in even and odd steps, by the name of their origin's colour."""
ANSI_SHADES: Shades = {
    "": ("bright_white", "white"),
    "text-success": ("bright_green", "green"),
    "text-primary": ("bright_cyan", "cyan"),
    "text-warning": ("bright_yellow", "yellow"),
    "foreground-darken-3": ("bright_blue", "blue"),
}
"""The same for terminals with only 16 colours."""
OTHER_SHADES = ("#cdbdf5", "#b39ceb")
INK = "#16181d"
"""The colour of the text on chips, on light and on dark screens."""

UNDRAWABLE = re.compile("[\u061c\u200e\u200f\u2028\u2029\ufffe\uffff]")
"""Characters that reorder a line or end it, and characters not allowed in XML."""
LINE_PARTS = re.compile(r"[^\n]*\n|[^\n]+")
GAP = 3
VERDICT_STYLES = {"faster": f"bold {INK} on #93dd9b", "slower": f"bold {INK} on #f2a9a9"}
HEAD, FOOT = 6, 2
"""The number of lines above and below the answers."""


class Chip(NamedTuple):
    """A token, or the part of a token on one line; positions are in cells of the lane."""

    row: int
    column: int
    width: int
    text: str
    origin: str
    step: int

    @property
    def shade(self) -> str:
        """The chip's colour."""
        return shades(origin(self.origin))[self.step % 2]


def shades(of: TokenOrigin, colours: Shades | None = None) -> tuple[str, str]:
    """Return the colours of an origin's chips in even and odd steps."""
    return (colours or SHADES).get(of.colour, OTHER_SHADES)


def chips(lane: Lane, width: int) -> Sequence[Chip]:
    """Return the chips of an answer, wrapped at a width; later steps never move earlier chips."""
    return _laid_out(lane.steps, width)


@lru_cache(maxsize=32)
def _laid_out(steps: Sequence[RaceStep], width: int) -> tuple[Chip, ...]:
    return tuple(_wrapped(steps, width))


def _wrapped(steps: Sequence[RaceStep], width: int) -> Iterator[Chip]:
    row = column = 0
    for number, step in enumerate(steps):
        for text, name in zip(step.texts, step.origins, strict=True):
            for part in LINE_PARTS.findall(drawable(text)):
                for piece in chop_cells(part.replace("\n", "⏎"), width):
                    cells = cell_len(piece)
                    if column + cells > width:
                        row, column = row + 1, 0
                    yield Chip(row, column, cells, piece, name, number)
                    column += cells
                if part.endswith("\n"):
                    row, column = row + 1, 0


def drawable(text: str) -> str:
    """Return a token's text with unsafe characters for terminals and SVG replaced."""
    text = text.replace("\r\n", "\n").replace("\t", "    ")
    return UNDRAWABLE.sub("\ufffd", harmless(text))


def legend(races: Sequence[Race]) -> list[TokenOrigin]:
    """Return the origins that occur in races, drafters first."""
    lanes = [lane for race in races for lane in race.lanes]
    names = {name for lane in lanes for step in lane.steps for name in step.origins}
    return [origin for origin in origins() if origin.name in names]


def label_of(of: TokenOrigin) -> str:
    """Return the legend's label for an origin's chips."""
    return "own token" if of == TARGET else f"accepted: {of.label}"


def lane_figures(race: Race, lane: Lane, whole: Lane) -> str:
    """Return a lane's rate, tokens and seconds at a moment, and whether it was complete.

    Where nothing was drafted, rates would show the machine's load alone.
    """
    if not lane.steps:
        return "starting"
    if race.gain.kind == "plain":
        return f"{lane.num_tokens} tokens"
    end = "done in" if len(lane.steps) == len(whole.steps) else "after"
    tokens = f"{lane.num_tokens} tokens {end} {lane.seconds:.1f} s"
    return f"{rate_text(lane.tokens_per_second)} · {tokens}"


def frame_height(race: Race, width: int) -> int:
    """Return the number of lines that a frame needs to show both answers in full."""
    laid_out = (chips(lane, (width - GAP) // 2) for lane in race.lanes)
    return HEAD + FOOT + 1 + max((lane[-1].row for lane in laid_out if lane), default=0)


def frames(races: Sequence[Race], seconds: float, width: int, height: int) -> list[Text]:
    """Return the lines of a race, or of several of one prompt, one below the other."""
    if len(races) == 1:
        return frame(races[0], seconds, width, height)
    lines, own = [_head(races[0].prompt, width)], (height - 1) // len(races)
    for race in races:
        result = race.benchmark if seconds >= race.seconds else ""
        head = " · ".join(filter(None, (race.target, race.files, result)))
        lines += frame(race, seconds, width, own, head=head)
    return [*lines, *(Text() for _ in range(height - len(lines)))]


def frame(
    race: Race,
    seconds: float,
    width: int,
    height: int,
    colours: Shades | None = None,
    *,
    head: str = "",
) -> list[Text]:
    """Return the lines of a race at a moment, exactly `height` of them.

    The first one is the prompt, unless there is another `head`. The result is below it once both
    lanes have ended.
    """
    columns = (width - GAP) // 2
    rows = max(1, height - HEAD - FOOT)
    lanes = [_lane_lines(race, lane, seconds, columns, rows, colours) for lane in race.lanes]
    joined = [_joined(pair, columns) for pair in zip(*lanes, strict=True)]
    result, details = _result_lines(race, width) if seconds >= race.seconds else (Text(), Text())
    first, last = _head(head or race.prompt, width), _legend_line(race, width, colours)
    lines = [first, result, *joined, details, last][:height]
    for line in lines:
        line.truncate(width)
    return lines


def _head(text: str, width: int) -> Text:
    """Return the beginning of a text as a line."""
    return Text(set_cell_size(UNDRAWABLE.sub("", in_one_line(text)), width), "dim")


def _lane_lines(
    race: Race, whole: Lane, seconds: float, width: int, rows: int, colours: Shades | None
) -> list[Text]:
    lane = whole.until(seconds)
    full = round(width * lane.num_tokens / whole.num_tokens)
    bar = Text.assemble(("━" * full, "bold"), ("─" * (width - full), "dim"))
    name = whole.name if cell_len(whole.name) <= width else whole.short_name
    title, figures = Text(name, "bold"), Text(lane_figures(race, lane, whole))
    if figures.cell_len > width:
        figures = Text(figures.plain.split(" · ")[0])
    title.truncate(width, overflow="ellipsis")
    drawn = chip_lines(whole, width, rows, colours, num_steps=len(lane.steps))
    return [title, figures, bar, Text(), *drawn]


def chip_lines(
    lane: Lane,
    width: int,
    rows: int,
    colours: Shades | None = None,
    *,
    num_steps: int | None = None,
) -> list[Text]:
    """Return the last `rows` lines of an answer's first steps, drafted tokens as chips."""
    lines: dict[int, Text] = {}
    steps = lane.steps[:num_steps]
    drawn = [chip for chip in chips(lane, width) if chip.step < len(steps)]
    last = drawn[-1].row if drawn else 0
    first = max(0, last - rows + 1)
    for chip in drawn:
        if chip.row < first:
            continue
        line = lines.setdefault(chip.row, Text())
        if chip.origin == TARGET.name:
            line.append(chip.text)
            continue
        mark = origin(chip.origin).mark if os.environ.get("NO_COLOR") else ""
        shade = shades(origin(chip.origin), colours)[chip.step % 2]
        line.append(chip.text, f"{INK} on {shade} {mark}")
    return [lines.get(row, Text()) for row in range(first, first + rows)]


def _joined(lines: Sequence[Text], width: int) -> Text:
    left, right = lines
    left.truncate(width)
    return Text.assemble(left, " " * (width - left.cell_len + GAP), right)


def _result_lines(race: Race, width: int) -> tuple[Text, Text]:
    """Return the result line, with its details beside it, or on a line of their own if too long."""
    details = Text(race.details(), "dim")
    verdict = Text(f" {race.verdict} ", VERDICT_STYLES.get(race.gain.kind, "bold reverse"))
    if verdict.cell_len + details.cell_len + 2 <= width:
        return Text.assemble(verdict, "  ", details), Text()
    return verdict, details


def _legend_line(race: Race, width: int, colours: Shades | None) -> Text:
    """Return the legend of the chips, abbreviated in a narrow terminal."""
    lines = []
    for labels in (label_of, lambda of: label_of(of).removeprefix("accepted: ")):
        lines.append(Text())
        for source in legend([race]):
            chip = ("A", "") if source == TARGET else ("  ", f"on {shades(source, colours)[0]}")
            lines[-1].append(*chip).append(f" {labels(source)}   ", "dim")
    return next((line for line in lines if line.cell_len - GAP <= width), lines[-1])
