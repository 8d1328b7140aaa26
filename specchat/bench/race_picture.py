"""A race as a file: a still or looping SVG, PNG, GIF, a terminal recording, or JSON.

Viewers without animation show the last frame of the SVG. The terminal output of `play` is either
shown or recorded.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from html import escape
from math import inf
from pathlib import Path

from rich.console import Console
from rich.text import Text

from specchat.bench.race_frame import drawable, frame
from specchat.bench.race_raster import as_gif, as_png, require_pillow
from specchat.bench.race_record import Race
from specchat.bench.race_scene import EDGE, PAGE, Answer, Bar, Box, Group, Part, Scene, scene_of
from specchat.errors import InvalidOption
from specchat.safe_text import in_one_line

FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
REST_SECONDS = 4.0
"""How long a loop shows the result."""

INTERVAL = 1 / 15
"""Seconds between two frames."""
LAST_SECONDS = 3.0
"""How long a recording shows the result."""
SIZE = (96, 28)


def draw(race: Race, seconds: float = inf) -> str:
    """Return a still SVG of a moment, by default the last one."""
    scene = scene_of(race)
    return _svg(scene, min(seconds, scene.seconds), is_loop=False)


def animate(race: Race) -> str:
    """Return an SVG that plays the race in a loop, at its original speed."""
    scene = scene_of(race)
    return _svg(scene, scene.seconds, is_loop=True)


def moments(race: Race) -> Iterator[float]:
    """Yield the times of the frames; the last one is the end."""
    yield from (INTERVAL * number for number in range(int(race.seconds / INTERVAL) + 1))
    yield race.seconds


def play(race: Race, console: Console) -> Iterator[tuple[float, str]]:
    """Yield times, each with the terminal output that updates the previous frame.

    The output fills a screen of the console's size, from the top row.
    """
    width, height = console.size
    shown: list[str | None] = [None] * height
    for seconds in moments(race):
        lines = [_drawn(console, line) for line in frame(race, seconds, width, height)]
        changes = [
            f"\x1b[{row};1H\x1b[0m\x1b[K{line}"
            for row, (line, before) in enumerate(zip(lines, shown, strict=True), 1)
            if line != before
        ]
        if changes:
            yield seconds, "".join(changes)
        shown = [*lines]


def as_cast(race: Race) -> str:
    """Return a recording in version 2 of asciinema's format; what was raced stands below it."""
    width, height = SIZE
    files, where = race.origin_lines()
    lines = (" · ".join(filter(None, (race.target, files))), where)
    sources = [Text(drawable(in_one_line(line)), "dim") for line in lines if line]
    console = _recorder(width, height - len(sources))
    header = {"version": 2, "width": width, "height": height, "title": "specchat race"}
    start = "\x1b[2J\x1b[?25l"
    for row, line in enumerate(sources, console.size.height + 1):
        line.truncate(width, overflow="ellipsis")
        start += f"\x1b[{row};1H{_drawn(console, line)}"
    events = [[0.0, "o", start]]
    events += [[round(seconds, 3), "o", out] for seconds, out in play(race, console)]
    events.append([round(race.seconds + LAST_SECONDS, 3), "o", "\x1b[?25h"])
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


def _json(race: Race) -> str:
    return json.dumps(race.as_record(), ensure_ascii=False) + "\n"


def _in_bytes(write: Callable[[Race], str]) -> Callable[[Race], bytes]:
    return lambda race: write(race).encode()


ENDINGS: Mapping[str, Callable[[Race], bytes]] = {
    ".svg": _in_bytes(animate),
    ".png": lambda race: as_png(scene_of(race)),
    ".gif": lambda race: as_gif(scene_of(race), INTERVAL, REST_SECONDS),
    ".cast": _in_bytes(as_cast),
    ".json": _in_bytes(_json),
}
"""The functions that turn a race into the content of a file, by the file's ending."""


def card_path(name: str | Path) -> Path:
    """Return the path that a name stands for: as in a shell, in this folder or in one it names.

    Raises InvalidOption unless a race can be saved there.
    """
    try:
        path = Path.cwd() / Path(name).expanduser()
        has_folder, is_folder = path.parent.is_dir(), path.is_dir()
    except RuntimeError as error:  # no such user
        raise InvalidOption(f"{name}: {error}") from None
    except OSError as error:  # a folder that must not be searched, or a name that is too long
        raise InvalidOption(f"{name}: {error.strerror}") from None
    if path.suffix not in ENDINGS:
        raise InvalidOption(f"{name}: the file name must end in {', '.join(ENDINGS)}")
    if not has_folder:
        raise InvalidOption(f"{name}: no folder {path.parent}; create it first")
    if is_folder:
        raise InvalidOption(f"{name} is a folder: name a file in it")
    if path.suffix in (".png", ".gif"):
        require_pillow(path.suffix)
    return path


# --- SVG


def _svg(scene: Scene, moment: float, *, is_loop: bool) -> str:
    """Return a scene at a moment, or all of it played in a loop."""
    width, height = scene.width, scene.height
    length = scene.seconds + REST_SECONDS if is_loop else 0.0
    rows = scene.answers[0]
    clip = f'<rect x="-4" y="0" width="{_number(rows.width + 8)}" height="{_number(rows.height)}"/>'
    edge = f'width="{width - 1}" height="{height - 1}" rx="10" fill="{PAGE}" stroke="{EDGE}"'
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    text = f'font-family="{FONTS}" direction="ltr" xml:space="preserve"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" {text}>',
        f"<title>{escape(scene.title)}</title>",
        "<style>text{white-space:pre;unicode-bidi:isolate}</style>",
        f'<rect x="0.5" y="0.5" {edge}/>',
        f'<defs><clipPath id="rows">{clip}</clipPath></defs>',
        *(_group(group, moment, length) for group in scene.groups),
        *(_bar(bar, moment, length) for bar in scene.bars),
        *(_answer(answer, moment, length) for answer in scene.answers),
        "</svg>\n",
    ]
    return "\n".join(filter(None, lines))


def _group(group: Group, moment: float, length: float) -> str:
    """Return a group's parts; in a loop, with the time at which they are shown."""
    if not group.parts or not (length or group.start <= moment < group.end):
        return ""
    drawn = "".join(map(_part, group.parts))
    is_brief = group.end < inf
    if not length or not (group.start or is_brief):
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


def _bar(bar: Bar, moment: float, length: float) -> str:
    """Return a bar as it is at a moment; in a loop, with its growth."""
    width = [width for time, width in bar.widths if time <= moment][-1]
    box = bar.box._replace(width=width)
    if not length:
        return _rect(box, "/>")
    times = [time / length for time, _ in bar.widths]
    values = [_number(width) for _, width in bar.widths]
    return _rect(box, f">{_animation('width', length, times, values)}</rect>")


def _answer(answer: Answer, moment: float, length: float) -> str:
    """Return an answer's visible lines; in a loop, with their scrolling."""
    gone = [f"0 {_number(-scrolled)}" for _, scrolled in answer.scrolls]
    now = sum(time <= moment for time, _ in answer.scrolls) - 1
    animation = ""
    if length and len(gone) > 1:
        times = [time / length for time, _ in answer.scrolls]
        animation = _animation("transform", length, times, gone, kind="translate")
    groups = "\n".join(filter(None, (_group(each, moment, length) for each in answer.groups)))
    place = f"{_number(answer.x)} {_number(answer.y)}"
    return (
        f'<g transform="translate({place})"><g clip-path="url(#rows)">'
        f'<g transform="translate({gone[now]})">{animation}{groups}</g></g></g>'
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
