"""A race, or several of one prompt, as a file: a looping SVG, PNG, GIF, a terminal recording, JSON.

Viewers without animation show the last frame of the SVG. The terminal output of `play` is either
shown or recorded.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from math import inf
from pathlib import Path

from rich.console import Console
from rich.text import Text

from specchat.bench.race_frame import drawable, frames
from specchat.bench.race_raster import as_gif, as_png, require_pillow
from specchat.bench.race_record import Race
from specchat.bench.race_scene import EDGE, PAGE, Answer, Bar, Box, Group, Part, Scene, scene_of
from specchat.chat.export import output_path
from specchat.safe_text import in_one_line

FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
REST_SECONDS = 4.0
"""How long a loop shows the result."""

INTERVAL = 1 / 15
"""Seconds between two frames."""
LAST_SECONDS = 3.0
"""How long a recording shows the result."""
SIZE = (96, 28)
ROWS_EACH = 14
"""The height of each of several races."""


def moments(seconds: float) -> Iterator[float]:
    """Yield the times of the frames; the last one is the end."""
    yield from (INTERVAL * number for number in range(int(seconds / INTERVAL) + 1))
    yield seconds


def play(races: Sequence[Race], console: Console) -> Iterator[tuple[float, str]]:
    """Yield times, each with the terminal output that updates the previous frame.

    The output fills a screen of the console's size, from the top row.
    """
    width, height = console.size
    shown: list[str | None] = [None] * height
    for seconds in moments(max(race.seconds for race in races)):
        lines = [_drawn(console, line) for line in frames(races, seconds, width, height)]
        changes = [
            f"\x1b[{row};1H\x1b[0m\x1b[K{line}"
            for row, (line, before) in enumerate(zip(lines, shown, strict=True), 1)
            if line != before
        ]
        if changes:
            yield seconds, "".join(changes)
        shown = [*lines]


def as_cast(races: Sequence[Race]) -> str:
    """Return a recording in version 2 of asciinema's format; what was raced stands below it."""
    first, has_many = races[0], len(races) > 1
    lines = ["" if has_many else " · ".join(filter(None, (first.target, first.files))), first.where]
    sources = [Text(drawable(in_one_line(line)), "dim") for line in lines if line]
    width, height = SIZE
    height = max(height, 1 + ROWS_EACH * len(races) + len(sources)) if has_many else height
    console = _recorder(width, height - len(sources))
    header = {"version": 2, "width": width, "height": height, "title": "specchat race"}
    start = "\x1b[2J\x1b[?25l"
    for row, line in enumerate(sources, console.size.height + 1):
        line.truncate(width, overflow="ellipsis")
        start += f"\x1b[{row};1H{_drawn(console, line)}"
    events = [[0.0, "o", start]]
    events += [[round(seconds, 3), "o", out] for seconds, out in play(races, console)]
    events.append([round(max(race.seconds for race in races) + LAST_SECONDS, 3), "o", "\x1b[?25h"])
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in [header, *events])


def _recorder(width: int, height: int) -> Console:
    """Return a console of this size that has all colours and shows nothing."""
    return Console(
        file=io.StringIO(), force_terminal=True, color_system="truecolor", no_color=False,
        width=width, height=height, legacy_windows=False,
    )  # fmt: skip


def _drawn(console: Console, line: Text) -> str:
    with console.capture() as drawn:
        console.print(line, end="", no_wrap=True, highlight=False, soft_wrap=True)
    return drawn.get()


def _json(races: Sequence[Race]) -> str:
    """Return the records, one a line."""
    records = [race.as_record() for race in races]
    return "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)


ENDINGS: Mapping[str, Callable[[Sequence[Race]], bytes]] = {
    ".svg": lambda races: animate(scene_of(races)).encode(),
    ".png": lambda races: as_png(scene_of(races)),
    ".gif": lambda races: as_gif(scene_of(races), INTERVAL, REST_SECONDS),
    ".cast": lambda races: as_cast(races).encode(),
    ".json": lambda races: _json(races).encode(),
}
"""The functions that turn races of one prompt into the content of a file, by the file's ending."""


def card_path(name: str | Path) -> Path:
    """Return the path of a card. Raises InvalidOption as `output_path` does, and without Pillow."""
    path = output_path(name, ENDINGS)
    if path.suffix in (".png", ".gif"):
        require_pillow(path.suffix)
    return path


# --- SVG


def animate(scene: Scene) -> str:
    """Return an SVG that plays a scene in a loop, at its original speed; at first it is the end."""
    width, height = scene.width, scene.height
    length = scene.seconds + REST_SECONDS
    edge = f'width="{width - 1}" height="{height - 1}" rx="10" fill="{PAGE}" stroke="{EDGE}"'
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    text = f'font-family="{FONTS}" direction="ltr" xml:space="preserve"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" {text}>',
        f"<title>{escape(scene.title)}</title>",
        "<style>text{white-space:pre;unicode-bidi:isolate}</style>",
        f'<rect x="0.5" y="0.5" {edge}/>',
        *(_group(group, length) for group in scene.groups),
        *(_bar(bar, length) for bar in scene.bars),
        *(_answer(answer, place, length) for place, answer in enumerate(scene.answers)),
        "</svg>\n",
    ]
    return "\n".join(filter(None, lines))


def _group(group: Group, length: float) -> str:
    """Return a group's parts, with the time at which they are shown."""
    drawn = "".join(map(_part, group.parts))
    is_brief = group.end < inf
    if not drawn or not (group.start or is_brief):
        return drawn
    times = [0.0, max(group.start / length, 0.0001)]
    if is_brief:
        times.append(group.end / length)
    animation = _animation("opacity", length, times, ["0", "1", "0"][: len(times)])
    hidden = ' opacity="0"' if is_brief else ""
    return f"<g{hidden}>{animation}{drawn}</g>"


def _number(pixels: float) -> str:
    return f"{pixels:.1f}".removesuffix(".0")


def _part(part: Part) -> str:
    if isinstance(part, Box):
        return _rect(part, "/>")
    bold = ' font-weight="bold"' if part.is_bold else ""
    anchor = ' text-anchor="end"' if part.is_right else ""
    place = _attributes(
        {"x": part.x, "y": part.y, "font-size": part.size, "textLength": part.width}
    )
    return (
        f'<text {place} lengthAdjust="spacingAndGlyphs" fill="{part.fill}"{bold}{anchor}>'
        f"{escape(part.text)}</text>"
    )


def _rect(box: Box, end: str) -> str:
    place = {"x": box.x, "y": box.y, "width": box.width, "height": box.height, "rx": box.radius}
    return f'<rect {_attributes(place)} fill="{box.fill}"{end}'


def _attributes(values: Mapping[str, float]) -> str:
    return " ".join(f'{name}="{_number(value)}"' for name, value in values.items())


def _bar(bar: Bar, length: float) -> str:
    """Return a bar with its growth."""
    times = [time / length for time, _ in bar.widths]
    values = [_number(width) for _, width in bar.widths]
    full = bar.box._replace(width=bar.widths[-1][1])
    return _rect(full, f">{_animation('width', length, times, values)}</rect>")


def _answer(answer: Answer, place: int, length: float) -> str:
    """Return an answer's visible lines, with their scrolling."""
    gone = [f"0 {_number(-scrolled)}" for _, scrolled in answer.scrolls]
    animation = ""
    if len(gone) > 1:
        times = [time / length for time, _ in answer.scrolls]
        animation = _animation("transform", length, times, gone, kind="translate")
    groups = "\n".join(filter(None, (_group(each, length) for each in answer.groups)))
    size = f'width="{_number(answer.width + 8)}" height="{_number(answer.height)}"'
    return (
        f'<clipPath id="rows{place}"><rect x="-4" y="0" {size}/></clipPath>'
        f'<g transform="translate({_number(answer.x)} {_number(answer.y)})">'
        f'<g clip-path="url(#rows{place})">'
        f'<g transform="translate({gone[-1]})">{animation}{groups}</g></g></g>'
    )


def _animation(
    name: str, length: float, times: list[float], values: list[str], kind: str = ""
) -> str:
    """Return an animation that sets an attribute at each time, a share of the loop's length."""
    element = f'animateTransform type="{kind}"' if kind else "animate"
    shares = ";".join(f"{time:.4f}" for time in times)
    return (
        f'<{element} attributeName="{name}" calcMode="discrete" dur="{length:.2f}s"'
        f' repeatCount="indefinite" values="{";".join(values)}" keyTimes="{shares}"/>'
    )
