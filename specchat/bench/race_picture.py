"""A race as SVG: one moment of it, or a loop without scripts that shows it at its true speed.

A program that does not animate shows the last moment.
"""

from math import inf
from pathlib import Path
from typing import Any

from specchat.bench.race_frame import INK, chips, drawable, label_of, lane_figures, legend, shades
from specchat.bench.race_record import Lane, Race

TEMPLATE = Path(__file__).with_suffix(".svg")
COLUMNS, MAX_ROWS = 46, 18
"""Characters in a line of an answer, and the lines that are shown; longer answers scroll."""
MAX_PROMPT = 2 * COLUMNS
FIGURES_SECONDS = 0.2
"""The least time that a figure is shown, so that it can be read."""
REST_SECONDS = 4.0
"""How long the loop shows the result."""


def draw(race: Race, seconds: float = inf) -> str:
    """Return the picture of a moment, by default the last."""
    return _render(race, moment=min(seconds, race.seconds), is_loop=False)


def animate(race: Race) -> str:
    """Return a picture that plays the race in a loop."""
    return _render(race, moment=race.seconds, is_loop=True)


def _render(race: Race, **how: Any) -> str:
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATE.read_text("utf-8"))
    lanes = [_laid_out(lane) for lane in race.lanes]
    prompt = drawable(" ".join(race.prompt.split()))
    is_long = len(prompt) > MAX_PROMPT
    origins = [(shades(each), drawable(label_of(each))) for each in legend(race)]
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


def _laid_out(lane: Lane) -> dict[str, Any]:
    """Return what the template draws of a lane: `steps` are the time of each, and its chips.

    By time, `shares` are the parts of the answer that are written, and `scrolls` the lines that
    have left the top.
    """
    answer = list(chips(lane, COLUMNS))
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
        "figures": _figures(lane),
        "num_rows": num_rows,
    }


def _figures(lane: Lane) -> list[tuple[float, float, str]]:
    """Return when figures are shown, until when, and the figures."""
    times = [0.0]
    for step in lane.steps:
        if step.seconds - times[-1] >= FIGURES_SECONDS:
            times.append(step.seconds)
    if times[-1] < lane.seconds:
        times.append(lane.seconds)
    shown = [lane_figures(lane.until(time), lane) for time in times]
    return list(zip(times, [*times[1:], inf], shown, strict=True))
