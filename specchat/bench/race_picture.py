"""A race as SVG: one moment of it, or a loop without scripts that shows it at its true speed.

A program that does not animate shows the last moment.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

from specchat.bench.race_frame import (
    INK,
    Chip,
    chips,
    drawable,
    label_of,
    lane_figures,
    legend,
    shades,
)
from specchat.bench.race_record import Lane, Race

TEMPLATE = Path(__file__).with_suffix(".svg")
COLUMNS, MAX_ROWS = 46, 18
"""Characters in a line of an answer, and the lines that are shown; longer answers scroll."""
MAX_PROMPT = 2 * COLUMNS
FIGURES_SECONDS = 0.2
"""The least time that a figure is shown, so that it can be read."""
REST_SECONDS = 4.0
"""How long the loop shows the result."""


@dataclass(frozen=True)
class _LanePicture:
    """What the template draws of a lane, with times."""

    lane: Lane
    columns: int

    @cached_property
    def chips(self) -> list[Chip]:
        """The whole answer."""
        return list(chips(self.lane, self.columns))

    @property
    def steps(self) -> Iterator[tuple[float, list[Chip]]]:
        """The time of each step, and its chips."""
        for number, step in enumerate(self.lane.steps):
            yield step.seconds, [chip for chip in self.chips if chip.step == number]

    @property
    def num_rows(self) -> int:
        """The number of lines."""
        return max((chip.row for chip in self.chips), default=0) + 1

    @property
    def figures(self) -> list[tuple[float, float, str]]:
        """When figures are shown, until when, and the figures."""
        times = [0.0]
        for step in self.lane.steps:
            if step.seconds - times[-1] >= FIGURES_SECONDS:
                times.append(step.seconds)
        if times[-1] < self.lane.seconds:
            times.append(self.lane.seconds)
        ends = [*times[1:], inf]
        shown = [lane_figures(self.lane.until(time), self.lane) for time in times]
        return list(zip(times, ends, shown, strict=True))

    @property
    def shares(self) -> list[tuple[float, float]]:
        """The share of the answer that is written, by time."""
        total, done, shares = self.lane.num_tokens, 0, [(0.0, 0.0)]
        for step in self.lane.steps:
            done += len(step.texts)
            shares.append((step.seconds, done / total))
        return shares

    @property
    def scrolls(self) -> list[tuple[float, int]]:
        """The lines that have left the top, by time."""
        scrolls, last = [(0.0, 0)], 0
        for chip in self.chips:
            if (gone := chip.row - MAX_ROWS + 1) > last:
                last = gone
                scrolls.append((self.lane.steps[chip.step].seconds, gone))
        return scrolls


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
    lanes = [_LanePicture(lane, COLUMNS) for lane in race.lanes]
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
        rows=min(MAX_ROWS, max(lane.num_rows for lane in lanes)),
        length=race.seconds + REST_SECONDS,
        ink=INK,
        **how,
    )
