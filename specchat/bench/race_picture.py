"""A race as a file: a still or looping SVG, a terminal recording, or JSON.

Viewers without animation show the last frame of the SVG. The terminal output of `play` is either
shown or recorded.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

from rich.console import Console

from specchat.bench.race_frame import (
    INK,
    chips,
    drawable,
    frame,
    label_of,
    lane_figures,
    legend,
    shades,
)
from specchat.bench.race_record import Lane, Race

TEMPLATE = Path(__file__).with_suffix(".svg")
COLUMNS, MAX_ROWS = 46, 18
"""The width of an answer in characters, and its visible lines; longer answers scroll."""
MAX_PROMPT = 2 * COLUMNS
FIGURES_SECONDS = 0.2
"""The shortest time to show a figure, so that it can be read."""
REST_SECONDS = 4.0
"""How long the loop shows the result."""

INTERVAL = 1 / 15
"""Seconds between two frames."""
LAST_SECONDS = 3.0
"""How long a recording shows the result."""
SIZE = (96, 28)


def draw(race: Race, seconds: float = inf) -> str:
    """Return a still SVG of a moment, by default the last one."""
    return _render(race, moment=min(seconds, race.seconds), is_loop=False)


def animate(race: Race) -> str:
    """Return an SVG that plays the race in a loop, at its original speed."""
    return _render(race, moment=race.seconds, is_loop=True)


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
        lines = []
        for line in frame(race, seconds, width, height):
            with console.capture() as drawn:
                console.print(line, end="", no_wrap=True, highlight=False, soft_wrap=True)
            lines.append(drawn.get())
        changes = [
            f"\x1b[{row};1H\x1b[0m\x1b[K{line}"
            for row, (line, before) in enumerate(zip(lines, shown, strict=True), 1)
            if line != before
        ]
        if changes:
            yield seconds, "".join(changes)
        shown = [*lines]


def as_cast(race: Race) -> str:
    """Return a recording in version 2 of asciinema's format."""
    width, height = SIZE
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system="truecolor", no_color=False,
        width=width, height=height, legacy_windows=False,
    )  # fmt: skip
    header = {"version": 2, "width": width, "height": height, "title": "specchat race"}
    events = [[0.0, "o", "\x1b[2J\x1b[?25l"]]
    events += [[round(seconds, 3), "o", out] for seconds, out in play(race, console)]
    events.append([round(race.seconds + LAST_SECONDS, 3), "o", "\x1b[?25h"])
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in [header, *events])


EXPORTS: Mapping[str, Callable[[Race], str]] = {
    ".svg": animate,
    ".cast": as_cast,
    ".json": lambda race: json.dumps(race.as_record(), ensure_ascii=False) + "\n",
}
"""The functions that turn a race into the text of a file, by the file's suffix."""


def _render(race: Race, **how: Any) -> str:
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATE.read_text("utf-8"))
    lanes = [_laid_out(race, lane) for lane in race.lanes]
    prompt = drawable(" ".join(race.prompt.split()))
    is_long = len(prompt) > MAX_PROMPT
    origins = [(shades(origin), drawable(label_of(origin))) for origin in legend(race)]
    return template.render(
        race=race,
        lanes=lanes,
        prompt=f"{prompt[: MAX_PROMPT - 1]}…" if is_long else prompt,
        model=drawable(race.target),
        legend=origins,
        columns=COLUMNS,
        rows=min(MAX_ROWS, max(lane["num_rows"] for lane in lanes)),
        length=race.seconds + REST_SECONDS,
        ink=INK,
        **how,
    )


def _laid_out(race: Race, lane: Lane) -> dict[str, Any]:
    """Return a lane's data for the template: `steps` are times with the chips of each step.

    Both by time, `shares` are the fractions of the answer written, and `scrolls` the numbers of
    lines scrolled out at the top.
    """
    answer = chips(lane, COLUMNS)
    steps, shares, scrolls = [], [(0.0, 0.0)], [(0.0, 0)]
    num_tokens, num_rows = 0, 1
    for number, step in enumerate(lane.steps):
        written = [chip for chip in answer if chip.step == number]
        num_tokens += len(step.texts)
        num_rows = max([num_rows, *(chip.row + 1 for chip in written)])
        steps.append((step.seconds, written))
        shares.append((step.seconds, num_tokens / lane.num_tokens))
        if num_rows - MAX_ROWS > scrolls[-1][1]:
            scrolls.append((step.seconds, num_rows - MAX_ROWS))
    return {
        "name": lane.name,
        "steps": steps,
        "shares": shares,
        "scrolls": scrolls,
        "figures": _figures(race, lane),
        "num_rows": num_rows,
    }


def _figures(race: Race, lane: Lane) -> list[tuple[float, float, str]]:
    """Return figures, each with the times from and until which it is shown."""
    times = [0.0]
    for step in lane.steps:
        if step.seconds - times[-1] >= FIGURES_SECONDS:
            times.append(step.seconds)
    if times[-1] < lane.seconds:
        times.append(lane.seconds)
    shown = [lane_figures(race, lane.until(time), lane) for time in times]
    return list(zip(times, [*times[1:], inf], shown, strict=True))
